"""`nsys-pp extract`: reports as parts, with their traces encoded."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from msgspec.structs import replace

from nsys_pp.errors import ReportError
from nsys_pp.frames.conform import ShortRepr
from nsys_pp.frames.part import PartOptions
from nsys_pp.options import Detail
from nsys_pp.output.blocks import make_scratch
from nsys_pp.output.files import check_output
from nsys_pp.projection.ranges import Scope
from nsys_pp.read import is_part
from nsys_pp.read.parts import is_like_part
from nsys_pp.run.batch import Batch, Skipped
from nsys_pp.run.inputs import collect_row_counts
from nsys_pp.run.options import (
    Inputs,
    JobOptions,
    check_keywords,
    check_values,
    parse_part_options,
)
from nsys_pp.run.parts import (
    ExtractedPart,
    describe_hosts,
    extract_file,
    name_outputs,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExtractResult(ShortRepr):
    """Parts of all reports."""

    parts: list[ExtractedPart]  # in order of the reports
    skipped: Skipped
    row_counts: pl.DataFrame  # `RUN_ROW_COUNTS`: rows of all reports, used, and left out by reason


def extract(
    inputs: Inputs,
    output: str | Path | None = None,
    *,
    detail: Detail | None = None,
    ops: str | Sequence[str] | None = None,
    scope: Scope | None = None,
    flows: bool | None = None,
    show: str | Sequence[str] | None = None,
    force: bool = False,
    **options: Unpack[JobOptions],
) -> ExtractResult:
    """Write each report as a part; `merge` and other commands accept parts in place of reports.

    A part that exists, complete and as it would be made again, is kept; one that is damaged, of another
    version, of other options or older than its report is made again. A file appears complete or not at all,
    also if several processes extract the same report at the same time.

    Args:
        inputs: Reports, folders of them, or glob patterns.
        output: A part, for one report; or a folder, by default the current one, where parts are named after
            their reports. For several reports the folder is made.
        detail: "jobs", "ranges", "kernels" or "cpu": each has more than the one before. Default: "kernels".
        ops: GPU operations that ranges are projected onto: "kernel", "memcpy", "memset", or "all". Default:
            "kernel".
        scope: Launches that count for a range: "thread", "process" or "auto". Default: "auto".
        flows: Draw arrows from CUDA calls to the first operation of each launch; needs detail "cpu".
        show: Kinds of data to draw on request, keys of `nsys_pp.options.SHOW_KINDS` or "all".
        force: Make all parts again, and replace other existing files.
        options: See `nsys_pp.JobOptions`.

    Raises:
        ReportError: A report cannot be read, or has nothing to draw.
        OutputError: An output exists and is not a part of this report, or cannot be written, or two
            reports share a name.
    """
    check_keywords(options, JobOptions)
    check_values(detail=detail, scope=scope)
    asked = parse_part_options(options, detail=detail, ops=ops, scope=scope, flows=flows, show=show)
    target = None if output is None else Path(output)
    batch = Batch(inputs, options, with_parts=False)
    extracted = _extract_files(batch, target, asked, force=force)
    if hosts := [path for path, part in extracted.items() if part.is_host]:
        warnings.warn(describe_hosts(hosts, has_rows=True), stacklevel=3)
    counts = collect_row_counts({path: part.row_counts for path, part in extracted.items()})
    return ExtractResult(parts=list(extracted.values()), skipped=batch.skipped, row_counts=counts)


def _extract_files(
    batch: Batch, output: Path | None, asked: Mapping[str, Any], *, force: bool
) -> dict[Path, ExtractedPart]:
    """Write a file for each input."""
    paths = batch.paths
    outputs = dict(zip(paths, name_outputs(paths, output), strict=True))
    for path, target in outputs.items():
        if is_part(path):
            raise ReportError(
                f"`{path}` is a part already", "extract takes reports; every other command reads parts"
            )
        check_output(target, force=force or is_like_part(target), inputs=[path])
    with ExitStack() as stack:
        scratch = None if batch.is_local else stack.enter_context(make_scratch(outputs[paths[0]]))
        work = partial(
            extract_file,
            outputs=outputs,
            options=replace(
                PartOptions(), **{name: value for name, value in asked.items() if value is not None}
            ),
            asked=asked,
            force=force,
            nsys=batch.nsys,
            scratch=scratch,
        )
        return batch.map("extracting", paths, work)
