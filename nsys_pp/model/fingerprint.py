"""A number by which a recording is known again, under whatever name and in whatever form it comes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import polars as pl

from nsys_pp.frames.raw import RawReport

_FACTS = ("hostname", "hardware_id", "system_id")
_TABLES = {  # whole rows of what is always read and lists who was there
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


def take_fingerprint(raw: RawReport) -> int:
    """Hash what a recording says of itself.

    That is: when it began and how long it took, on which machine, with which processes, threads,
    GPUs, contexts and streams, what its launcher said, and how many calls and operations there are.
    An export's shift of time is in none of these, nor is the file's name; and all of it is known
    whatever groups were read.

    Returns:
        64 bits, unsigned: equal for two exports of one recording, different for any two recordings.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in _tell(raw):
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return int.from_bytes(digest.digest(), "big")


def _tell(raw: RawReport) -> Iterator[str]:
    facts = raw["facts"].filter(pl.col("name").is_in(_FACTS))[["name", "value"]]
    yield from _write_rows("facts", facts)
    for table, columns in _TABLES.items():
        yield from _write_rows(table, raw[table][[*columns]])
    yield from (f"{table} {raw.recorded.get(table) or 0}" for table in _COUNTED)


def _write_rows(table: str, rows: pl.DataFrame) -> Iterator[str]:
    """Write each different row as text, in an order that does not depend on the export's."""
    columns = [pl.col(name).cast(pl.String).fill_null("") for name in rows.columns]
    yield f"{table}:"
    if not rows.is_empty():
        line = pl.concat_str(columns, separator="\t")
        yield from rows.select(line.unique().sort()).to_series().to_list()
