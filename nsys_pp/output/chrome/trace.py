"""Drawings as Chrome JSON, for tools that read nothing else.

Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
(events X, i, C, M; `bind_id` with `flow_out` and `flow_in`; `cname`; `displayTimeUnit`).

Limits of the format:

* Its tree has two levels, processes and threads. The first two levels of a track's path (machine and GPU) are the
  process, the rest is the thread. In a path of two levels, the machine is the process.
* Times are microseconds in floating point. So they are relative to the trace's first event, with
  nanoseconds as three decimals; `otherData.base_ns` is their origin.
* Viewers nest slices with the same start by length, so a zero-length slice at the start of another slice
  is drawn inside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from zlib_ng import zlib_ng

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Track
from nsys_pp.output.chrome.events import (
    ArrowEnds,
    Destination,
    encode_arrows,
    encode_counters,
    encode_marks,
    encode_slices,
)
from nsys_pp.output.trace.drawing import (
    MORE_FLOWS,
    CounterSubtrack,
    Drawing,
    MarkSubtrack,
    SliceSubtrack,
    Subtrack,
)
from nsys_pp.output.trace.placement import Placement, place_path, place_tracks
from nsys_pp.output.trace.tree import (
    Path,
    arrange,
    count_rows,
    index_tracks,
    start_ns,
    subtrack_rows,
    subtracks_by_track,
)

BLOCK_ROWS = 1 << 15
GZIP = 31  # zlib's window bits for a gzip stream; zlib writes no timestamp into the stream
COMPRESSION_LEVEL = 2
_APART = 1 << 31  # Perfetto v52 numbers the arrows of flow events from 0, among the numbers of `bind_id`


Placed = Sequence[tuple[Drawing, Placement]]


class PlacedSubtrack(Struct, frozen=True, kw_only=True):
    """A subtrack, its clock, and its process and thread in the viewer."""

    subtrack: Subtrack
    clock: Clock
    process_name: str
    thread_name: str
    counter_unit: str | None
    process: int
    thread: int


def write_chrome(drawings: Placed, *, compress: bool = False) -> Iterator[bytes]:
    """Encode drawings as one JSON object, as a stream of bytes; all drawings are in memory.

    Args:
        drawings: One or more drawings with their placements.
        compress: Whether to write a gzip stream (`.json.gz`).

    Yields:
        The bytes of the file, in order.

    Raises:
        ValueError: The drawing is invalid (see `nsys_pp.output.trace.drawing`).
    """
    if not compress:
        yield from _encode(drawings)
        return
    stream = zlib_ng.compressobj(COMPRESSION_LEVEL, zlib_ng.DEFLATED, GZIP)
    for data in _encode(drawings):
        if compressed := stream.compress(data):
            yield compressed
    yield stream.flush()


def place_subtracks(drawings: Placed) -> list[PlacedSubtrack]:
    """Assign each subtrack with rows to a process and a thread.

    Processes and threads are numbered in drawing order, because some viewers ignore the sort index and sort by number.
    Each slice subtrack has its own thread. Marks use the thread of the first slice subtrack of their track, if there
    is one in the same drawing.
    """
    tracks, subtracks = _gather(drawings)
    nodes = arrange(tracks, subtracks)
    names = {node.track.path: node.track.name for node in nodes}
    groups = list(dict.fromkeys(_group(node.track.path) for node in nodes if node.track.path in subtracks))
    thread = len(groups)
    placed = []
    for track in (node.track for node in nodes):
        group = _group(track.path)
        for of_drawing, clock in subtracks.get(track.path, []):
            first = thread + 1
            for subtrack in of_drawing:
                thread += isinstance(subtrack, SliceSubtrack) or thread < first
                placed.append(
                    PlacedSubtrack(
                        subtrack=subtrack,
                        clock=clock,
                        process_name=_join(group, 0, names),
                        thread_name=_join(track.path, len(group), names),
                        counter_unit=track.counter_unit,
                        process=groups.index(group) + 1,
                        thread=thread if isinstance(subtrack, SliceSubtrack) else first,
                    )
                )
    return placed


def _gather(
    drawings: Placed,
) -> tuple[dict[Path, Track], dict[Path, list[tuple[list[Subtrack], Clock]]]]:
    """Return the tracks and subtracks of all drawings by path in the trace; a path keeps its first track."""
    tracks: dict[Path, Track] = {}
    subtracks: dict[Path, list[tuple[list[Subtrack], Clock]]] = {}
    for drawing, placement in drawings:
        index_tracks(drawing)
        tracks = {**place_tracks(drawing.tracks, placement), **tracks}
        for path, of_track in subtracks_by_track(drawing).items():
            if path[0] in placement.rows:
                subtracks.setdefault(place_path(path, placement), []).append((of_track, placement.clock))
    return tracks, subtracks


def find_arrows(placed: list[PlacedSubtrack], *, first: int = 1) -> list[ArrowEnds | None]:
    """Find the slices at both ends of each arrow.

    Slices with the same flow id are joined in order of their starts. A flow id with a single slice makes no arrow.

    Args:
        placed: Subtracks of the trace.
        first: Number of the first arrow.

    Returns:
        Per subtrack: the ends, one item per row; None if the subtrack has no slices with a flow id.
    """
    ends = [
        _on_trace(target.subtrack.slices, target.clock)
        .lazy()
        .select("flow_id", "start_ns", subtrack=pl.lit(i))
        .with_row_index("row")
        .filter(pl.col("flow_id").is_not_null())
        for i, target in enumerate(placed)
        if isinstance(target.subtrack, SliceSubtrack)
    ]
    ends_by_subtrack: list[ArrowEnds | None] = [None] * len(placed)
    if not ends:
        return ends_by_subtrack
    same_as_previous = pl.col("flow_id") == pl.col("flow_id").shift(1)
    same_as_next = pl.col("flow_id") == pl.col("flow_id").shift(-1)
    joined = (
        pl.concat(ends)
        .sort("flow_id", "start_ns", "subtrack", "row")
        .select(
            "subtrack",
            "row",
            number=pl.col("flow_id").rle_id() + first,
            enters=same_as_previous.fill_null(False),
            leaves=same_as_next.fill_null(False),
        )
        .collect()
    )
    for (i,), of_subtrack in joined.partition_by("subtrack", as_dict=True, include_key=False).items():
        ends_by_subtrack[i] = _scatter(of_subtrack, count_rows(placed[i].subtrack))
    return ends_by_subtrack


def find_more_arrows(placed: list[PlacedSubtrack]) -> dict[int, pl.DataFrame]:
    """Find the ends of the arrows of slices where several begin: an event of the format has one arrow.

    Returns:
        By index of the subtrack: time_ns (start of the slice, on the trace's clock), number and is_begin. Without
        both ends, an arrow is left out.
    """
    of_slices = [
        (i, target.clock, target.subtrack)
        for i, target in enumerate(placed)
        if isinstance(target.subtrack, SliceSubtrack)
    ]
    if not any(name.startswith(MORE_FLOWS) for *_, subtrack in of_slices for name in subtrack.schema):
        return {}
    parts = []
    for i, clock, subtrack in of_slices:
        slices = subtrack.slices
        for column in ("flow_id", *(name for name in slices.columns if name.startswith(MORE_FLOWS))):
            ends = slices.select("start_ns", flow=column).drop_nulls()
            if len(ends):
                times = pl.Series("time_ns", clock.to_trace(ends["start_ns"].to_numpy()))
                parts.append(
                    ends.select("flow", times, subtrack=pl.lit(i), is_begin=pl.lit(column != "flow_id"))
                )
    if not parts:
        return {}
    ends = pl.concat(parts)
    is_whole = pl.col("is_begin").any().over("flow") & (pl.len().over("flow") == 2)
    numbered = ends.filter(is_whole).select(
        "subtrack", "time_ns", "is_begin", number=pl.col("flow").rank("dense").cast(pl.UInt32)
    )
    by_subtrack = numbered.partition_by("subtrack", as_dict=True, include_key=False, maintain_order=True)
    return {int(str(i)): frame for (i,), frame in by_subtrack.items()}


def _scatter(ends: pl.DataFrame, rows: int) -> ArrowEnds:
    """Expand ends to one item per row of the subtrack."""
    numbers, enters, leaves = np.zeros(rows, np.uint32), np.zeros(rows, bool), np.zeros(rows, bool)
    at = ends["row"].to_numpy()
    for target, column in ((numbers, "number"), (enters, "enters"), (leaves, "leaves")):
        target[at] = ends[column].to_numpy()
    return ArrowEnds(numbers=numbers, enters=enters, leaves=leaves)


def _encode(drawings: Placed) -> Iterator[bytes]:
    placed = place_subtracks(drawings)
    starts = [target.clock.to_trace(np.array([start_ns(target.subtrack)]))[0] for target in placed]
    base_ns = int(min(starts, default=0)) // 1000 * 1000
    is_utc = all(placement.is_utc for _, placement in drawings)
    facts = {key: value for _, placement in drawings for key, value in placement.attributes.items()}
    other = {**facts, "base_ns": str(base_ns), "clock": "UTC" if is_utc else "report"}
    head = json.dumps({"displayTimeUnit": "ns", "otherData": other}, ensure_ascii=False)
    yield f'{head[:-1]}, "traceEvents": [\n'.encode()
    yield ",\n".join(json.dumps(event, ensure_ascii=False) for event in _names(placed)).encode()
    more = find_more_arrows(placed)
    arrows = find_arrows(placed, first=_APART if more else 1)
    for at, (target, ends) in enumerate(zip(placed, arrows, strict=True)):
        destination = Destination(
            process=target.process,
            thread=target.thread,
            name=target.thread_name,
            unit=target.counter_unit,
            shift_ns=-base_ns,
        )
        for events in _encode_blocks(target, destination, ends):
            yield b",\n"
            yield events.str.join(",\n").item().encode()
        if at in more:
            yield b",\n"
            yield encode_arrows(more[at], destination).str.join(",\n").item().encode()
    yield b"\n]}\n"


def _encode_blocks(
    placed: PlacedSubtrack, destination: Destination, ends: ArrowEnds | None
) -> Iterator[pl.Series]:
    """Encode a subtrack, at most `BLOCK_ROWS` rows at a time."""
    all_rows = subtrack_rows(placed.subtrack)
    for first in range(0, all_rows.height, BLOCK_ROWS):
        rows = _on_trace(all_rows.slice(first, BLOCK_ROWS), placed.clock)
        if isinstance(placed.subtrack, CounterSubtrack):
            yield encode_counters(rows, destination)
        elif isinstance(placed.subtrack, MarkSubtrack):
            yield encode_marks(rows, destination)
        else:
            yield encode_slices(rows, destination, ends.slice(first, BLOCK_ROWS) if ends else None)


def _on_trace(rows: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Map the times of a subtrack's rows onto the trace's clock."""
    times = [column for column in ("start_ns", "end_ns", "time_ns") if column in rows.columns]
    return rows.with_columns(pl.Series(column, clock.to_trace(rows[column].to_numpy())) for column in times)


def _names(placed: list[PlacedSubtrack]) -> Iterator[dict[str, object]]:
    """List the metadata events: names and sort indices of processes and threads."""
    processes = {target.process: target.process_name for target in placed}
    threads = {
        target.thread: target
        for target in reversed(placed)
        if not isinstance(target.subtrack, CounterSubtrack)
    }
    for process, name in processes.items():
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": process}}
    for thread, target in sorted(threads.items()):
        row = {"ph": "M", "pid": target.process, "tid": thread}
        yield {**row, "name": "thread_name", "args": {"name": target.thread_name}}
        yield {**row, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _group(path: Path) -> Path:
    return path[:-1][:2]


def _join(path: Path, start: int, names: dict[Path, str]) -> str:
    return " / ".join(names[path[: end + 1]] for end in range(start, len(path)))
