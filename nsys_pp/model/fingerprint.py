"""Fingerprint of a recording: equal for all its exports and copies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from nsys_pp.frames.raw import RawReport

_FACTS = ("hostname", "hardware_id", "system_id")
_TABLES = {  # whole rows of tables that are always read
    "session": ("utc_epoch", "system_clock"),
    "capture": ("duration",),
    "launcher": ("name", "value"),
    "gpus": ("uuid", "bus_location"),
    "contexts": ("host", "vm", "pid", "device", "context"),
    "streams": ("host", "vm", "pid", "context", "stream"),
    "processes": ("process",),
    "thread_names": ("thread",),
    "ranks": ("thread", "rank"),
}
_COUNTED = ("calls", "kernels", "copies", "sets")


def compute_fingerprint(raw: RawReport) -> int:
    """Hash the facts that identify a recording.

    These are its start and duration, machine, processes, threads, GPUs, contexts, streams, launcher variables, and
    the numbers of calls and operations. They depend neither on the time shift of an export and the name of the file
    nor on the groups that were read.

    Returns:
        64 bits, unsigned: equal for two exports of one recording, different for two recordings.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in _list_facts(raw):
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return int.from_bytes(digest.digest(), "big")


def _list_facts(raw: RawReport) -> Iterator[str]:
    names, values = (raw["facts"][column].to_list() for column in ("name", "value"))
    facts = [(name, value) for name, value in zip(names, values, strict=True) if name in _FACTS]
    yield from _format_rows("facts", facts)
    for table, columns in _TABLES.items():
        rows = raw[table]
        yield from _format_rows(table, zip(*(rows[column].to_list() for column in columns), strict=True))
    yield from (f"{table} {raw.recorded.get(table) or 0}" for table in _COUNTED)


def _format_rows(table: str, rows: Iterable[tuple[str | int | None, ...]]) -> Iterator[str]:
    """Format each distinct row, in an order that does not depend on the export."""
    yield f"{table}:"
    lines = {"\t".join("" if value is None else str(value) for value in row) for row in rows}
    yield from sorted(lines, key=_order)


def _order(line: str) -> bytes:
    return line.encode("utf-8", "surrogateescape")
