"""`nsys-pp scrub`: copies of reports that are safe to share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from pathlib import Path

from nsys_pp.errors import OutputError, ReportError
from nsys_pp.frames.conform import ShortRepr
from nsys_pp.frames.part import SUFFIX as PART_SUFFIX
from nsys_pp.output.files import check_file_output, check_output, make_folders, replace_file
from nsys_pp.read import find_reports
from nsys_pp.read.arrow import is_table_directory
from nsys_pp.read.export import export_report, is_unexported
from nsys_pp.read.readers import REPORT_SUFFIXES, name_origin
from nsys_pp.run.options import Inputs, parse_inputs
from nsys_pp.scrubbing.pseudonyms import Identities, Pseudonyms, choose_pseudonyms
from nsys_pp.scrubbing.reports import ScrubbedReport, find_identities, scrub_report
from nsys_pp.units import format_count

# Of outputs of nsys-pp, which have no environment, command lines or unused texts.
_SCRUBBED_SUFFIXES = (PART_SUFFIX, ".pftrace", ".perfetto-trace", ".json", ".json.gz")


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

    The copy of a report has the tables and columns that nsys-pp reads, and of its texts only those that
    analyses show. So it lacks the environment, command lines, strings that no event refers to, unknown
    tables, and free pages; all analyses have equal results. Values of variables with telling names (TOKEN,
    SECRET, ...) are removed from names of events, too. Its bytes are searched for all texts that it should
    lack before it appears. Parts and traces lack all this already.

    Args:
        inputs: Reports, folders of reports, or glob patterns. Copies are in SQLite.
        output: The copy of one file, or a folder, where copies have the names of their originals
            (`list_copies`).
        hosts: Replace host names, and ids of machines and GPUs, by pseudonyms: equal names have equal
            pseudonyms in all copies of a call.
        users: Replace user names in names of events and processes.
        paths: Replace absolute paths in names of events and processes.
        keep_tables: Other tables of reports to copy as they are, with a warning.
        nsys: Program that exports `.nsys-rep` files.
        force: Replace existing files.

    Raises:
        ReportError: An input cannot be read, or is no report.
        NsysNotFoundError: A `.nsys-rep` file is to be exported, and nsys was not found.
        OutputError: A copy exists, or cannot be written.
    """
    named = parse_inputs(inputs)
    names = list_copies(named, output=Path(output))
    sources = list(names)
    is_file = (
        len(named) == len(sources) == 1
        and not _is_folder_of_reports(Path(named[0]))
        and not Path(output).is_dir()
    )
    if is_file:
        check_output(Path(output), force=force, inputs=sources)
    for path in sources:
        if path.name.endswith(_SCRUBBED_SUFFIXES):
            raise ReportError(
                f"`{path}` is no report, and `scrub` copies reports alone",
                "scrub its reports, and extract or merge the copies",
            )
    read_from = {path: export_report(path, nsys=nsys) if is_unexported(path) else path for path in sources}
    found = (find_identities(report, users=users) for report in read_from.values())
    identities = reduce(Identities.joined, found, Identities())
    pseudonyms = choose_pseudonyms(identities, hosts=hosts, users=users, paths=paths)
    copies = {sources[0]: Path(output)}
    if not is_file:
        folder = Path(output)
        if not folder.is_dir() and (folder.exists() or folder.name.endswith(REPORT_SUFFIXES)):
            raise OutputError(
                f"cannot write copies of {format_count(len(names), 'file')} to `{folder}`:"
                " it is not a folder",
                "name a folder with `-o`",
            )
        copies = _name_copies(names, folder, pseudonyms)
    removed = {}
    with make_folders({target.parent for target in copies.values()}), ExitStack() as all_or_none:
        for target in copies.values():
            check_output(target, force=force, inputs=sources)
            check_file_output(target, "a copy")
        for path, target in copies.items():
            new = all_or_none.enter_context(replace_file(target, force=force))
            removed[path] = scrub_report(read_from[path], new, pseudonyms, keep_tables=keep_tables)
    return ScrubResult(copies=copies, removed=removed, pseudonyms={**pseudonyms.words})


def list_copies(inputs: Sequence[str | Path], *, output: Path) -> dict[Path, Path]:
    """List the files that inputs name, each with the name of its copy in a folder.

    A file in a folder keeps its path below that folder, and a match of a pattern the one below the part
    without wildcards; another file keeps its name alone. Where names would be equal, all have as many more
    folders as needed.

    Args:
        inputs: Files, folders and patterns.
        output: Folder of the copies: where it is inside a folder of `inputs`, copies of an earlier call are
            no inputs.

    Raises:
        ReportError: An input does not exist, a folder or pattern has no report, or a file is named twice.
    """
    find_reports(inputs)  # refuses a file that is named twice
    depths: dict[Path, int] = {}
    for named in inputs:
        root = _find_root(Path(named))
        found = find_reports([named])
        if root is not None and _is_inside(output, root):
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


def _find_root(named: Path) -> Path | None:
    """Find the root of the paths that copies keep; None: they keep their names."""
    if _is_folder_of_reports(named):
        return named
    if named.exists() or not any(character in str(named) for character in "*?["):
        return None
    return Path(*takewhile(lambda part: not any(character in part for character in "*?["), named.parts))


def _is_folder_of_reports(path: Path) -> bool:
    return path.is_dir() and not is_table_directory(path)


def _name_copies(names: Mapping[Path, Path], output: Path, pseudonyms: Pseudonyms) -> dict[Path, Path]:
    """Name the copy of each input in a folder; names of files and folders have pseudonyms, too.

    Raises:
        OutputError: Two copies have one name.
    """
    copies: dict[Path, Path] = {}
    for path, name in names.items():
        target = output.joinpath(*(pseudonyms.replace_words(part, with_short=True) for part in name.parts))
        if target in copies.values():
            raise OutputError(
                f"two copies would both be written to `{target}`", "scrub each into a folder of its own"
            )
        copies[path] = target
    return copies
