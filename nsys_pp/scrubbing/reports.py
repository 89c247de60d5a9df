"""Scrubbed copies of reports."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from msgspec import Struct

from nsys_pp.errors import ReportError
from nsys_pp.frames.ids import strip_uuid
from nsys_pp.frames.raw import ALL_GROUPS, Group
from nsys_pp.read import read_report
from nsys_pp.scrubbing.database import assert_equal_frames, copy_tables, list_tables, write_database
from nsys_pp.scrubbing.original_texts import find_people, list_texts
from nsys_pp.scrubbing.pseudonyms import Identities, Pseudonyms
from nsys_pp.scrubbing.search import find_in, find_texts
from nsys_pp.scrubbing.unused_text import remove_unused, replace_texts
from nsys_pp.write.files import replace_file

_GROUPS: frozenset[Group] = ALL_GROUPS | {"metric_sums"}


def find_identities(path: Path) -> Identities:
    """Find the names of machines, GPUs and users in a report, and its secrets.

    Raises:
        ReportError: It cannot be read.
    """
    raw = read_report(path, need=frozenset())
    facts = raw["facts"].drop_nulls()
    values = {name: set(facts.filter(pl.col("name") == name)["value"]) for name in facts["name"].unique()}
    ids = values.get("hardware_id", set()) | values.get("system_id", set())
    uuids = pl.concat([raw["gpus"]["uuid"], raw["cuda_devices"]["uuid"]]).drop_nulls()
    return find_people(path).joined(
        Identities(
            hosts=frozenset(values.get("hostname", set())),
            # a process namespace, which is no machine's own
            machine_ids=frozenset(value for value in ids if not value.startswith("pid:")),
            uuids=frozenset(strip_uuid(uuid) for uuid in uuids),
        )
    )


class ScrubbedReport(Struct, frozen=True):
    """Contents of a report that its copy lacks."""

    text_count: int  # distinct texts
    tables: list[str]  # in order of their names


def scrub_report(
    path: Path, output: Path, pseudonyms: Pseudonyms, *, keep_tables: Sequence[str] = (), force: bool
) -> ScrubbedReport:
    """Write a copy of a report with the tables, columns and texts that analyses read, and no others.

    Args:
        path: A SQLite export, or an exported folder of tables.
        output: The copy.
        pseudonyms: Replacement of names.
        keep_tables: Other tables to copy as they are.
        force: Replace an existing file.

    Raises:
        ReportError: The report cannot be read, or the copy would differ from what was to be written.
        OutputError: The output exists, or cannot be written.
    """
    raw = remove_unused(read_report(path, need=_GROUPS))
    raw.release("generic_events")  # with texts of all kinds
    raw = replace_texts(raw, pseudonyms)
    with replace_file(output, force=force) as target:
        write_database(target, raw)
        assert_equal_frames(path, raw, read_report(target, need=_GROUPS))
        others = sorted({*list_tables(path)} - {*list_tables(target)})
        _copy_others(path, target, [name for name in keep_tables if name in others])
        return ScrubbedReport(
            text_count=_check_texts(path, target), tables=[name for name in others if name not in keep_tables]
        )


def _copy_others(path: Path, target: Path, names: Sequence[str]) -> None:
    """Copy tables as they are, with a warning."""
    if not names:
        return
    copy_tables(path, target, names)
    listed = ", ".join(f"`{name}`" for name in names)
    warnings.warn(f"`{path}`: {listed} copied as they are, with all their texts", stacklevel=4)


def _check_texts(path: Path, copy: Path) -> int:
    """Check that the bytes of a copy hold no text that it should lack; return the number of these."""
    kept = list_texts(copy)
    removed = list_texts(path) - kept
    found = find_texts(copy, removed)
    # a removed text may be part of a kept one
    leaked = found - find_in(b"\0".join(sorted(kept)), sorted(found)) if found else found
    if leaked:
        raise ReportError(
            f"the copy of `{path}` would hold {len(leaked)} texts that were to be removed",
            "please report this",
        )
    return len(removed)
