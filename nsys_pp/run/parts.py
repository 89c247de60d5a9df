"""Content that is drawn of reports without GPU operations, where the user chose none."""

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
from nsys_pp.frames.choices import SHOW_KINDS
from nsys_pp.frames.part import SUFFIX, Part, PartOptions
from nsys_pp.model.identity import compute_fingerprint
from nsys_pp.read import check_part_blocks, read_part, read_report
from nsys_pp.read.part_damage import is_like_part
from nsys_pp.run.report import extract_report, nothing_to_draw_error, redraw_report, shorten_path
from nsys_pp.run.view import Window
from nsys_pp.training.report.job_ranges import list_job_ranges
from nsys_pp.write.files import check_output, translate_errors
from nsys_pp.write.parts import write_part
from nsys_pp.write.perfetto.trace import Sink, encode_drawing

OF_HOSTS = ("mpi", "ucx")
# texts of the profiler and of unknown tables are drawn only if asked for: they may have secrets
OF_RUN = tuple(kind for kind in SHOW_KINDS if kind not in ("profiler", "other"))
"""Kinds of data on request that are drawn where no report of a run has GPU operations."""
_CONTENT = ("detail", "show", "flows")


def is_content_open(asked: Mapping[str, Any]) -> bool:
    """Return whether no level of detail and no kind of data is chosen; `asked` has fields of `PartOptions`, None where open."""
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
        scratch: Folder to write the part in before it is moved: this process may be killed. None: the output's.

    Raises:
        ReportError: The report cannot be read, or has nothing to draw.
        OutputError: The output is another report's part, or cannot be written.
    """
    output = outputs[path]
    if (kept := keep_finished(path, output, options, force=force, nsys=nsys)) is not None:
        return kept
    is_file = output.is_file() or not output.exists()

    if scratch is None or output.is_symlink() or not is_file:
        return make_part(path, output, options, asked, nsys=nsys)
    with translate_errors(output):
        temporary = Path(tempfile.mkdtemp(dir=scratch)) / "part"
        made = make_part(path, temporary, options, asked, nsys=nsys, named=output)
        os.replace(temporary, output)
    return made


def keep_finished(
    path: Path, output: Path, options: PartOptions, *, force: bool, nsys: str | None
) -> ExtractedPart | None:
    """Return the existing part of a report, as in `find_finished_part`; None where it is to be made, always with `force`."""
    if force or not is_like_part(output):
        return None
    part = find_finished_part(path, shorten_path(path), output, options, nsys=nsys)
    return None if part is None else describe_part(path, output, part, is_new=False)


def make_part(
    path: Path,
    output: Path,
    options: PartOptions,
    asked: Mapping[str, Any],
    *,
    nsys: str | None,
    named: Path | None = None,
) -> ExtractedPart:
    """Extract a report into a file, which is replaced; errors, which name `named`, and other arguments as in `extract_file`.

    Of a report without GPU operations the CPU ranges and calls are drawn, as `merge` draws them, where no other content is asked for.
    """
    is_host = False

    def make(sink: Sink) -> Part:
        part = extract_report(path, options, sink, nsys=nsys)
        if not part.encoded.slice_count and is_content_open(asked):
            raise _WithoutGpusError(part)
        return _check_drawn(part, path)

    def make_host(sink: Sink) -> Part:
        jobs = list_job_ranges(part.frames["jobs"])
        content = replace(options, detail="cpu", show=OF_HOSTS)
        drawing = next(redraw_report(path, [(content, Window())], nsys=nsys, job_ranges=jobs))
        return _check_drawn(replace(part, encoded=encode_drawing(drawing, sink, is_packed=True)), path)

    try:
        part = write_part(output, make, force=True, named=named)
    except _WithoutGpusError as found:
        part, is_host = found.part, True
    if is_host:
        part = write_part(output, make_host, force=True, named=named)
    return replace(describe_part(path, named or output, part, is_new=True), is_host=is_host)


class _WithoutGpusError(Exception):
    """A drawing without slices, whose blocks are not kept."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.part = part


def _check_drawn(part: Part, path: Path) -> Part:
    """Return the part; raise an error where nothing is drawn of it."""
    if not part.encoded.event_count and not part.drawn_job_count:
        raise nothing_to_draw_error(f"`{path}` has nothing to draw")
    return part


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


def check_target(report: Path, target: Path, *, force: bool) -> None:
    """Check that a part can be written, before any work is done.

    Raises:
        OutputError: It cannot be written, or an existing file is not a part.
    """
    check_output(target, force=force or is_like_part(target), inputs=[report])


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
    part = read_complete(target)
    if part is None:
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
    return part if _changed_ns(target) >= _changed_ns(report) else None


def read_complete(path: Path) -> Part | None:
    """Read a part and check all its bytes; None where it is damaged or of another format."""
    try:
        part = read_part(path, version=version("nsys-pp"))
        check_part_blocks(path)
    except ReportError:
        return None
    return part


def _changed_ns(path: Path) -> int:
    """Return the time of the last change of a report or part; a folder of tables is as new as its newest file."""
    files = [path, *path.iterdir()] if path.is_dir() else [path]
    return max(file.stat().st_mtime_ns for file in files)
