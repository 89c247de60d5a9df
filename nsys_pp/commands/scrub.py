"""`nsys-pp scrub`: copies of reports, parts and traces that are safe to share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.metadata import version
from pathlib import Path

from nsys_pp.compose.part_files import name_outputs
from nsys_pp.errors import OptionError, OutputError
from nsys_pp.frames.short_repr import ShortRepr
from nsys_pp.read import is_part
from nsys_pp.scrubbing.parts import find_part_identities, scrub_part
from nsys_pp.scrubbing.pseudonyms import Identities, Pseudonyms, choose_pseudonyms
from nsys_pp.scrubbing.reports import ScrubbedReport, find_identities, scrub_report
from nsys_pp.scrubbing.traces import find_trace_identities, is_trace, scrub_trace
from nsys_pp.write.files import check_output


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScrubResult(ShortRepr):
    """Copies."""

    copies: dict[Path, Path]  # by original, in order
    removed: dict[Path, ScrubbedReport]  # contents that the copy of a report lacks, by original
    pseudonyms: dict[str, str]  # of names of machines and users, by original name


def scrub(
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    hosts: bool = False,
    users: bool = False,
    paths: bool = False,
    keep_tables: Sequence[str] = (),
    force: bool = False,
) -> ScrubResult:
    """Write copies that are safe to share.

    The copy of a report has the tables and columns that nsys-pp reads, and of its texts only those that analyses show. So it
    lacks the environment, command lines, strings that no event refers to, unknown tables, and free pages; all analyses have equal results. Values of
    variables with telling names (TOKEN, SECRET, ...) are removed from names of events, too. Its bytes are searched for
    all texts that it should lack before it appears. A part and a trace lack all this already.

    Args:
        inputs: Reports in SQLite, parts, traces of nsys-pp.
        output: The copy of one input; or a folder, where copies have the names of their originals.
        hosts: Replace host names, and ids of machines and GPUs, by pseudonyms: equal names have equal pseudonyms in all copies of a call.
        users: Replace user names in names of events and processes; of reports only.
        paths: Replace absolute paths in names of events and processes; of reports only.
        keep_tables: Other tables of reports to copy as they are, with a warning.
        force: Replace existing files.

    Raises:
        OptionError: `users` or `paths` with a part or a trace; or neither option changes it.
        ReportError: An input cannot be read.
        OutputError: A copy exists, or cannot be written.
    """
    sources = [Path(one) for one in ([inputs] if isinstance(inputs, str | Path) else inputs)]
    own_version = version("nsys-pp")
    if len(sources) == 1 and not Path(output).is_dir():
        check_output(Path(output), force=force, inputs=sources)
    for path in sources:
        _check_options(path, hosts=hosts, users=users, paths=paths)
    found = [_find_identities(path, own_version) for path in sources]
    names = reduce(Identities.joined, found, Identities())
    pseudonyms = choose_pseudonyms(names, hosts=hosts, users=users, paths=paths)
    copies = _name_copies(sources, Path(output), pseudonyms)
    for target in copies.values():
        check_output(target, force=force, inputs=sources)
    removed = {}
    for path, target in copies.items():
        if is_part(path):
            scrub_part(path, target, pseudonyms, version=own_version, force=force)
        elif is_trace(path):
            scrub_trace(path, target, pseudonyms, force=force)
        else:
            removed[path] = scrub_report(path, target, pseudonyms, keep_tables=keep_tables, force=force)
    return ScrubResult(copies=copies, removed=removed, pseudonyms={**pseudonyms.words})


def _check_options(path: Path, *, hosts: bool, users: bool, paths: bool) -> None:
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


def _name_copies(sources: Sequence[Path], output: Path, pseudonyms: Pseudonyms) -> dict[Path, Path]:
    """Name the copy of each input; names of files have pseudonyms, too."""
    if len(sources) == 1 and not output.is_dir():
        return {sources[0]: output}
    folder = name_outputs(sources, output)[0].parent
    copies: dict[Path, Path] = {}
    for path in sources:
        target = folder / pseudonyms.replace_words(path.name, with_short=True)
        if target in copies.values():
            raise OutputError(
                f"two copies would both be written to `{target}`", "scrub them into two folders"
            )
        copies[path] = target
    return copies
