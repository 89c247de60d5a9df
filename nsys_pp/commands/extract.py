"""`nsys-pp extract`: reports as parts, with their traces encoded."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Unpack

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.errors import OutputError, ReportError
from nsys_pp.frames.part import SUFFIX, Part, PartOptions
from nsys_pp.model.identity import compute_fingerprint
from nsys_pp.options import Detail
from nsys_pp.output.blocks import make_scratch, write_part
from nsys_pp.output.files import check_file_output, check_output, make_folders, translate_errors
from nsys_pp.output.perfetto.trace import Sink, encode_drawing
from nsys_pp.projection.ranges import Scope
from nsys_pp.read import check_part_blocks, is_part, read_part, read_report
from nsys_pp.read.parts import is_like_part
from nsys_pp.roster.identity import name_paths
from nsys_pp.run.inputs import Batch, Result, collect_row_counts
from nsys_pp.run.options import (
    Inputs,
    JobOptions,
    check_keywords,
    check_values,
    parse_part_options,
)
from nsys_pp.run.report import Window, draw_part, nothing_to_draw_error, redraw_report, shorten_path
from nsys_pp.run.trace import OF_HOSTS, describe_hosts, is_content_open
from nsys_pp.training.jobs import list_job_ranges


class ExtractedPart(Struct, frozen=True, kw_only=True):
    """A part of a report."""

    report: Path
    output: Path
    slices: int
    jobs: int  # drawn in a trace in addition to the slices
    gpus: int
    is_new: bool  # else it existed, as it would be made again
    is_host: bool = False  # made now of a report without GPU operations: its CPU ranges and calls are drawn
    row_counts: pl.DataFrame  # ROW_COUNTS


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExtractResult(Result):
    """Parts of all reports."""

    parts: list[ExtractedPart]  # in order of the reports


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
        output: A part (`.nspart`), for one report; or a folder, by default the current one, where parts are
            named after their reports. The folder is made.
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
    batch = Batch(inputs, options, with_parts=False)
    paths = batch.paths
    named = None if output is None else Path(output)
    outputs = dict(zip(paths, _name_outputs(paths, named), strict=True))
    for target in outputs.values():
        is_forced = force or is_like_part(target)
        check_output(target, force=is_forced, inputs=paths, makes_folder=target != named)
        check_file_output(target, "a part")
    with make_folders({target.parent for target in outputs.values()}), ExitStack() as stack:
        scratch = None if batch.is_local else stack.enter_context(make_scratch(outputs[paths[0]]))
        work = partial(
            _extract_file,
            outputs=outputs,
            options=replace(
                PartOptions(), **{name: value for name, value in asked.items() if value is not None}
            ),
            asked=asked,
            force=force,
            nsys=batch.nsys,
            scratch=scratch,
        )
        extracted = batch.map("extracting", paths, work)
    if hosts := [path for path, part in extracted.items() if part.is_host]:
        warnings.warn(describe_hosts(hosts, has_rows=True), stacklevel=3)
    skipped = [outputs[path] for path, _ in batch.skipped if path in outputs and not is_part(path)]
    if stale := [*filter(is_like_part, skipped)]:
        warnings.warn(f"of an earlier extraction, and not made again: {name_paths(stale)}", stacklevel=3)
    counts = collect_row_counts({path: part.row_counts for path, part in extracted.items()})
    return ExtractResult(parts=list(extracted.values()), skipped=batch.skipped, row_counts=counts)


def _extract_file(
    path: Path,
    outputs: Mapping[Path, Path],
    options: PartOptions,
    asked: Mapping[str, Any],
    *,
    force: bool,
    nsys: str | None,
    scratch: Path | None,
) -> ExtractedPart:
    """Write the part of a report, unless it exists.

    Args:
        path: The report.
        outputs: Parts by report.
        options: Content of the part.
        asked: Fields of `PartOptions` that were asked for; None where open.
        force: Make it again.
        nsys: Program that exports `.nsys-rep` files.
        scratch: Folder to write the part in before it is moved: this process may be killed. None: the
            output's.

    Raises:
        ReportError: The report cannot be read, or has nothing to draw.
        OutputError: The output is another report's part, or cannot be written.
    """
    output = outputs[path]
    if is_part(path):
        raise ReportError(
            f"`{path}` is a part already, by its name",
            "extract takes reports; `merge` and other commands read its parts",
        )
    if not force and is_like_part(output):
        part = _find_finished_part(path, shorten_path(path), output, options, nsys=nsys)
        if part is not None:
            return _describe_part(path, output, part, is_new=False)
    is_host = False

    def make(sink: Sink) -> Part:
        """Extract the report.

        Without GPU operations and without a chosen content, its CPU ranges and calls are drawn.
        """
        nonlocal is_host
        part, drawing = draw_part(path, options, nsys=nsys)
        is_host = is_content_open(asked) and not any(
            subtrack.kind == "slices" and len(subtrack.rows) for subtrack in drawing.subtracks
        )
        if is_host:
            content = replace(options, detail="cpu", show=OF_HOSTS)
            jobs = list_job_ranges(part.frames["jobs"])
            drawing = next(redraw_report(path, [(content, Window())], nsys=nsys, job_ranges=jobs))
        part = replace(part, encoded=encode_drawing(drawing, sink))
        if not part.encoded.event_count and not part.drawn_job_count:
            raise nothing_to_draw_error(f"`{path}` has nothing to draw")
        return part

    if scratch is None or output.is_symlink() or (output.exists() and not output.is_file()):
        part = write_part(output, make)
    else:
        with translate_errors(output):
            temporary = Path(tempfile.mkdtemp(dir=scratch)) / "part"
            part = write_part(temporary, make, named=output)
            os.replace(temporary, output)
    return replace(_describe_part(path, output, part, is_new=True), is_host=is_host)


def _describe_part(path: Path, output: Path, part: Part, *, is_new: bool) -> ExtractedPart:
    return ExtractedPart(
        report=path,
        output=output,
        slices=part.encoded.slice_count,
        jobs=part.drawn_job_count,
        gpus=part.frames["devices"]["gpu"].n_unique(),
        is_new=is_new,
        row_counts=part.frames["row_counts"],
    )


def _name_outputs(paths: Sequence[Path], output: Path | None) -> list[Path]:
    """Name the part of each report.

    Args:
        paths: The reports.
        output: A part, for one report, or an existing file; or a folder; None: the current one.

    Raises:
        OutputError: It is not a folder, or two reports share a name.
    """
    folder = Path() if output is None else output
    if output is not None and not output.is_dir() and (is_part(output) or output.exists()):
        if len(paths) == 1:
            return [output]
        raise OutputError(
            f"cannot write {len(paths)} parts to `{output}`: it is not a folder", "name a folder with `-o`"
        )
    outputs = [folder / (path.stem + SUFFIX) for path in paths]
    for number, target in enumerate(outputs):
        if target in outputs[:number]:
            first = paths[outputs.index(target)]
            raise OutputError(
                f"`{first}` and `{paths[number]}` would both be written to `{target}`",
                "extract each into a folder of its own",
            )
    return outputs


def _find_finished_part(
    report: Path, source: Path, target: Path, options: PartOptions, *, nsys: str | None
) -> Part | None:
    """Read an existing part that an extraction would make again, to the byte.

    It is complete, made by this version with these options of this recording, and not older than it.

    Args:
        report: The report.
        source: Path of the report as its part keeps it.
        target: The part; begins like one.
        options: Its expected options.
        nsys: Program that exports `.nsys-rep` files.

    Returns:
        The part; None where it is to be made again.

    Raises:
        OutputError: It is another report's part.
        ReportError: The report cannot be read.
    """
    try:
        part = read_part(target, version=version("nsys-pp"))
        check_part_blocks(target)
    except ReportError:  # it is damaged, or of another format
        return None
    if part.encoded.report_id != compute_fingerprint(read_report(report, need=frozenset(), nsys=nsys)):
        if part.source != source:
            raise OutputError(
                f"`{target}` exists, and is the part of another report, `{part.source}`",
                "write into another folder with `-o`, or add `--force` to replace it",
            )
        return None
    if part.made_by != version("nsys-pp") or part.options != options:
        return None
    files = [report, *report.iterdir()] if report.is_dir() else [report]  # as new as its newest file
    is_older = target.stat().st_mtime_ns < max(file.stat().st_mtime_ns for file in files)
    return None if is_older else part
