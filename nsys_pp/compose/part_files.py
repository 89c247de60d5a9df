"""Parts as files: their names, and whether they are there already."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from nsys_pp.errors import OutputError, ReportError
from nsys_pp.frames.part import BLOCKS_MEMBER, SUFFIX, Part, PartOptions
from nsys_pp.model.fingerprint import take_fingerprint
from nsys_pp.read import open_part_blocks, read_part, read_report
from nsys_pp.write.files import check_output, translate_errors

_FIRST_NAME = 30  # where a zip has the name of its first member, APPNOTE.TXT 4.3.7
_PIECE_BYTES = 1 << 20


def name_outputs(paths: Sequence[Path], output: Path | None) -> list[Path]:
    """Name the part of each report; makes the folder of several.

    Args:
        paths: The reports.
        output: A part, for one report; or a folder; None is the current one.

    Raises:
        OutputError: It is no folder, or two reports have one name.
    """
    folder = Path() if output is None else output
    if output is not None and not output.is_dir():
        if len(paths) == 1:
            return [output]
        if output.exists() or output.suffix == SUFFIX:
            raise OutputError(
                f"cannot write {len(paths)} parts to `{output}`: it is no folder", "name a folder with `-o`"
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
    """Refuse what cannot be written, or is there and no part, before any work is done.

    Raises:
        OutputError: That is so.
    """
    check_output(target, force=force or is_like_part(target), inputs=[report])


def is_like_part(path: Path) -> bool:
    """Say whether a file begins as parts do, whatever became of the rest."""
    name = BLOCKS_MEMBER.encode()
    try:
        with path.open("rb") as file:
            start = file.read(_FIRST_NAME + len(name))
    except OSError:
        return False
    return start.startswith(b"PK\x03\x04") and start.endswith(name)


def find_finished(
    report: Path, source: Path, target: Path, options: PartOptions, *, nsys: str | None
) -> Part | None:
    """Find the part that an extraction would make again, to the byte, and need not.

    It is whole, made by this version with these options of this recording, and not older than it.

    Args:
        report: The report.
        source: How a part of it calls it.
        target: Where its part is to be; begins as parts do.
        options: What it is to show.
        nsys: The nsys that exports `.nsys-rep` files.

    Returns:
        The part without frames that tell what is drawn; None where it is to be made again.

    Raises:
        OutputError: There is another report's part.
        ReportError: The report cannot be read.
    """
    part = _read_whole(target)
    if part is None:
        return None
    if part.encoded.report_id != take_fingerprint(read_report(report, need=frozenset(), nsys=nsys)):
        if part.source != source:
            raise OutputError(
                f"`{target}` exists, and is the part of another report, `{part.source}`",
                "write into another folder with `-o`, or add `--force` to replace it",
            )
        return None
    if part.made_by != version("nsys-pp") or part.options != options:
        return None
    return part if _made_ns(target) >= _made_ns(report) else None


def _read_whole(path: Path) -> Part | None:
    """Read a part with all its bytes, which are checked; None where it is damaged or of another format."""
    try:
        part = read_part(path, version=version("nsys-pp"))
        with open_part_blocks(path) as blocks:
            while blocks.read(_PIECE_BYTES):
                pass
    except ReportError:
        return None
    return part


def _made_ns(path: Path) -> int:
    """Tell when a report was last written; a folder of tables is as old as the youngest of them."""
    files = [path, *path.iterdir()] if path.is_dir() else [path]
    return max(file.stat().st_mtime_ns for file in files)
