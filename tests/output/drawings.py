"""Drawings for tests: short forms, random ones, and their expected contents."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import polars as pl
from msgspec import structs

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Row, Track
from nsys_pp.output.perfetto.trace import PlacedReport, encode_drawing
from nsys_pp.output.trace.drawing import (
    MARK_POINTS,
    SAMPLES,
    SLICES,
    Drawing,
    Placement,
    Subtrack,
    draw_all,
)

UTC_NS = 1_700_000_000_000_000_000
UTC = Clock.fixed(UTC_NS)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSubtrack:
    """A subtrack with the machine and the clock of its report."""

    machine: str
    clock: Clock
    subtrack: Subtrack


PlacedDrawings = list[tuple[Drawing, Placement]]


def drawing(
    *placed: PlacedSubtrack,
    is_utc: bool = True,
    unit: str = "count",
    facts: dict[str, str] | None = None,
) -> PlacedDrawings:
    """Draw subtracks on tracks named by the last part of their paths, in order of the subtracks.

    The subtracks of one machine and clock are a report.
    """
    order = list(dict.fromkeys((entry.machine, entry.subtrack.track) for entry in placed))
    reports: dict[tuple[Any, ...], list[PlacedSubtrack]] = {}
    for entry in placed:
        key = (entry.machine, *entry.clock.from_ns.tolist(), *entry.clock.offset_ns.tolist())
        reports.setdefault(key, []).append(entry)
    drawn = []
    for number, of_report in enumerate(reports.values()):
        machine, subtracks = of_report[0].machine, [entry.subtrack for entry in of_report]
        tracks = [
            Track(
                path=path,
                name=path[-1],
                rank=order.index((machine, path)),
                counter_unit=unit
                if any(subtrack.kind == "counter" and subtrack.track == path for subtrack in subtracks)
                else None,
            )
            for path in dict.fromkeys(subtrack.track for subtrack in subtracks)
        ]
        tops = {
            path[0]: order.index((machine, path)) if len(path) == 1 else 0
            for path in (t.path for t in tracks)
        }
        placement = Placement(
            machine=machine,
            machine_order=0,
            rows={name: Row(name=name, order=place) for name, place in tops.items()},
            clock=of_report[0].clock,
            is_utc=is_utc,
            attributes=facts or {},
        )
        drawn.append((draw_subtracks(tracks, subtracks, number), placement))
    return drawn


def draw_subtracks(tracks: list[Track], subtracks: Sequence[Subtrack], number: int = 0) -> Drawing:
    """Draw subtracks of one report; its id follows from its number."""
    report_id = (number + 1) * 0x9E37_79B9_7F4A_7C15 % 2**64
    return Drawing(report_id=report_id, tracks=tracks, subtracks=list(subtracks))


def encode(drawn: PlacedDrawings) -> list[PlacedReport]:
    placed = []
    for one, placement in drawn:
        blocks = BytesIO()
        placed.append(
            PlacedReport(
                encoded=encode_drawing(one, blocks),
                placement=placement,
                open_blocks=partial(BytesIO, blocks.getvalue()),
            )
        )
    return placed


def slice_subtrack(path: str, rows: pl.DataFrame, *, number: int = 0, clock: Clock = UTC) -> PlacedSubtrack:
    """Place a subtrack on the track at `path`, with slashes, the machine first."""
    return _place(path, clock, lambda track: draw_slices(track, rows, number))


def draw_slices(track: tuple[str, ...], rows: pl.DataFrame, number: int = 0) -> Subtrack:
    drawn = draw_all(track, "slices", rows.drop("depth"))
    return structs.replace(drawn, depth=rows["depth"].to_numpy(), number=number)


def mark_subtrack(path: str, rows: Sequence[tuple[Any, ...]], *, clock: Clock = UTC) -> PlacedSubtrack:
    """Place a subtrack of marks (time, name, color)."""
    marks = pl.DataFrame(rows, schema=MARK_POINTS, orient="row")
    return _place(path, clock, lambda track: draw_all(track, "marks", marks))


def counter_subtrack(path: str, rows: Sequence[tuple[int, float]], *, clock: Clock = UTC) -> PlacedSubtrack:
    """Place a subtrack of samples (time, value)."""
    samples = pl.DataFrame(rows, schema=SAMPLES, orient="row")
    return _place(path, clock, lambda track: draw_all(track, "counter", samples))


def _place(path: str, clock: Clock, make: Callable[[tuple[str, ...]], Subtrack]) -> PlacedSubtrack:
    machine, *track = path.split("/")
    return PlacedSubtrack(machine=machine, clock=clock, subtrack=make(tuple(track)))


def random_drawing(seed: int, *, subtracks: int = 24) -> PlacedDrawings:
    """Make nested subtracks with arguments, some of them several to a track.

    On several clocks before and after 0.
    """
    chance = random.Random(seed)
    made: list[PlacedSubtrack] = []
    for i in range(subtracks):
        path = f"node{chance.randint(1, 11)}/GPU {chance.randint(0, 3)}/row {i}"
        clock = random_clock(chance)
        for subtrack in range(chance.choice([1, 1, 3])):
            made.append(slice_subtrack(path, random_slices(chance), number=subtrack, clock=clock))
    return drawing(*made)


def random_clock(chance: random.Random) -> Clock:
    """Choose one of three clocks, two of them with pieces that begin where slices are."""
    choice = chance.randrange(3)
    if choice == 0:
        return UTC
    begins = [[-990, -400, 2, 3, 30, 10**6 + 17], [0, 10, 10**6, 10**15 + 2, 10**15 + 10**11]][choice - 1]
    steps = random.Random(choice).choices([0, 1, 5, 1000, 12_345], k=len(begins))
    return Clock(
        from_ns=np.array(begins), offset_ns=UTC_NS - 12_345 * choice + np.cumsum(steps, dtype=np.int64)
    )


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


def expected_slices(drawn: PlacedDrawings) -> list[tuple[Any, ...]]:
    """List what a reader must find: rows of HEADINGS, sorted."""
    found = []
    for one, placement in drawn:
        names = {track.path: track.name for track in one.tracks}
        for subtrack in one.subtracks:
            if subtrack.kind != "slices":
                continue
            below = [
                names.get(subtrack.track[: end + 1], subtrack.track[end])
                for end in range(1, len(subtrack.track))
            ]
            path = "/".join([placement.machine, placement.rows[subtrack.track[0]].name, *below])
            for row in subtrack.frame.to_dicts():
                known = {key: row.pop(key) for key in SLICES}
                args = {key: value for key, value in row.items() if value is not None}
                ts, end = (trace_ns(placement.clock, known[key]) for key in ("start_ns", "end_ns"))
                found.append((path, ts, end - ts, known["depth"], known["name"], args))
    return sorted(found, key=repr)


def trace_ns(clock: Clock, time_ns: int) -> int:
    """Map a time by the definition of a clock."""
    pieces = zip(clock.from_ns.tolist(), clock.offset_ns.tolist(), strict=True)
    begun = [offset for begin, offset in pieces if begin <= time_ns]
    return int(time_ns + (begun[-1] if begun else clock.offset_ns[0]))


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
