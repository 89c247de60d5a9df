"""`nsys-pp pipeline`: the training of a run, as frames and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from nsys_pp.errors import MissingDataError, OptionError
from nsys_pp.frames.conform import ShortRepr
from nsys_pp.frames.raw import SURVEY_GROUPS
from nsys_pp.frames.table import fill_tables
from nsys_pp.frames.training import SCHEDULED_KINDS, Training
from nsys_pp.frames.verdict import Verdict
from nsys_pp.hardware.model_flops import FORMULA, count_flops, parse_model
from nsys_pp.model import build_report
from nsys_pp.options import DATA_TYPES
from nsys_pp.read import is_part, read_report
from nsys_pp.run.batch import Batch, Skipped
from nsys_pp.run.inputs import Input, read_inputs
from nsys_pp.run.metrics import read_metric_sums
from nsys_pp.run.options import Inputs, RunOptions, check_choice, check_keywords
from nsys_pp.run.report_training import PresetHint, find_preset_hint
from nsys_pp.run.requested import REQUESTED, explain, explain_no_rows
from nsys_pp.run.run import Run
from nsys_pp.tables.registry import REQUESTED_TABLES, TABLES
from nsys_pp.tables.training import UTILISATION_TABLE, Work, describe_clocks, describe_work
from nsys_pp.tables.verdict import VERDICT_TABLE, build_verdict, build_verdict_table
from nsys_pp.training.names import find_preset_readings
from nsys_pp.units import format_count, format_duration

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NAME_THEM = (
    "take the preset of your framework with `--preset`, or name the ranges with `--job-pattern forward=REGEX` and"
    " the like (docs/presets.md)"
)
_RECORD_THEM = (
    "`nsys profile --trace cuda,nvtx` records them; `nsys_pp.capture` writes them where a framework has none"
    " (docs/capture.md)"
)
NOTEBOOK_TABLES = ("verdict", "schedule", "steps", "stages", "kinds", "stragglers")
NOTEBOOK_ROWS = 10
PIPELINE_TABLES = TABLES
"""Tables of `PipelineResult.tables`, by name."""


_Reader = Callable[[Run, Training], pl.DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PipelineResult(ShortRepr):
    """Training of a run."""

    training: Training
    run: Run  # inputs, roster and clocks
    skipped: Skipped
    work: Work | None = None  # of a step, if the caller named it
    _verdicts: list[Verdict] = field(default_factory=list, init=False, compare=False)  # built on first use
    _requested: dict[_Reader, pl.DataFrame] = field(default_factory=dict, init=False, compare=False)

    @property
    def row_counts(self) -> pl.DataFrame:
        """Rows of all reports, used, and left out by reason (`RUN_ROW_COUNTS`)."""
        return self.run.row_counts

    @property
    def verdict(self) -> Verdict:
        """At most five findings, by the time of a step that could be gained."""
        if not self._verdicts:
            self._verdicts.append(build_verdict(self.training, explain(self.run, self.training)))
        return self._verdicts[0]

    def tables(self, names: Sequence[str] | None = None) -> dict[str, pl.DataFrame]:
        """Build tables by their names in `PIPELINE_TABLES`; all of them if None.

        Tables of `REQUESTED_TABLES` ("metrics", "step_metrics", "network", "host", "overhead") are built only if they are named:
        reports are read once more for them.
        "utilisation" is the model FLOPs utilisation by step; it needs the work of a step.
        """
        return {name: self._build(name) for name in (TABLES if names is None else names)}

    def explain_no_rows(self, name: str) -> str:
        """Explain why a table that is built only if it is named has no rows."""
        return explain_no_rows(self.run, self.training, name)

    def _repr_html_(self) -> str:
        """Return the chart, if it is small and matplotlib is installed, and the first tables, for notebooks."""
        from nsys_pp.output.chart.picture import draw_small_chart
        from nsys_pp.output.tables.formats import format_html

        tables = fill_tables(TABLES, self.tables(NOTEBOOK_TABLES))
        picture = draw_small_chart(self.training)
        return picture + format_html([table for table in tables if len(table.frame)], limit=NOTEBOOK_ROWS)

    def metric_notes(self) -> list[str]:
        """Return sentences on clocks of GPUs that fell; empty unless a table of GPU metrics was built."""
        sums = self._requested.get(read_metric_sums)
        return [] if sums is None else describe_clocks(self.training, sums)

    def work_notes(self) -> list[str]:
        """Return sentences on the work of a step and the peaks of GPUs; empty without the work of a step."""
        return [] if self.work is None else describe_work(self.work)

    def _read(self, reader: _Reader) -> pl.DataFrame:
        """Read the data of a table on request; tables of one reader share them."""
        if reader not in self._requested:
            self._requested[reader] = reader(self.run, self.training)
        return self._requested[reader]

    def _build(self, name: str) -> pl.DataFrame:
        if name == UTILISATION_TABLE.name and self.work is not None:
            return UTILISATION_TABLE.build(self.training, self.work)
        if name == VERDICT_TABLE.name:
            return build_verdict_table(self.verdict)
        if name in REQUESTED_TABLES:
            return REQUESTED_TABLES[name].build(self.training, self._read(REQUESTED[name].read))
        return TABLES[name].build(self.training)


def pipeline(
    inputs: Inputs,
    *,
    flops_per_step: float | None = None,
    model: str | None = None,
    data_type: str = "bf16",
    **options: Unpack[RunOptions],
) -> PipelineResult:
    """Analyse the training of a run: steps, jobs, messages, bubbles and schedule.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns.
        flops_per_step: FLOPs of the model in one step, over all GPUs, for the table "utilisation".
        model: Shape of a transformer instead, from which they are computed: `layers=32,hidden=4096,sequence=4096,batch=512`
            (`nsys_pp.hardware.model_flops`).
        data_type: Data type of the peak of GPUs: "bf16", "fp16", "tf32", "fp8" or "fp4".
        options: See `nsys_pp.RunOptions`.

    Raises:
        ReportError: A report cannot be read, or is named twice.
        MissingDataError: No report has GPU operations.
        NsysPPError: Rules cannot be read, or `steps` contains none of the steps.
    """
    check_keywords(options, RunOptions)
    check_choice("data_type", data_type, DATA_TYPES)
    flops = _count_flops(flops_per_step, model)
    result = build_pipeline(Batch(inputs, options), options)
    if flops is None:
        return result
    return replace(result, work=_find_work(result, *flops, data_type=data_type))


def build_pipeline(
    batch: Batch,
    options: RunOptions,
    *,
    needs_jobs: bool = False,
    with_aggregates: bool = False,
    check: Callable[[Sequence[Path]], None] | None = None,
    inputs: Sequence[Input] | None = None,
) -> PipelineResult:
    """Analyse the training of a batch.

    Args:
        batch: Batch of the inputs.
        options: Keywords.
        needs_jobs: A run without jobs is an error.
        with_aggregates: Also read or build the frames of a summary.
        check: Checks an output, and receives the paths of all inputs before any is read.
        inputs: Inputs of the batch that another analysis has read; None: they are read.

    Raises:
        NsysPPError: As in `pipeline`, or raised by `check`.
    """
    read = partial(_read_inputs, with_aggregates=with_aggregates)
    run = Run(batch, options, read=read if inputs is None else lambda run: inputs)
    if check is not None:
        check(batch.paths)
    if run.training.lanes.is_empty():
        raise _no_operations_error(run)
    training = run.training
    has_passes = bool(training.jobs["kind"].is_in(SCHEDULED_KINDS).any())
    if needs_jobs and training.jobs.is_empty():
        raise MissingDataError(*_explain_no_jobs(run, options))
    is_expected = has_passes or len(training.batches) or (len(training.jobs) and options.get("job_patterns"))
    if not is_expected:
        reason, hint = _explain_no_jobs(run, options)
        training = replace(training, notes=[f"{reason}: {hint}", *training.notes])
    return PipelineResult(training=training, run=run, skipped=run.skipped)


def _count_flops(flops_per_step: float | None, model: str | None) -> tuple[float, str] | None:
    """Return the FLOPs of a step with their source, None if the caller named neither.

    Raises:
        OptionError: They are invalid, or both are named.
    """
    if model is None:
        if flops_per_step is not None and not flops_per_step > 0:
            raise OptionError(
                "flops_per_step", f"invalid number of FLOPs `{flops_per_step}`; expected more than 0"
            )
        return None if flops_per_step is None else (flops_per_step, "as requested")
    if flops_per_step is not None:
        raise OptionError("model", "`flops_per_step` and `model` exclude each other; omit one of them")
    try:
        shape = parse_model(model)
    except ValueError as error:
        raise OptionError("model", str(error)) from error
    return count_flops(shape), FORMULA


def _find_work(result: PipelineResult, flops: float, formula: str, *, data_type: str) -> Work:
    """Find the GPUs of the lanes, and the number of GPUs of the run, for the utilisation."""
    inputs, lanes = result.run.inputs, result.training.lanes
    devices = pl.concat(
        recorded.identity.devices.select(
            "process_key", "device_id", gpu_name="name", report=pl.lit(number, pl.UInt32)
        )
        for number, recorded in enumerate(inputs)
    ).unique(["report", "process_key", "device_id"])
    on = ["report", "process_key", "device_id"]
    gpus = lanes.join(devices, on=on, how="left", maintain_order="left")["gpu_name"]
    sizes = [recorded.identity.ranks["world_size"].max() for recorded in inputs]
    most = max((int(size) for size in sizes if isinstance(size, int)), default=0)
    return Work(
        flops=flops,
        formula=formula,
        data_type=data_type,
        gpus=tuple(gpus.to_list()),
        gpu_count=max(most, len(lanes)),
    )


def _read_inputs(run: Run, *, with_aggregates: bool) -> list[Input]:
    return read_inputs(run.batch, run.job_options, doing="analysing", with_aggregates=with_aggregates)


def _explain_no_jobs(run: Run, options: RunOptions) -> tuple[str, str]:
    """Return the reason that a run has no forwards and backwards, and the option that helps."""
    inputs, is_single, none = run.inputs, len(run.inputs) == 1, _format_none(run)
    if run.training.jobs.is_empty() and any(len(recorded.part.frames["jobs"]) for recorded in inputs):
        return (
            f"{none} {'' if is_single else 'a '}job that launched GPU work",
            "names say what is a job, but no call inside launched a kernel; `--scope process` counts what other threads"
            " launched",
        )
    no_range = f"{none} {'' if is_single else 'an '}NVTX range that is known to be a forward or a backward"
    if options.get("infer_jobs"):
        return no_range, f"{_NAME_THEM}; `--layout` tells stages"
    kinds = [recorded.part.facts.recorded for recorded in inputs]
    if all(kind is not None and "ranges" not in kind for kind in kinds):
        return f"{none} NVTX ranges", _RECORD_THEM
    hint = _NAME_THEM
    reports = [recorded.path for recorded in inputs if not is_part(recorded.path)]
    if options.get("preset") is None and reports:
        read = partial(read_report, reports[0], nsys=run.batch.nsys)
        readings = find_preset_readings(build_report(read(need=frozenset({"ranges"}))).ranges)
        found = find_preset_hint(build_report(read(need=SURVEY_GROUPS)), readings) if readings else None
        hint = _describe_hint(found)
    if any(len(recorded.part.frames["messages"]) for recorded in inputs):
        hint += "; or let `--infer-jobs` guess them from messages"
    return no_range, hint


def _describe_hint(hint: PresetHint | None) -> str:
    if hint is None:
        return (
            "no preset would read one with GPU work; name the ranges with `--job-pattern forward=REGEX` and the like"
            " (docs/presets.md); `--explain-jobs` lists all names"
        )
    return (
        f"`--preset {hint.preset}` would read the most GPU time ({format_duration(hint.gpu_ns)} in"
        f" {format_count(hint.range_count, 'range')}), but too few of its names are sure to be detected; `--explain-jobs` lists"
        " all names"
    )


def _no_operations_error(run: Run) -> MissingDataError:
    """Return the error of a run without GPU operations, with the option that records them."""
    return MissingDataError(
        f"{_format_none(run)} GPU operations", "record them with `nsys profile --trace cuda,nvtx`"
    )


def _format_none(run: Run) -> str:
    """Format the first words of a sentence on data that all reports lack."""
    inputs = run.inputs
    return f"`{inputs[0].path}` has no" if len(inputs) == 1 else f"none of the {len(inputs)} reports has"
