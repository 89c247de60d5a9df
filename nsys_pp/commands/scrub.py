"""`nsys-pp scrub`: copies of reports, parts and traces that are safe to share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path

from nsys_pp.errors import OptionError, OutputError, ReportError
from nsys_pp.frames.choices import CLOCKS_SUFFIX
from nsys_pp.frames.conform import ShortRepr
from nsys_pp.frames.part import SUFFIX as PART_SUFFIX
from nsys_pp.read import find_reports, is_part
from nsys_pp.read.arrow import is_table_directory
from nsys_pp.read.export import export_report, is_unexported
from nsys_pp.read.find import name_origin
from nsys_pp.read.part_groups import open_part_file
from nsys_pp.read.readers import REPORT_SUFFIXES
from nsys_pp.run.options import Inputs, parse_inputs
from nsys_pp.run.part_groups import is_group
from nsys_pp.scrubbing.parts import find_part_identities, scrub_part
from nsys_pp.scrubbing.pseudonyms import Identities, Pseudonyms, choose_pseudonyms
from nsys_pp.scrubbing.reports import ScrubbedReport, find_identities, scrub_report
from nsys_pp.scrubbing.traces import SUFFIXES as TRACE_SUFFIXES
from nsys_pp.scrubbing.traces import find_trace_identities, is_trace, scrub_trace
from nsys_pp.units import format_count
from nsys_pp.write.files import check_output, translate_errors
from nsys_pp.write.part_groups import write_group
from nsys_pp.write.spool import make_scratch

_SUFFIXES = (*REPORT_SUFFIXES, PART_SUFFIX, *TRACE_SUFFIXES)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScrubResult(ShortRepr):
    """Copies."""

    copies: dict[Path, Path]  # by original, in order
    removed: dict[Path, ScrubbedReport]  # contents that the copy of a report lacks, by original
    pseudonyms: dict[str, str]  # of names of machines and users, by original name


def scrub(
    inputs: Inputs,
    output: str | Path,
    *,
    hosts: bool = False,
    users: bool = False,
    paths: bool = False,
    keep_tables: Sequence[str] = (),
    nsys: str | Path | None = None,
    force: bool = False,
) -> ScrubResult:
    """Write copies that are safe to share.

    The copy of a report has the tables and columns that nsys-pp reads, and of its texts only those that analyses show. So it
    lacks the environment, command lines, strings that no event refers to, unknown tables, and free pages; all analyses have equal results. Values of
    variables with telling names (TOKEN, SECRET, ...) are removed from names of events, too. Its bytes are searched for
    all texts that it should lack before it appears. A part and a trace lack all this already.

    Args:
        inputs: Reports, parts, traces of nsys-pp, folders of reports or parts, or glob patterns. Copies of reports are in
            SQLite.
        output: The copy of one file; of several parts, a group part; or a folder, where copies have the names of their originals (`list_copies`).
        hosts: Replace host names, and ids of machines and GPUs, by pseudonyms: equal names have equal pseudonyms in all copies of a call.
        users: Replace user names in names of events and processes; of reports only.
        paths: Replace absolute paths in names of events and processes; of reports only.
        keep_tables: Other tables of reports to copy as they are, with a warning.
        nsys: Program that exports `.nsys-rep` files.
        force: Replace existing files.

    Raises:
        OptionError: `users` or `paths` with a part or a trace; or neither option changes it.
        ReportError: An input cannot be read.
        NsysNotFoundError: A `.nsys-rep` file is to be exported, and nsys was not found.
        OutputError: A copy exists, or cannot be written.
    """
    named = parse_inputs(inputs)
    names = list_copies(named, output=Path(output))
    sources = list(names)
    own_version = version("nsys-pp")
    is_one_file = len(named) == len(sources) == 1 and not _is_folder_of_reports(Path(named[0]))
    is_file = is_one_file and not Path(output).is_dir()
    if is_file:
        check_output(Path(output), force=force, inputs=sources)
    for path in sources:
        _check_options(path, hosts=hosts, users=users, paths=paths)
    read_from = {path: export_report(path, nsys=nsys) if is_unexported(path) else path for path in sources}
    found = [_find_identities(path, own_version) for path in read_from.values()]
    identities = reduce(Identities.joined, found, Identities())
    pseudonyms = choose_pseudonyms(identities, hosts=hosts, users=users, paths=paths)
    removed = {}

    def write(copies: Mapping[Path, Path], group: Path | None = None) -> None:
        for target in copies.values():
            check_output(target, force=force, inputs=sources)
        for path, target in copies.items():
            if is_part(path):
                scrub_part(path, target, pseudonyms, version=own_version, force=force, named=group)
            elif is_trace(path):
                scrub_trace(path, target, pseudonyms, force=force)
            else:
                original = read_from[path]
                removed[path] = scrub_report(
                    original, target, pseudonyms, keep_tables=keep_tables, force=force
                )

    if is_group(sources, Path(output)) and all(map(is_part, sources)):
        copies = _write_group(names, Path(output), pseudonyms, write, force=force)
    else:
        copies = {sources[0]: Path(output)}
        if not is_file:
            _check_folder(names, Path(output))
            copies = _name_copies(names, Path(output), pseudonyms)
            _make_folders(copies)
        write(copies)
    return ScrubResult(copies=copies, removed=removed, pseudonyms={**pseudonyms.words})


def _write_group(
    names: Mapping[Path, Path],
    output: Path,
    pseudonyms: Pseudonyms,
    write: Callable[[Mapping[Path, Path], Path], None],
    *,
    force: bool,
) -> dict[Path, Path]:
    """Write the copies of parts as one group part; return the path of each copy in it."""
    check_output(output, force=force, inputs=list(names))
    members = _name_copies(names, output, pseudonyms)
    below = {path: member.relative_to(output) for path, member in members.items()}
    with make_scratch(output) as scratch:
        copies = {path: scratch / name for path, name in below.items()}
        _make_folders(copies, named=output)
        write(copies, output)
        opened = [(below[path].as_posix(), partial(open_part_file, copy)) for path, copy in copies.items()]
        write_group(output, opened, force=force)
    return members


def _check_options(path: Path, *, hosts: bool, users: bool, paths: bool) -> None:
    if path.suffix == CLOCKS_SUFFIX:
        raise ReportError(
            f"`{path}` has the clocks of a run, and `scrub` copies reports, parts and traces",
            "scrub the reports or parts of the run, and write the clocks of the copies with `nsys-pp align -o`",
        )
    if not (is_part(path) or is_trace(path)):
        return
    for name, is_set in (("users", users), ("paths", paths)):
        if is_set:
            raise OptionError(
                name,
                f"`--{name}` needs reports: names of `{path}` are encoded",
                "scrub its reports, and extract or merge the copies",
            )
    if not hosts:
        raise OptionError(
            "hosts",
            f"`{path}` has no environment, command lines or unused texts; without `--hosts` the copy would be equal",
            "add `--hosts`, or share it as it is",
        )


def _find_identities(path: Path, own_version: str) -> Identities:
    if is_part(path):
        return find_part_identities(path, version=own_version)
    return find_trace_identities(path) if is_trace(path) else find_identities(path)


def list_copies(inputs: Sequence[str | Path], *, output: Path | None = None) -> dict[Path, Path]:
    """List the files that inputs name, each with the name of its copy in a folder.

    A file in a folder keeps its path below that folder, and a match of a pattern the one below the part without
    wildcards; another file keeps its name alone. Where names would be equal, all have as many more folders as needed.

    Args:
        inputs: Files, folders and patterns. Of a folder, reports are listed; parts only where it has no reports.
        output: Folder of the copies: where it is inside a folder of `inputs`, copies of an earlier call are no inputs.

    Raises:
        ReportError: An input does not exist, a folder or pattern has no report, or a file is named twice.
    """
    find_reports(inputs, with_parts=True)  # refuses a file that is named twice
    depths: dict[Path, int] = {}
    for named in inputs:
        root = _find_root(Path(named))
        found = _find(named)
        if output is not None and root is not None and _is_inside(output, root):
            found = [path for path in found if not _is_inside(path, output)]
            if not found:
                raise ReportError(f"`{named}` holds no report, only copies in `{output}`", "name its reports")
        for path in found:
            below = path.relative_to(root).parts if root is not None else path.parts[-1:]
            depths.setdefault(path, len(below))
    whole = {path: Path(os.path.abspath(path)).parts[1:] for path in depths}
    for more in range(max(map(len, whole.values()), default=0) + 1):
        names = {
            path: Path(*whole[path][-(depth + more) :]).with_name(_name_copy(path))
            for path, depth in depths.items()
        }
        if len({*names.values()}) == len(names):
            break
    return names


def _name_copy(path: Path) -> str:
    """Name the copy of a file: as it, or of a report in another form as its export to SQLite.

    >>> _name_copy(Path("run/rank0.nsys-rep"))
    'rank0.sqlite'
    """
    return f"{name_origin(path)}.sqlite" if is_table_directory(path) or is_unexported(path) else path.name


def _is_inside(path: Path, folder: Path) -> bool:
    """Return whether a path is below a folder, links resolved."""
    inner, outer = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    return inner != outer and inner.is_relative_to(outer)


def _find(named: str | Path) -> list[Path]:
    """Find the reports of an input; parts of a folder where it has no reports."""
    try:
        return find_reports([named], with_parts=False)
    except ReportError:
        return find_reports([named], with_parts=True)


def _find_root(named: Path) -> Path | None:
    """Find the root of the paths that copies keep; None: they keep their names."""
    if _is_folder_of_reports(named):
        return named
    if named.exists() or not any(character in str(named) for character in "*?["):
        return None
    fixed = takewhile(lambda part: not any(character in part for character in "*?["), named.parts)
    return Path(*fixed)


def _is_folder_of_reports(path: Path) -> bool:
    return path.is_dir() and not is_table_directory(path)


def _name_copies(names: Mapping[Path, Path], output: Path, pseudonyms: Pseudonyms) -> dict[Path, Path]:
    """Name the copy of each input in a folder or group; names of files and folders have pseudonyms, too.

    Raises:
        OutputError: Two copies have one name.
    """
    copies: dict[Path, Path] = {}
    for path, name in names.items():
        parts = [pseudonyms.replace_words(part, with_short=True) for part in name.parts]
        target = output.joinpath(*parts)
        if target in copies.values():
            raise OutputError(
                f"two copies would both be written to `{target}`", "scrub them into two folders"
            )
        copies[path] = target
    return copies


def _check_folder(names: Mapping[Path, Path], output: Path) -> None:
    if not output.is_dir() and (output.exists() or output.name.endswith(_SUFFIXES)):
        raise OutputError(
            f"cannot write copies of {format_count(len(names), 'file')} to `{output}`: it is not a folder",
            "name a folder with `-o`",
        )


def _make_folders(copies: Mapping[Path, Path], *, named: Path | None = None) -> None:
    for folder in {target.parent for target in copies.values()}:
        with translate_errors(named or folder):
            folder.mkdir(parents=True, exist_ok=True)
