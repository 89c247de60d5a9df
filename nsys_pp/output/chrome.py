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
    SLICES,
    Drawing,
    Path,
    Placement,
    Subtrack,
    arrange,
    index_tracks,
    intern,
    is_flow,
    place_path,
    place_tracks,
    subtracks_by_track,
)


class PlacedSubtrack(Struct, frozen=True, kw_only=True):
    """A subtrack, its clock, and its process and thread in the viewer."""

    subtrack: Subtrack
    clock: Clock
    process_name: str
    thread_name: str
    counter_unit: str | None
    process: int
    thread: int


def encode_slices(
    slices: pl.DataFrame, target: PlacedSubtrack, base_ns: int, arrows: pl.DataFrame | None
) -> pl.Series:
    """Encode slices as complete events (X), one JSON object per row, and the flow events of each row.

    Args:
        slices: `SLICES`.
        target: Process and thread of the slices.
        base_ns: Time on the trace's clock that is 0 in the file.
        arrows: Of each slice, as `find_arrows` returns them.
    """
    duration = pl.col("end_ns") - pl.col("start_ns")
    inside, after = (pl.lit("" if arrows is None else arrows[name]) for name in ("inside", "after"))
    return _collect(
        slices,
        pl.lit(f'{{"ph":"X","pid":{target.process},"tid":{target.thread},"ts":'),
        _microseconds(pl.col("start_ns") - base_ns),
        pl.lit(',"dur":'),
        _microseconds(duration),
        *_encode_fields(slices, SLICES),
        inside,
        pl.lit("}"),
        after,
    )


def encode_marks(marks: pl.DataFrame, target: PlacedSubtrack, base_ns: int) -> pl.Series:
    """Encode marks as instant events (i) of their thread, one JSON object per row."""
    return _collect(
        marks,
        pl.lit(f'{{"ph":"i","s":"t","pid":{target.process},"tid":{target.thread},"ts":'),
        _microseconds(pl.col("time_ns") - base_ns),
        *_encode_fields(marks, MARK_POINTS),
        pl.lit("}"),
    )


def encode_counters(samples: pl.DataFrame, target: PlacedSubtrack, base_ns: int) -> pl.Series:
    """Encode samples as counter events (C), one JSON object per row; infinite values and NaN become 0."""
    value = pl.when(pl.col("value").is_finite()).then("value").otherwise(0.0)
    series = json.dumps(target.counter_unit or "value", ensure_ascii=False)
    return _collect(
        samples,
        pl.lit(f'{{"ph":"C","pid":{target.process},"ts":'),
        _microseconds(pl.col("time_ns") - base_ns),
        pl.lit(f',"name":{json.dumps(target.thread_name, ensure_ascii=False)},"args":{{{series}:'),
        value.cast(pl.String),
        pl.lit("}}"),
    )


def encode_texts(texts: pl.Series) -> pl.Series:
    r"""Encode strings as JSON strings, with quotes; polars escapes them.

    >>> encode_texts(pl.Series(['a "b"', "\n"])).to_list()
    ['"a \\"b\\""', '"\\n"']
    """
    encoded = pl.struct(x=pl.lit(texts)).struct.json_encode().str.strip_prefix('{"x":').str.strip_suffix("}")
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
    drawn = arrange(tracks, subtracks)
    names = {track.path: track.name for track in drawn}
    groups = list(dict.fromkeys(_group(track.path) for track in drawn if track.path in subtracks))
    thread = len(groups)
    placed = []
    for track in drawn:
        group = _group(track.path)
        for of_drawing, clock in subtracks.get(track.path, []):
            first = thread + 1
            for subtrack in of_drawing:
                thread += subtrack.kind == "slices" or thread < first
                placed.append(
                    PlacedSubtrack(
                        subtrack=subtrack,
                        clock=clock,
                        process_name=_join(group, 0, names),
                        thread_name=_join(track.path, len(group), names),
                        counter_unit=track.counter_unit,
                        process=groups.index(group) + 1,
                        thread=thread if subtrack.kind == "slices" else first,
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


def find_arrows(placed: list[PlacedSubtrack], base_ns: int) -> dict[int, pl.DataFrame]:
    """Find the arrows of slices.

    Slices with the same flow id are joined in order of their starts. A flow id with a single slice makes no
    arrow. An event has one arrow (`bind_id`): those of slices where several begin are flow events.

    Args:
        placed: Subtracks of the trace.
        base_ns: Time on the trace's clock that is 0 in the file.

    Returns:
        By index of the subtrack: row, inside (fields of its event), after (events, each after a comma).
    """
    parts = [
        _on_trace(target.subtrack.source[["start_ns", column]][target.subtrack.rows], target.clock)
        .select("start_ns", flow=column, is_more=pl.lit(column != "flow_id"))
        .with_row_index("row")
        .drop_nulls("flow")
        .with_columns(subtrack=pl.lit(at), place=pl.lit(f'"pid":{target.process},"tid":{target.thread}'))
        for at, target in enumerate(placed)
        if target.subtrack.kind == "slices"
        for column in filter(is_flow, target.subtrack.source.columns)
    ]
    if not parts:
        return {}
    flow, nothing = pl.col("flow"), pl.lit("")
    number, is_more = flow.rle_id().cast(pl.Int64), pl.col("is_more").any().over("flow")
    enters, leaves = (flow == flow.shift(by).fill_null(0) for by in (1, -1))
    inside = pl.concat_str(
        pl.format(',"bind_id":"0x{}"', number + _APART),
        pl.when(leaves).then(pl.lit(',"flow_out":true')).otherwise(nothing),
        pl.when(enters).then(pl.lit(',"flow_in":true')).otherwise(nothing),
    )
    after = pl.concat_str(
        pl.lit(',\n{"ph":'),
        pl.when(enters).then(pl.lit('"f","bp":"e"')).otherwise(pl.lit('"s"')),
        pl.lit(',"cat":"arrow","name":"arrow",'),
        "place",
        pl.format(',"id":"0x{}","ts":', number),
        _microseconds(pl.col("start_ns") - base_ns),
        pl.lit("}"),
    )
    texts = (
        pl.concat(parts)
        .sort("flow", "start_ns", "subtrack", "row")
        .select(
            *("subtrack", "row"),
            is_whole=enters | leaves,
            inside=pl.when(is_more).then(nothing).otherwise(inside),
            after=pl.when(is_more).then(after).otherwise(nothing),
        )
        .filter("is_whole")
        .group_by("subtrack", "row")
        .agg(pl.col("inside", "after").str.join())
    )
    return {int(str(at)): own for (at,), own in texts.partition_by("subtrack", as_dict=True).items()}


def _encode(drawings: Placed) -> Iterator[bytes]:
    placed = place_subtracks(drawings)
    starts = [target.clock.to_trace(np.array([target.subtrack.start_ns]))[0] for target in placed]
    base_ns = int(min(starts, default=0)) // 1000 * 1000
    is_utc = all(placement.is_utc for _, placement in drawings)
    facts = {key: value for _, placement in drawings for key, value in placement.attributes.items()}
    head = json.dumps(
        {
            "displayTimeUnit": "ns",
            "otherData": {**facts, "base_ns": str(base_ns), "clock": "UTC" if is_utc else "report"},
        },
        ensure_ascii=False,
    )
    yield f'{head[:-1]}, "traceEvents": [\n'.encode()
    yield ",\n".join(json.dumps(event, ensure_ascii=False) for event in _names(placed)).encode()
    arrows = find_arrows(placed, base_ns)
    for at, target in enumerate(placed):
        for events in _encode_blocks(target, base_ns, arrows.get(at)):
            yield b",\n"
            yield events.str.join(",\n").item().encode()
    yield b"\n]}\n"


def _encode_blocks(placed: PlacedSubtrack, base_ns: int, arrows: pl.DataFrame | None) -> Iterator[pl.Series]:
    """Encode a subtrack, at most `BLOCK_ROWS` rows at a time, each row with its arrows."""
    kind, all_rows = placed.subtrack.kind, placed.subtrack.frame
    for first in range(0, all_rows.height, BLOCK_ROWS):
        rows = _on_trace(all_rows.slice(first, BLOCK_ROWS), placed.clock)
        if kind == "slices":
            beside = None
            if arrows is not None:
                beside = (
                    pl.int_range(first, first + len(rows), dtype=pl.UInt32, eager=True)
                    .to_frame("row")
                    .join(arrows, on="row", how="left", maintain_order="left")
                    .fill_null("")
                )
            yield encode_slices(rows, placed, base_ns, beside)
        else:
            yield (encode_marks if kind == "marks" else encode_counters)(rows, placed, base_ns)


def _on_trace(rows: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Map the times of a subtrack's rows onto the trace's clock."""
    times = [column for column in ("start_ns", "end_ns", "time_ns") if column in rows.columns]
    return rows.with_columns(pl.Series(column, clock.to_trace(rows[column].to_numpy())) for column in times)


def _names(placed: list[PlacedSubtrack]) -> Iterator[dict[str, object]]:
    processes = {target.process: target.process_name for target in placed}
    threads = {target.thread: target for target in reversed(placed) if target.subtrack.kind != "counter"}
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
