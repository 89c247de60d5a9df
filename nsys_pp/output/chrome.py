"""Drawings as Chrome JSON, for tools that read nothing else.

Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
(events X, i, C, M; `bind_id` with `flow_out` and `flow_in`; `cname`; `displayTimeUnit`).

Limits of the format:

* Its tree has two levels, processes and threads. The first two levels of a track's path (machine and GPU)
  are the process, the rest is the thread. In a path of two levels, the machine is the process.
* Times are microseconds in floating point. So they are relative to the trace's first event, with
  nanoseconds as three decimals; `otherData.base_ns` is their origin.
* Viewers nest slices with the same start by length, so a zero-length slice at the start of another slice
  is drawn inside it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Track
from nsys_pp.output.colors import chrome_names
from nsys_pp.output.trace.drawing import (
    MARK_POINTS,
    MORE_FLOWS,
    SLICES,
    CounterSubtrack,
    Drawing,
    MarkSubtrack,
    Path,
    Placement,
    SliceSubtrack,
    Subtrack,
    arrange,
    count_rows,
    index_tracks,
    intern,
    is_flow,
    place_path,
    place_tracks,
    start_ns,
    subtrack_rows,
    subtracks_by_track,
)


class Destination(Struct, frozen=True, kw_only=True):
    """Process and thread of the events of a subtrack, and the shift of their times."""

    process: int
    thread: int
    name: str  # of the counter
    unit: str | None  # of the counter
    shift_ns: int  # added to all times


class ArrowEnds(Struct, frozen=True, kw_only=True):
    """Ends of arrows at the slices of a subtrack; one item per slice."""

    numbers: NDArray[np.uint32]  # number of the arrow; 0 without an arrow
    enters: NDArray[np.bool_]  # an arrow ends at the slice
    leaves: NDArray[np.bool_]  # an arrow begins at the slice

    def slice(self, first: int, count: int) -> ArrowEnds:
        """Return the ends of `count` slices from `first` on."""
        end = first + count
        return ArrowEnds(
            numbers=self.numbers[first:end], enters=self.enters[first:end], leaves=self.leaves[first:end]
        )


def encode_slices(slices: pl.DataFrame, destination: Destination, ends: ArrowEnds | None) -> pl.Series:
    """Encode slices as complete events (X), one JSON object per row."""
    duration = pl.col("end_ns") - pl.col("start_ns")
    return _collect(
        slices,
        pl.lit(f'{{"ph":"X","pid":{destination.process},"tid":{destination.thread},"ts":'),
        _microseconds(pl.col("start_ns") + destination.shift_ns),
        pl.lit(',"dur":'),
        _microseconds(duration),
        *_encode_fields(slices, SLICES),
        *(_arrows(ends) if ends else ()),
        pl.lit("}"),
    )


def encode_arrows(ends: pl.DataFrame, destination: Destination) -> pl.Series:
    """Encode ends of arrows as flow events (s, f), one JSON object per row.

    Args:
        ends: time_ns (start of the slice), number (of the arrow), is_begin.
        destination: Process and thread of the slices.
    """
    phase = pl.when("is_begin").then(pl.lit('"s"')).otherwise(pl.lit('"f","bp":"e"'))
    return _collect(
        ends,
        pl.lit('{"ph":'),
        phase,
        pl.lit(
            f',"cat":"arrow","name":"arrow","pid":{destination.process},"tid":{destination.thread},"id":"0x'
        ),
        pl.col("number").cast(pl.String),
        pl.lit('","ts":'),
        _microseconds(pl.col("time_ns") + destination.shift_ns),
        pl.lit("}"),
    )


def encode_marks(marks: pl.DataFrame, destination: Destination) -> pl.Series:
    """Encode marks as instant events (i) of their thread, one JSON object per row."""
    return _collect(
        marks,
        pl.lit(f'{{"ph":"i","s":"t","pid":{destination.process},"tid":{destination.thread},"ts":'),
        _microseconds(pl.col("time_ns") + destination.shift_ns),
        *_encode_fields(marks, MARK_POINTS),
        pl.lit("}"),
    )


def encode_counters(samples: pl.DataFrame, destination: Destination) -> pl.Series:
    """Encode samples as counter events (C), one JSON object per row; infinite values and NaN become 0."""
    value = pl.when(pl.col("value").is_finite()).then("value").otherwise(0.0)
    series = json.dumps(destination.unit or "value", ensure_ascii=False)
    return _collect(
        samples,
        pl.lit(f'{{"ph":"C","pid":{destination.process},"ts":'),
        _microseconds(pl.col("time_ns") + destination.shift_ns),
        pl.lit(f',"name":{json.dumps(destination.name, ensure_ascii=False)},"args":{{{series}:'),
        value.cast(pl.String),
        pl.lit("}}"),
    )


def encode_texts(texts: pl.Series) -> pl.Series:
    r"""Encode strings as JSON strings, with quotes; polars escapes them.

    >>> encode_texts(pl.Series(['a "b"', "\n"])).to_list()
    ['"a \\"b\\""', '"\\n"']
    """
    wrapped = pl.struct(x=pl.lit(texts)).struct.json_encode()
    encoded = wrapped.str.strip_prefix('{"x":').str.strip_suffix("}")
    # Perfetto v52 reads a quote after an escaped backslash as an escaped quote.
    return pl.select(encoded.str.replace(r'\\\\"$', r"\u005c" + '"')).to_series()


def _collect(rows: pl.DataFrame, *parts: pl.Expr) -> pl.Series:
    return rows.select(pl.concat_str(parts)).to_series()


def _microseconds(ns: pl.Expr) -> pl.Expr:
    """Format nanoseconds as microseconds with three decimals, without rounding.

    Times must not be negative.
    """
    return pl.concat_str((ns // 1000).cast(pl.String), pl.lit("."), (ns % 1000).cast(pl.String).str.zfill(3))


def _encode_fields(rows: pl.DataFrame, schema: pl.Schema) -> list[pl.Expr]:
    """Encode the name, the color and the arguments of each row; null fields are omitted."""
    names = _optional(',"name":', pl.lit(_texts(rows["name"])))
    color_keys, numbers = intern(rows["color"])
    colors = _look_up(encode_texts(chrome_names(color_keys)), numbers, rows["color"])
    arguments = [column for column in rows.columns if column not in schema and not is_flow(column)]
    parts = [names, _optional(',"cname":', pl.lit(colors))]
    if arguments:
        written = [_optional(f",{json.dumps(column)}:", _value(rows[column])) for column in arguments]
        parts += [pl.lit(',"args":{'), pl.concat_str(written).str.strip_prefix(","), pl.lit("}")]
    return parts


def _arrows(ends: ArrowEnds) -> list[pl.Expr]:
    number = pl.lit(pl.Series(ends.numbers))
    leaves, enters = pl.lit(pl.Series(ends.leaves)), pl.lit(pl.Series(ends.enters))
    bind = pl.concat_str(pl.lit(',"bind_id":"0x'), number.cast(pl.String), pl.lit('"'))
    return [
        pl.when(leaves | enters).then(bind).otherwise(pl.lit("")),
        pl.when(leaves).then(pl.lit(',"flow_out":true')).otherwise(pl.lit("")),
        pl.when(enters).then(pl.lit(',"flow_in":true')).otherwise(pl.lit("")),
    ]


def _optional(key: str, value: pl.Expr) -> pl.Expr:
    return pl.concat_str(pl.lit(key), value).fill_null("")


def _value(column: pl.Series) -> pl.Expr:
    """Encode the values of an argument as JSON.

    Nulls, infinite values and NaN are null, so they are omitted.
    """
    if column.dtype.is_float():
        values = pl.lit(column.cast(pl.Float64))
        return pl.when(values.is_finite()).then(values.cast(pl.String))
    if column.dtype.is_integer() or column.dtype == pl.Boolean:
        return pl.lit(column).cast(pl.String)
    return pl.lit(_texts(column))


def _texts(column: pl.Series) -> pl.Series:
    """Encode a categorical column as JSON strings, each distinct string once."""
    texts, numbers = intern(column)
    return _look_up(encode_texts(texts), numbers, column)


def _look_up(texts: pl.Series, numbers: NDArray[np.uint32], column: pl.Series) -> pl.Series:
    if texts.is_empty():
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(column))
    rows = texts.gather(np.maximum(numbers, 1) - 1)
    if not column.null_count():
        return rows
    return pl.select(pl.when(pl.lit(column.is_not_null())).then(pl.lit(rows))).to_series()


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
    stream = zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, GZIP)
    for data in _encode(drawings):
        if compressed := stream.compress(data):
            yield compressed
    yield stream.flush()


def place_subtracks(drawings: Placed) -> list[PlacedSubtrack]:
    """Assign each subtrack with rows to a process and a thread.

    Processes and threads are numbered in drawing order, because some viewers ignore the sort index and sort
    by number. Each slice subtrack has its own thread. Marks use the thread of the first slice subtrack of
    their track, if there is one in the same drawing.
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

    Slices with the same flow id are joined in order of their starts. A flow id with a single slice makes no
    arrow.

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
        By index of the subtrack: time_ns (start of the slice, on the trace's clock), number and is_begin.
            Without both ends, an arrow is left out.
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
