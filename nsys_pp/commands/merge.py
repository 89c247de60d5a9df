"""`nsys-pp merge`: one trace of all reports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nsys_pp.compose.batch import Batch, Skipped
from nsys_pp.compose.options import (
    Inputs,
    RunOptions,
    check_choice,
    check_keywords,
    parse_counted_ops,
    parse_job_options,
    parse_steps,
)
from nsys_pp.compose.run import Run
from nsys_pp.compose.trace import TraceBuilder, TraceContent
from nsys_pp.compose.trace_layout import count_shown
from nsys_pp.frames.choices import DETAILS, Detail
from nsys_pp.frames.short_repr import ShortRepr
from nsys_pp.projection.ranges import Scope
from nsys_pp.write.files import check_output
from nsys_pp.write.trace_format_registry import TRACE_FORMATS, infer_trace_format

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MergeResult(ShortRepr):
    """Counts of a trace."""

    output: Path
    reports: int
    machines: int
    gpus: int
    slices: int
    notes: list[str]  # inferred, refused and doubtful facts of the training, in sentences
    skipped: Skipped


def merge(
    inputs: Inputs,
    output: str | Path,
    *,
    format: str | None = None,
    detail: Detail | None = None,
    ops: str | Sequence[str] | None = None,
    scope: Scope | None = None,
    devices: Collection[int] | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    flows: bool | None = None,
    force: bool = False,
    **options: Unpack[RunOptions],
) -> MergeResult:
    """Write one trace of all reports, on one clock.

    Reports are encoded one by one, each as in its part; parts are encoded already.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns.
        output: The trace.
        format: A key of `nsys_pp.write.trace_format_registry.TRACE_FORMATS`. Default: "chrome" for `.json` and `.json.gz`, else "perfetto".
        detail: "jobs", "ranges", "kernels" or "cpu": each has more than the one before. Default: that of the
            parts, else "kernels".
        ops: GPU operations that ranges are projected onto. Default: those of the parts, else "kernel".
        scope: Launches that count for a range. Default: that of the parts, else "auto".
        devices: Include only these GPUs (index per machine).
        start_ns: Omit events that end before this time after the start of the earliest session.
        end_ns: Omit events that begin after this time, counted likewise.
        flows: Draw arrows from CUDA calls to the first operation of each launch; needs detail "cpu".
        force: Replace an existing output.
        options: See `nsys_pp.RunOptions`; with `steps`, all other time is omitted.

    Raises:
        ReportError: A report cannot be read, or is named twice, none has anything to draw, or a part
            has other content than asked for.
        OutputError: The output exists, or cannot be written.
    """
    check_keywords(options, RunOptions)
    if format is not None:
        check_choice("format", format, TRACE_FORMATS)
    if detail is not None:
        check_choice("detail", detail, DETAILS)
    target = Path(output)
    check_output(target, force=force)
    counted = None if ops is None else parse_counted_ops(ops)
    content = TraceContent(
        format=infer_trace_format(target) if format is None else TRACE_FORMATS[format],
        part_options={
            "detail": detail,
            "ops": counted,
            "scope": scope,
            "flows": flows,
            **parse_job_options(options),
        },
        devices=None if devices is None else frozenset(devices),
        start_ns=start_ns,
        end_ns=end_ns,
        only_steps=parse_steps(options.get("steps")) is not None,
    )
    batch = Batch(inputs, options)
    builder = TraceBuilder(batch, content, target)
    run = Run(batch, options, read=builder.read_inputs)
    check_output(target, force=force, inputs=batch.paths)
    with builder:
        shown = builder.draw(run)
        builder.write(shown, force=force)
    gpus, slices = count_shown(shown)
    return MergeResult(
        output=target,
        reports=len(run.inputs),
        machines=run.roster["machine"].n_unique(),
        gpus=gpus,
        slices=slices,
        notes=run.training.notes if len(run.training.jobs) else [],
        skipped=run.skipped,
    )
