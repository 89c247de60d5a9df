"""Content that is drawn of reports without GPU operations, where the user chose none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
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
from nsys_pp.read import check_part_blocks, is_part, open_part_blocks, read_part, read_report
from nsys_pp.read.part_groups import find_stored, is_like_part, list_group, open_part_file
from nsys_pp.read.parts import PackedFrames
from nsys_pp.run.report import extract_report, nothing_to_draw_error, redraw_report, shorten_path
from nsys_pp.run.view import FRAME, Window
from nsys_pp.training.report.job_ranges import list_job_ranges
from nsys_pp.write.files import check_output, replace_file, translate_errors
from nsys_pp.write.parts import write_part
from nsys_pp.write.perfetto.trace import Sink, encode_drawing
from nsys_pp.write.trace.tracks import is_busy_track

_OF_HOSTS = ("mpi", "ucx")
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


def draw_run(options: PartOptions) -> PartOptions:
    """Return the options of reports of a run without GPU operations."""
    return replace(options, detail="cpu", show=OF_RUN)


def draw_host(options: PartOptions) -> PartOptions:
    """Return the options of a report without GPU operations, in a run with some."""
    return replace(options, detail="cpu", show=_OF_HOSTS)


def describe_hosts(paths: Sequence[Path], *, has_rows: bool) -> str:
    """Describe the content that is drawn of reports without GPU operations; nothing without rows."""
    is_one = len(paths) == 1
    named = f"`{paths[0]}` has" if is_one else f"{len(paths):,} reports (`{paths[0]}` and others) have"
    what = f"{'its' if is_one else 'their'} CPU ranges, and calls of CUDA, MPI and UCX, are drawn"
    if not has_rows:
        what = "nothing else that a trace has by default was recorded"
    return f"{named} no GPU operations: {what} (`--show all` draws all else that reports hold)"


_PIECE_BYTES = 1 << 20
_LEAST: Mapping[str, Any] = {"detail": "jobs", "flows": False, "show": ()}


def settle_options(asked: Mapping[str, Any], part: Path | None) -> PartOptions:
    """Return the options of reports: the requested ones, else the options of a part among the inputs.

    Args:
        asked: Fields of `PartOptions`; None where open.
        part: A part among the inputs, if there is one.

    Raises:
        ReportError: The part cannot be read.
    """
    explicit = {name: value for name, value in asked.items() if value is not None}
    usual = PartOptions() if part is None else read_part(part, (), version=version("nsys-pp")).options
    return replace(usual, **explicit)


def copy_part(
    path: Path,
    output: Path,
    asked: Mapping[str, Any],
    *,
    only_changed: bool = False,
    named: Path | None = None,
) -> Part:
    """Check a part, and copy it; with detail "jobs", without the blocks of its trace.

    Rows of jobs, steps and messages are no blocks: a copy of a part with jobs is the part that `extract --detail jobs` makes of the
    report, to the byte. A copy of a part without jobs has the load of its GPUs, and not the outermost ranges of the report.

    Args:
        path: The part.
        output: The copy.
        asked: Fields of `PartOptions` that it is to have; None where open.
        only_changed: Write no copy that would be equal.
        named: Output that errors name, as in `replace_file`.

    Returns:
        The copy.

    Raises:
        ReportError: It cannot be read, is damaged, or was made with other options.
        OutputError: The copy cannot be written.
    """
    part = read_part(path, version=version("nsys-pp"))
    check_part_blocks(path)
    explicit = {name: value for name, value in asked.items() if value is not None}
    if explicit.get("detail") == "jobs" and part.options.detail != "jobs":
        _check_options(replace(part, options=replace(part.options, **_LEAST)), path, explicit)
        packed = part.frames.packed if isinstance(part.frames, PackedFrames) else None
        build = partial(_drop_trace, part, path)
        return write_part(output, build, force=True, packed=packed, named=named)
    _check_options(part, path, explicit)
    if not only_changed:
        with (
            replace_file(output, force=True, named=named) as new,
            new.open("wb") as copy,
            open_part_file(path) as file,
        ):
            shutil.copyfileobj(file, copy, _PIECE_BYTES)
    return part


def _drop_trace(part: Part, path: Path, sink: Sink) -> Part:
    """Drop the blocks of a part; without jobs, the load of its GPUs remains, which an overview shows in their place."""
    has_jobs = part.drawn_job_count > 0
    has_rows = FRAME in part.frames  # of processes: they show messages of MPI, which are drawn of a frame
    kept = {
        subtrack.track
        for subtrack in part.encoded.subtracks
        if is_busy_track(subtrack.track) and not has_jobs
    }
    above = {track[:length] for track in kept for length in range(1, len(track))}
    if kept:
        with open_part_blocks(path) as blocks:
            for subtrack in part.encoded.subtracks:
                left = subtrack.size_bytes
                while left and (data := blocks.read(min(left, _PIECE_BYTES))):
                    left -= len(data)
                    if subtrack.track in kept:
                        sink.write(data)
    encoded = replace(
        part.encoded,
        base_ns=part.encoded.base_ns if kept else 0,
        tracks=[
            track
            for track in part.encoded.tracks
            if track.path in kept | above or (has_rows and len(track.path) == 1)
        ],
        subtracks=[subtrack for subtrack in part.encoded.subtracks if subtrack.track in kept],
        is_packed=True,
    )
    return replace(part, options=replace(part.options, **_LEAST), encoded=encoded)


def _check_options(part: Part, path: Path, explicit: Mapping[str, Any]) -> None:
    wanted = replace(part.options, **explicit)
    if wanted != part.options:
        raise ReportError(
            f"`{path}` was made with `{part.options.words()}`, and `{wanted.words()}` is asked for",
            "extract its report again; of a part, only `--detail jobs` can be made",
        )


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
    """Write the part of a report, unless it exists; or the copy of a part.

    Args:
        path: The report or part.
        outputs: Parts by report.
        options: Content of the part of a report.
        asked: Fields of `PartOptions` that the copy of a part is to have; None where open.
        force: Make it again.
        nsys: Program that exports `.nsys-rep` files.
        scratch: Folder to write the part in before it is moved: this process may be killed. None: the output's.

    Raises:
        ReportError: The report cannot be read, or has nothing to draw.
        OutputError: The output is another report's part, or cannot be written.
    """
    output = outputs[path]
    if is_part(path):
        return describe_part(path, output, copy_part(path, output, asked), is_new=True)
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
        drawing = redraw_report(path, draw_host(options), nsys=nsys, job_ranges=jobs, window=Window())
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
    """Name the part of each report, and make the folder of several parts; several in one file are a group (`part_groups`).

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
        OutputError: It cannot be written, or an existing file is not a part, or is a group of parts, or of a part the part of
            another report.
    """
    check_output(target, force=force or is_like_part(target), inputs=[report])
    if force or not is_like_part(target):
        return
    if (group := list_group(target)) is not None:
        raise OutputError(
            f"`{target}` exists, and is a group of {len(group):,} parts", "add `--force` to replace it"
        )
    old = read_complete(target) if is_part(report) else None
    if old is not None and old.source != read_part(report, (), version=version("nsys-pp")).source:
        raise OutputError(
            f"`{target}` exists, and is the part of another report, `{old.source}`",
            "write into another folder with `-o`, or add `--force` to replace it",
        )


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
    files = [path, *path.iterdir()] if path.is_dir() else [find_stored(path)]
    return max(file.stat().st_mtime_ns for file in files)
