"""Group parts of a node, a pod or a run: reports are extracted, parts are copied, one by one, into one file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.errors import OutputError
from nsys_pp.frames.part import SUFFIX, PartOptions
from nsys_pp.read import is_part
from nsys_pp.read.frame_archives import DAMAGES
from nsys_pp.read.part_damage import damaged_error
from nsys_pp.read.part_groups import is_like_part, list_group, open_part_file
from nsys_pp.run.batch import Batch
from nsys_pp.run.inputs import label_files
from nsys_pp.run.parts import (
    ExtractedPart,
    copy_part,
    describe_part,
    keep_finished,
    make_part,
    read_complete,
    settle_options,
)
from nsys_pp.write.files import check_output, translate_errors
from nsys_pp.write.part_groups import write_group
from nsys_pp.write.spool import make_scratch


class _Member(Struct, frozen=True, kw_only=True):
    """A part of a group, and the file that has its bytes until the group is written."""

    extracted: ExtractedPart
    stored: Path


def is_group(paths: Sequence[Path], output: Path | None) -> bool:
    """Return whether the parts of inputs are to be in one file."""
    return len(paths) > 1 and output is not None and output.suffix == SUFFIX and not output.is_dir()


def name_members(paths: Sequence[Path]) -> dict[Path, str]:
    """Name the part of each input in a group: like its file, with as many folders as distinguish it.

    Raises:
        OutputError: Two names are equal.
    """
    labels = label_files([Path(os.path.abspath(path)) for path in paths])
    names: dict[str, Path] = {}
    for path, label in zip(paths, labels, strict=True):
        # names of Linux are bytes, those of a zip are texts
        text = label.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        name = str(PurePosixPath(text.lstrip("/") + SUFFIX))
        if name in names:
            raise OutputError(
                f"`{names[name]}` and `{path}` would both be `{name}` in the group", "rename one of them"
            )
        names[name] = path
    return {path: name for name, path in names.items()}


def check_group(output: Path, names: Mapping[Path, str], *, force: bool) -> None:
    """Check that a group can be written, before any work is done: it replaces a group of the same parts, or with `force` any file.

    Raises:
        OutputError: It cannot be written, or an existing file has other parts, or is no group.
    """
    check_output(output, force=force or is_like_part(output), inputs=list(names))
    if force or not output.is_file():
        return
    old = list_group(output)
    if old is None and read_complete(output) is not None:
        raise OutputError(f"`{output}` exists, and is the part of one report", "add `--force` to replace it")
    lost = sorted({str(path.relative_to(output)) for path in old or ()} - {*names.values()})
    if lost:
        raise OutputError(
            f"`{output}` exists, and has `{lost[0]}`, which is not among the inputs",
            "write another file with `-o`, or add `--force` to replace it",
        )


def extract_group(
    batch: Batch, output: Path, asked: Mapping[str, Any], *, force: bool
) -> dict[Path, ExtractedPart]:
    """Write the parts of all inputs as one file.

    Parts of reports that the existing group has, and that would be made again to the byte, are kept. New ones are written next to the
    output first, so that processes can work on several; then all are copied in order of the inputs.

    Args:
        batch: Reports, parts and groups.
        output: The group.
        asked: Fields of `PartOptions`; None where open: as in the first part among the inputs.
        force: Make all parts again, and replace another file.

    Raises:
        ReportError: An input cannot be read, or a part was made with other options than asked for.
        OutputError: The group cannot be written, or would lose parts.
    """
    paths = batch.paths
    names = name_members(paths)
    check_group(output, names, force=force)
    with make_scratch(output) as scratch:
        began_ns = (
            scratch.stat().st_mtime_ns
        )  # by the clock of the file system; later changes of reports count as newer
        parts = [path for path in paths if is_part(path)]
        copy = partial(_copy_member, output=output, names=names, asked=asked, scratch=scratch)
        members = batch.map_locally("reading", parts, copy)
        options = settle_options(asked, next(iter(members), None))
        extract = partial(
            _extract_member,
            output=output,
            names=names,
            options=options,
            asked=asked,
            force=force,
            nsys=batch.nsys,
            scratch=scratch,
        )
        members |= batch.map("extracting", [path for path in paths if not is_part(path)], extract)
        ordered = {path: members[path] for path in paths if path in members}
        if not _is_finished(output, ordered):
            opened = [(names[path], _open_member(member.stored)) for path, member in ordered.items()]
            write_group(output, opened, force=True, changed_ns=began_ns)
    return {path: member.extracted for path, member in ordered.items()}


def _is_finished(output: Path, members: Mapping[Path, _Member]) -> bool:
    """Return whether the existing group has all parts already, in their order."""
    return list_group(output) == [member.stored for member in members.values()]


def _extract_member(
    path: Path,
    output: Path,
    names: Mapping[Path, str],
    options: PartOptions,
    asked: Mapping[str, Any],
    *,
    force: bool,
    nsys: str | None,
    scratch: Path,
) -> _Member:
    """Extract a report, unless the group has its part."""
    target = output / names[path]
    kept = keep_finished(path, target, options, force=force, nsys=nsys)
    if kept is not None:
        return _Member(extracted=kept, stored=target)
    stored = _name_new(scratch, output)
    made = make_part(path, stored, options, asked, nsys=nsys, named=output)
    return _Member(extracted=replace(made, output=target), stored=stored)


def _copy_member(
    path: Path, output: Path, names: Mapping[Path, str], asked: Mapping[str, Any], scratch: Path
) -> _Member:
    """Check a part; write a copy of less detail where that is asked for."""
    stored = _name_new(scratch, output)
    part = copy_part(path, stored, asked, only_changed=True, named=output)
    extracted = describe_part(path, output / names[path], part, is_new=True)
    return _Member(extracted=extracted, stored=stored if stored.stat().st_size else path)


def _name_new(scratch: Path, output: Path) -> Path:
    with translate_errors(output):
        handle, name = tempfile.mkstemp(dir=scratch, suffix=SUFFIX)
        os.close(handle)
    return Path(name)


def _open_member(path: Path) -> Callable[[], AbstractContextManager[IO[bytes]]]:
    @contextmanager
    def open_member() -> Iterator[IO[bytes]]:
        try:
            with open_part_file(path) as file:
                yield file
        except DAMAGES as error:
            raise damaged_error(path) from error

    return open_member
