"""Drawings for tests: a short way to write slices, random ones, and what a reader must find in them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import polars as pl

from nsys_pp.write.drawing import (
    MARK_POINTS,
    SAMPLES,
    SLICES,
    Clock,
    CounterLane,
    Drawing,
    Lane,
    MarkLane,
    SliceLane,
    Track,
)

UTC = Clock(offset_ns=1_700_000_000_000_000_000)
HEADINGS = ("path", "ts", "dur", "depth", "name", "args")

# Everything that escaping, interning and splitting could trip over; NUL alone is left out, because
# the importer's own answers end their strings with it.
TEXTS = [
    "gemm",
    "void kernel<float, 4>(T1*, int)",
    'quote " and \\ backslash',
    "line\nfeed\ttab\rreturn",
    "\x01\x08\x0c\x1b\x1f control",
    "é ß 漢字 кириллица 🚀",
    "</script><!--",
    "%s {0} $x",
    "\u2028\u2029\x7f\x80\ufeff\ufffe",
    " ",
    "x" * 3000,
    "step 12",
    "step 13",
]


def slices(rows: Sequence[tuple[Any, ...]], **arguments: pl.Series) -> pl.DataFrame:
    """Make SLICES of rows (start, end, depth[, name[, color[, flow]]])."""
    filled = [(*row, *[None] * (6 - len(row))) for row in rows]
    return pl.DataFrame(filled, schema=SLICES, orient="row").with_columns(**arguments)


def drawing(*lanes: Lane, root: str = "run", is_utc: bool = True, unit: str = "count") -> Drawing:
    """Draw lanes on tracks named by the last part of their paths, in order of the lanes."""
    units = {lane.track: unit if isinstance(lane, CounterLane) else None for lane in lanes}
    tracks = [
        Track(path=path, name=path[-1], rank=rank, counter_unit=known)
        for rank, (path, known) in enumerate(units.items())
    ]
    return Drawing(root=root, tracks=tracks, lanes=list(lanes), is_utc=is_utc)


def slice_lane(path: str, rows: pl.DataFrame, *, lane: int = 0, clock: Clock = UTC) -> SliceLane:
    """Make a lane on the track at `path`, written with slashes."""
    return SliceLane(track=tuple(path.split("/")), lane=lane, clock=clock, slices=rows)


def mark_lane(path: str, rows: Sequence[tuple[Any, ...]], *, clock: Clock = UTC) -> MarkLane:
    """Make a lane of marks (time, name, color)."""
    marks = pl.DataFrame(rows, schema=MARK_POINTS, orient="row")
    return MarkLane(track=tuple(path.split("/")), clock=clock, marks=marks)


def counter_lane(path: str, rows: Sequence[tuple[int, float]], *, clock: Clock = UTC) -> CounterLane:
    """Make a lane of samples (time, value)."""
    samples = pl.DataFrame(rows, schema=SAMPLES, orient="row")
    return CounterLane(track=tuple(path.split("/")), clock=clock, samples=samples)


def random_drawing(seed: int, *, lanes: int = 24) -> Drawing:
    """Make nested lanes with arguments, some of them several to a track, on two clocks before and after 0."""
    chance = random.Random(seed)
    made: list[Lane] = []
    for i in range(lanes):
        path = f"node{chance.randint(1, 11)}/GPU {chance.randint(0, 3)}/row {i}"
        clock = Clock(offset_ns=UTC.offset_ns + chance.choice([0, -12_345, 10**9 + 7]))
        for lane in range(chance.choice([1, 1, 3])):
            made.append(slice_lane(path, random_slices(chance), lane=lane, clock=clock))
    return drawing(*made)


def random_slices(chance: random.Random) -> pl.DataFrame:
    """Make a random forest of slices, many of which touch, have equal starts, or have no length."""
    rows: list[tuple[Any, ...]] = []
    first = chance.choice([-1000, 0, 10**6, 10**15])
    span = chance.choice([0, 4, 40, 5000, 10**12])
    _grow(chance, rows, first, first + span, 0, chance.choice([0, 1, 5, 40]))
    named = [
        (*row, chance.choice([*TEXTS, None]), chance.choice([None, None, "forward", "odd"])) for row in rows
    ]
    return slices(named, **random_arguments(chance, len(rows)))


def random_arguments(chance: random.Random, rows: int) -> dict[str, pl.Series]:
    """Make columns of every type that arguments may have, with and without nulls."""
    kinds: dict[str, tuple[Any, list[Any]]] = {
        "int": (pl.Int64, [0, 1, -1, 127, 128, 2**31, -(2**63), 2**63 - 1, 300, 70_000]),
        "small": (pl.Int16, [0, 5, 300, -4]),
        "uint": (pl.UInt64, [0, 1, 2**63, 2**64 - 1]),
        "byte": (pl.UInt8, [0, 127, 128, 255]),
        "real": (pl.Float64, [0.0, -1.5, 1e300, 5e-324, 0.1]),
        "flag": (pl.Boolean, [True, False]),
        "text": (pl.Categorical(), TEXTS),
        "more text": (pl.Categorical(), TEXTS[:3]),
    }
    chosen = chance.sample(sorted(kinds), chance.randint(0, len(kinds)))
    columns = {}
    for name in chosen:
        dtype, values = kinds[name]
        pool = values + [None] * chance.choice([0, 0, 3])
        columns[name] = pl.Series([chance.choice(pool) for _ in range(rows)], dtype=dtype)
    return columns


def expected_slices(drawn: Drawing) -> list[tuple[Any, ...]]:
    """List what a reader must find: rows of HEADINGS, sorted."""
    names = {track.path: track.name for track in drawn.tracks}
    found = []
    for lane in drawn.lanes:
        if not isinstance(lane, SliceLane):
            continue
        path = [names.get(lane.track[: end + 1], lane.track[end]) for end in range(len(lane.track))]
        for row in lane.slices.to_dicts():
            known = {key: row.pop(key) for key in SLICES}
            args = {key: value for key, value in row.items() if value is not None}
            ts = known["start_ns"] + lane.clock.offset_ns
            dur = known["end_ns"] - known["start_ns"]
            found.append(("/".join([drawn.root, *path]), ts, dur, known["depth"], known["name"], args))
    return sorted(found, key=repr)


def _grow(
    chance: random.Random, rows: list[tuple[Any, ...]], low: int, high: int, depth: int, most: int
) -> None:
    at = low
    while len(rows) < most and chance.random() < 0.8:
        start = chance.choice([at, chance.randint(at, high)])
        end = chance.choice([start, high, chance.randint(start, high)])
        rows.append((start, end, depth))
        _grow(chance, rows, start, end, depth + 1, most)
        at = end
