"""`nsys-pp pipeline`: the training of a run, as frames and tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from nsys_pp.errors import MissingDataError, OptionError
from nsys_pp.frames.conform import ShortRepr
from nsys_pp.frames.raw import SURVEY_GROUPS
from nsys_pp.frames.table import Absence, fill_tables
from nsys_pp.frames.training import SCHEDULED_KINDS, Training
from nsys_pp.frames.verdict import NO_VERDICT, Verdict
from nsys_pp.hardware import FORMULA, count_flops, parse_model
from nsys_pp.model import build_report
from nsys_pp.options import DATA_TYPES
from nsys_pp.output.formats import EXPORTERS, ExportedFile, ExportOptions, ExportSource
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import read_report
from nsys_pp.run.inputs import Batch, Result, Skipped, collect_row_counts, read_inputs
from nsys_pp.run.options import (
    Inputs,
    JobOptions,
    RunOptions,
    check_choice,
    check_keywords,
    parse_job_options,
)
from nsys_pp.run.report import Input, count_report_rows, project_report
from nsys_pp.run.requested import REQUESTED, explain, explain_no_rows, read_metric_sums
from nsys_pp.run.run import Run
from nsys_pp.tables.listings import NAME_TABLE as NAME_TABLE
from nsys_pp.tables.registry import REQUESTED_TABLES, TABLES
from nsys_pp.tables.training import UTILISATION_TABLE, Work, describe_clocks, describe_work
from nsys_pp.tables.verdict import VERDICT_TABLE, build_verdict, build_verdict_table
from nsys_pp.training.names import choose_rules, read_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NAME_THEM = (
    "take the preset of your framework with `--preset`, or name the ranges with `--job-pattern forward=REGEX`"
    " and the like (docs/presets.md)"
)
_RECORD_THEM = (
    "`nsys profile --trace cuda,nvtx` records those that a program pushes; `nsys_pp.capture` writes them"
    " where a framework has none (docs/capture.md)"
)
NOTEBOOK_TABLES = ("verdict", "schedule", "steps", "stages", "kinds", "stragglers")
# Tables of `PipelineResult.tables`, by name.
PIPELINE_TABLES = TABLES
_Reader = Callable[[Run, Training], pl.DataFrame]
_KEYS = ("kind", "preset", "pattern", "name")


@dataclass(frozen=True, kw_only=True, repr=False)  # without slots, for the cached verdict
class PipelineResult(ShortRepr):
    """Training of a run."""

    training: Training
    run: Run  # inputs, roster and clocks
    skipped: Skipped
    work: Work | None = None  # of a step, if the caller named it
    _requested: dict[_Reader, pl.DataFrame] = field(default_factory=dict, init=False, compare=False)

    @property
    def row_counts(self) -> pl.DataFrame:
        """Rows of all reports, used, and left out by reason (`RUN_ROW_COUNTS`)."""
        return self.run.row_counts

    @cached_property
    def verdict(self) -> Verdict:
        """At most five findings, by the time of a step that could be gained."""
        return build_verdict(self.training, explain(self.run, self.training))

    def tables(self, names: Sequence[str] | None = None) -> dict[str, pl.DataFrame]:
        """Build tables by their names in `PIPELINE_TABLES`; all of them if None.

        Tables of `REQUESTED_TABLES` ("metrics", "step_metrics", "network", "host", "overhead") are built only
        if they are named: reports are read once more for them.
        "utilisation" is the model FLOPs utilisation by step; it needs the work of a step.
        """
        return {name: self._build(name) for name in (TABLES if names is None else names)}

    def explain_no_rows(self, name: str) -> Absence:
        """Explain why a table that is built only if it is named has no rows."""
        return explain_no_rows(self.run, self.training, name)

    def __repr__(self) -> str:
        """Return the size of the run, and four lines of the verdict."""
        return "\n".join([ShortRepr.__repr__(self), *self.verdict.lines[:4]])

    def _repr_html_(self) -> str:
        """Return the chart, if it is small, and the first tables, for notebooks."""
        from nsys_pp.output.chart.picture import draw_small_chart
        from nsys_pp.output.tables.formats import format_html

        tables = fill_tables(TABLES, self.tables(NOTEBOOK_TABLES))
        return draw_small_chart(self.training) + format_html(tables)

    def metric_notes(self) -> list[str]:
        """Return sentences on clocks of GPUs that fell; empty unless a table of GPU metrics was built."""
        sums = self._requested.get(read_metric_sums)
        return [] if sums is None else describe_clocks(self.training, sums)

    def work_notes(self) -> list[str]:
        """Return sentences on the work of a step and the peaks of GPUs; empty without the work of a step."""
        return [] if self.work is None else describe_work(self.work)

    def _build(self, name: str) -> pl.DataFrame:
        if name == UTILISATION_TABLE.name and self.work is not None:
            return UTILISATION_TABLE.build(self.training, self.work)
        if name == VERDICT_TABLE.name:
            return build_verdict_table(self.verdict)
        if name in REQUESTED_TABLES:
            reader = REQUESTED[name].read  # tables of one reader share its data
            if reader not in self._requested:
                self._requested[reader] = reader(self.run, self.training)
            return REQUESTED_TABLES[name].build(self.training, self._requested[reader])
        return TABLES[name].build(self.training)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExplainResult(Result):
    """Names of ranges of all reports.

    Attributes:
        names: One row per name (with `#` for numbers) and rule: kind, preset and pattern of the rule, number
            of ranges, and time of the GPU operations in them; names without a rule last.
    """

    names: pl.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExportJobsResult(Result):
    """Files that hold the jobs of a run.

    Attributes:
        files: In the order of writing.
        notes: Missing or inferred facts, in sentences.
        hint: How to open the files, in a sentence.
    """

    files: tuple[ExportedFile, ...]
    notes: tuple[str, ...]
    hint: str


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
        model: Shape of a transformer instead, from which they are computed:
            `layers=32,hidden=4096,sequence=4096,batch=512` (`nsys_pp.hardware`).
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

    def read(run: Run) -> Sequence[Input]:
        if inputs is not None:
            return inputs
        return read_inputs(batch, run.job_options, doing="analysing", with_aggregates=with_aggregates)

    run = Run(batch, options, read=read)
    if check is not None:
        check(batch.paths)
    if run.training.lanes.is_empty():
        raise MissingDataError(
            f"{_format_none(run)} GPU operations",
            "`nsys profile --trace cuda,nvtx` records those of a program that has any",
        )
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


def _explain_no_jobs(run: Run, options: RunOptions) -> tuple[str, str]:
    """Return the reason that a run has no forwards and backwards, and the option that helps."""
    inputs, is_single, none = run.inputs, len(run.inputs) == 1, _format_none(run)
    if run.training.jobs.is_empty() and any(len(recorded.part.frames["jobs"]) for recorded in inputs):
        return (
            f"{none} {'' if is_single else 'a '}job that launched GPU work",
            "names say what is a job, but no call inside launched a kernel; parts that"
            " `nsys-pp extract --scope process` writes count what other threads launched",
        )
    no_range = f"{none} {'' if is_single else 'an '}NVTX range that is known to be a forward or a backward"
    if options.get("infer_jobs"):
        return no_range, f"{_NAME_THEM}; `--layout` tells stages"
    if all("ranges" not in recorded.part.facts.recorded for recorded in inputs):
        return f"{none} NVTX ranges", _RECORD_THEM
    hint = f"{_NAME_THEM}; `nsys-pp pipeline --explain-jobs` lists all names"
    if any(recorded.part.frames["jobs"]["range_id"].has_nulls() for recorded in inputs):
        hint += "; or let `--infer-jobs` guess them from messages"
    return no_range, hint


def _format_none(run: Run) -> str:
    """Format the first words of a sentence on data that all reports lack."""
    inputs = run.inputs
    return f"`{inputs[0].path}` has no" if len(inputs) == 1 else f"none of the {len(inputs)} reports has"


def explain_jobs(inputs: Inputs, **options: Unpack[JobOptions]) -> ExplainResult:
    """Explain the names of ranges: jobs, steps, and unread names.

    Args:
        inputs: Reports, folders of them, or glob patterns; no parts, which do not keep all ranges.
        options: See `nsys_pp.JobOptions`.

    Raises:
        ReportError: A report cannot be read, or is named twice.
        NsysPPError: Rules cannot be read.
    """
    check_keywords(options, JobOptions)
    batch = Batch(inputs, options, with_parts=False)
    work = partial(_explain_file, rules=parse_job_options(options), nsys=batch.nsys)
    explained = batch.map("explaining", batch.paths, work)
    names = (
        pl.concat(frame for frame, _ in explained.values())
        .group_by(_KEYS)
        .agg(pl.col("range_count", "gpu_ns").sum())
        .sort(pl.col("kind").is_null(), -pl.col("gpu_ns"), -pl.col("range_count"), "name")
    )
    counts = collect_row_counts({path: counts for path, (_, counts) in explained.items()})
    return ExplainResult(names=NAME_TABLE.build(names), skipped=batch.skipped, row_counts=counts)


def _explain_file(path: Path, rules: dict[str, Any], nsys: str | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Explain the names of one report: one row per name and rule, and `ROW_COUNTS`.

    `rules` are from `parse_job_options`.
    """
    report = build_report(read_report(path, need=SURVEY_GROUPS, nsys=nsys), is_last_use=True)
    chosen = choose_rules(
        report.ranges,
        preset=rules["preset"],
        job_patterns=rules["job_patterns"] or (),
        step_patterns=rules["step_patterns"] or (),
    )
    launches = match_launches(report.api_calls, report.gpu_ops)
    projections = project_report(report, ops=("kernel",), scope="auto", launches=launches)
    busy = projections.group_by("range_id").agg(gpu_ns=pl.col("busy_ns").sum())
    names = (
        read_names(report.ranges, chosen)
        .join(busy, on="range_id", how="left")
        .group_by(_KEYS)
        .agg(range_count=pl.len().cast(pl.Int64), gpu_ns=pl.col("gpu_ns").sum())
    )
    return names, count_report_rows(report, launches, projections, "auto")


def export_jobs(
    inputs: Inputs,
    output: str | Path | None,
    *,
    format: str,
    devices: Collection[int] | None = None,
    title: str | None = None,
    force: bool = False,
    **options: Unpack[RunOptions],
) -> ExportJobsResult:
    """Write the jobs of a run in a format of `nsys_pp.output.formats`.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns.
        output: File or folder, as the format has it; None: the reports themselves (format "steptask").
        format: Name of the format, a key of `EXPORTERS`.
        devices: Include only these GPUs (index per machine, as in nvidia-smi).
        title: Heading of the output. Default: the name of the output.
        force: Replace files that exist.
        options: See `nsys_pp.RunOptions`.

    Raises:
        ReportError: A report cannot be read, is named twice, or is not of the kind that the format needs.
        MissingDataError: No report has a job, or none of `devices` exists.
        OutputError: A file exists, or cannot be written.
    """
    check_keywords(options, RunOptions)
    check_choice("format", format, EXPORTERS)
    exporter = EXPORTERS[format]
    target: Any = None if output is None else Path(output)  # "steptask" accepts None
    needs_reports = "sources" in exporter.options
    batch = Batch(inputs, options, with_parts=not needs_reports)
    result = build_pipeline(
        batch,
        options,
        needs_jobs=exporter.needs_jobs,
        check=lambda paths: exporter.check(target, inputs=paths, force=force),
    )
    run = result.run
    sources = (
        ExportSource(path=recorded.path, report=report, clock=clock, window_ns=window)
        for recorded, report, clock, window in zip(
            run.inputs, run.captures.first, run.clocks.clocks, run.capture_windows, strict=True
        )
    )
    export_options = ExportOptions(
        force=force,
        title=title,
        devices=None if devices is None else tuple(sorted(devices)),
        sources=tuple(sources),
        verdict=result.verdict if "verdict" in exporter.options else NO_VERDICT,
        has_all_steps=options.get("steps") is not None,
    )
    written = exporter.write(result.training, target, export_options)
    return ExportJobsResult(
        files=written.files,
        notes=written.notes,
        hint=written.hint,
        skipped=result.skipped,
        row_counts=result.row_counts,
    )
