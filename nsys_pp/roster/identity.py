"""Identity of each report: recording, processes, pipeline coordinates in names; reports by run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from nsys_pp.arrays.columns import keep_rows
from nsys_pp.arrays.names import is_named
from nsys_pp.errors import describe_path
from nsys_pp.frames.report import Report, Session
from nsys_pp.frames.roster import COORDINATES, Identity, ProcessDevice, capture_window
from nsys_pp.units import NS_PER_S


def identify(report: Report) -> Identity:
    """Build the identity of a report.

    Session, GPUs, fingerprint, and ranks by MPI, launcher and XLA do not depend on the groups that were read.
    Devices are exact with group "ops", ranks include NCCL with "communication", and coordinates need
    "ranges".
    """
    # a name counts if it has the pipeline coordinate and another one: `pp=1` alone may mean anything
    named = pl.concat(
        keep_rows(frame[["process_key", "name"]], is_named(frame["name"], _LETTERS))
        for frame in (report.ranges, report.marks)
    )
    coordinates = named.select(pl.col("name").unique()).select(
        "name",
        *(_read(pl.col("name").cast(pl.String), axis).alias(ours) for ours, axis in COORDINATE_AXES.items()),
    )
    is_complete = pl.col("stage").is_not_null() & pl.any_horizontal(pl.col("tensor", "replica").is_not_null())
    coordinates = coordinates.filter(is_complete)
    return Identity(
        path=Path(describe_path(report.path)),  # its parts may be names
        session=report.session,
        processes=report.processes,
        gpus=report.gpus,
        devices=report.devices,
        ranks=report.ranks,
        coordinates=named.filter(pl.col("name").is_in(coordinates["name"].implode()))
        .unique()
        .join(coordinates, on="name", how="inner")
        .drop("name")
        .unique()
        .filter(pl.len().over("process_key") == 1)
        .select(COORDINATES.names())
        .sort("process_key"),
        fingerprint=report.fingerprint,
    )


def list_process_devices(identities: Sequence[Identity]) -> list[ProcessDevice]:
    """List the processes and devices of all reports; one entry with nulls for a report without devices."""
    return [
        ProcessDevice(report, *keys)
        for report, identity in enumerate(identities)
        for keys in identity.devices[["process_key", "device_id"]].rows() or [(None, None)]
    ]


def find_repeated(identities: Sequence[Identity]) -> dict[int, int]:
    """Find recordings that occur more than once.

    Returns:
        Index of the first occurrence, by the indices of the repeated ones.
    """
    marks = [identity.fingerprint for identity in identities]
    first = {mark: index for index, mark in reversed([*enumerate(marks)])}
    return {index: first[mark] for index, mark in enumerate(marks) if first[mark] != index}


def gpu_processes(identity: Identity) -> list[int]:
    """List the keys of the processes with a GPU."""
    return sorted({key for key in identity.devices["process_key"].to_list() if key is not None})


def name_paths(paths: Sequence[Path]) -> str:
    """Format the names of the first three of several files.

    >>> name_paths([Path(f"{name}.sqlite") for name in "abcde"])
    '`a.sqlite`, `b.sqlite`, `c.sqlite` and 2 more'
    >>> name_paths([Path("a.sqlite"), Path("b.sqlite")])
    '`a.sqlite` and `b.sqlite`'
    """
    named = [f"`{path}`" for path in paths[:3]]
    rest = [f"{len(paths) - 3:,} more"] if len(paths) > 3 else []
    *heads, last = [*named, *rest]
    return f"{', '.join(heads)} and {last}" if heads else last


_LETTERS = "(?i)pp"  # of the pipeline coordinate
# Axis of a layout, and of names, of each coordinate of the roster.
COORDINATE_AXES = {"stage": "pp", "tensor": "tp", "replica": "dp"}


def _read(text: pl.Expr, axis: str) -> pl.Expr:
    """Read `pp=1`, `pp=1/4` or `pp_rank: 1`; null without a match, or beyond the number of parts."""
    pattern = rf"(?i)(?:^|[^a-z0-9_]){axis}(?:_rank)?\s*[=:]\s*(\d{{1,6}})"
    coordinate = text.str.extract(pattern).cast(pl.Int64)
    count = text.str.extract(rf"{pattern}/(\d{{1,6}})", 2).cast(pl.Int64)
    return pl.when(count.is_null() | (coordinate < count)).then(coordinate)


# Longest time between two captures of one run: a restart takes minutes, also on a busy cluster.
MAX_GAP_NS = 3600 * NS_PER_S


def split_runs(sessions: Sequence[Session], *, gap_ns: int = MAX_GAP_NS) -> list[list[int]]:
    """Group captures close in time.

    Returns:
        Indices of `sessions` by group, the earliest first: every capture of a group overlaps an
        earlier one of the group, or begins within `gap_ns` of its end. Captures without UTC are in no group.
    """
    windows = [(capture_window(session), index) for index, session in enumerate(sessions)]
    groups: list[list[int]] = []
    last_end = 0
    for (start, end), index in sorted((window, index) for window, index in windows if window is not None):
        if not groups or start > last_end + gap_ns:
            groups.append([])
            last_end = end
        groups[-1].append(index)
        last_end = max(last_end, end)
    return groups
