"""Files of parts: their names, their checks, and their extraction."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.errors import OutputError, ReportError
from nsys_pp.frames.part import SUFFIX, Part, PartOptions
from nsys_pp.model.identity import compute_fingerprint
from nsys_pp.options import SHOW_KINDS
from nsys_pp.output.blocks import write_part
from nsys_pp.output.files import translate_errors
from nsys_pp.output.perfetto.trace import Sink, encode_drawing
from nsys_pp.output.trace.drawing import SliceSubtrack, count_rows
from nsys_pp.read import check_part_blocks, read_part, read_report
from nsys_pp.read.parts import is_like_part
from nsys_pp.run.report import draw_part, nothing_to_draw_error, redraw_report, shorten_path
from nsys_pp.run.view import Window
from nsys_pp.training.jobs import list_job_ranges

OF_HOSTS = ("mpi", "ucx")
# texts of the profiler and of unknown tables are drawn only if asked for: they may have secrets
OF_RUN = tuple(kind for kind in SHOW_KINDS if kind not in ("profiler", "other"))
"""Kinds of data on request that are drawn where no report of a run has GPU operations."""
_CONTENT = ("detail", "show", "flows")


def is_content_open(asked: Mapping[str, Any]) -> bool:
    """Return whether no level of detail and no kind of data is chosen.

    `asked` has fields of `PartOptions`, None where open.
    """
    return all(asked.get(name) is None for name in _CONTENT)


def is_usual(options: PartOptions) -> bool:
    """Return whether parts with these options have the content that is drawn where none is chosen."""
    usual = PartOptions()
    return all(getattr(options, name) == getattr(usual, name) for name in _CONTENT)


def describe_hosts(paths: Sequence[Path], *, has_rows: bool) -> str:
    """Describe the content that is drawn of reports without GPU operations; nothing without rows."""
    is_one = len(paths) == 1
    named = f"`{paths[0]}` has" if is_one else f"{len(paths):,} reports (`{paths[0]}` and others) have"
    what = f"{'its' if is_one else 'their'} CPU ranges, and calls of CUDA, MPI and UCX, are drawn"
    if not has_rows:
        what = "nothing else that a trace has by default was recorded"
    return f"{named} no GPU operations: {what} (`--show all` draws all else that reports hold)"


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


def extract_file(
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
    if not force and is_like_part(output):
        part = find_finished_part(path, shorten_path(path), output, options, nsys=nsys)
        if part is not None:
            return describe_part(path, output, part, is_new=False)
    is_host = False

    def make(sink: Sink) -> Part:
        """Extract the report.

        Without GPU operations and without a chosen content, its CPU ranges and calls are drawn.
        """
        nonlocal is_host
        part, drawing = draw_part(path, options, nsys=nsys)
        is_host = is_content_open(asked) and not any(
            isinstance(subtrack, SliceSubtrack) and count_rows(subtrack) for subtrack in drawing.subtracks
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
        part = write_part(output, make, force=True)
    else:
        with translate_errors(output):
            temporary = Path(tempfile.mkdtemp(dir=scratch)) / "part"
            part = write_part(temporary, make, force=True, named=output)
            os.replace(temporary, output)
    return replace(describe_part(path, output, part, is_new=True), is_host=is_host)


def describe_part(path: Path, output: Path, part: Part, *, is_new: bool) -> ExtractedPart:
    """Describe the part of a report, with all its frames."""
    return ExtractedPart(
        report=path,
        output=output,
        slices=part.encoded.slice_count,
        jobs=part.drawn_job_count,
        gpus=part.frames["devices"]["gpu"].n_unique(),
        is_new=is_new,
        row_counts=part.frames["row_counts"],
    )


def name_outputs(paths: Sequence[Path], output: Path | None) -> list[Path]:
    """Name the part of each report, and make the folder of several parts.

    Args:
        paths: The reports.
        output: A part, for one report; or a folder; None: the current one.

    Raises:
        OutputError: It is not a folder, or two reports share a name.
    """
    folder = Path() if output is None else output
    if output is not None and not output.is_dir():
        if len(paths) == 1:
            return [output]
        if output.exists():
            raise OutputError(
                f"cannot write {len(paths)} parts to `{output}`: it is not a folder",
                "name a folder with `-o`",
            )
        with translate_errors(output):
            output.mkdir(parents=True)
    outputs = [folder / (path.stem + SUFFIX) for path in paths]
    for number, target in enumerate(outputs):
        if target in outputs[:number]:
            first = paths[outputs.index(target)]
            raise OutputError(
                f"`{first}` and `{paths[number]}` would both be written to `{target}`",
                "extract them into two folders",
            )
    return outputs


def find_finished_part(
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
