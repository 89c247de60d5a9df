"""Encoding of a drawing: each track as compressed blocks of packets, which depend on the report only.

All subtracks of a report share one packet sequence. The slice subtracks of a track are a batch: where many
slices overlap, a track has thousands of small subtracks. The first packet of a batch clears the incremental
state of the sequence (strings, defaults, time of the last event) and sets its own, so a merge may omit any
track. Each further subtrack of the batch begins with a packet that sets its track and restarts the time of
the last event.

Each event has the time since the previous event of its subtrack, on the subtrack clock, which is reset to the
report's base by the first packet of the subtrack. The preamble of the report
(`nsys_pp.output.perfetto.trace`) maps this base onto the trace's clock.

Source: `docs/reference/synthetic-track-event.md` (sequences, interning, incremental state) of
https://github.com/google/perfetto/blob/v52.0.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import groupby
from typing import Protocol

import deflate
import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from nsys_pp.arrays.columns import find_distinct, pack
from nsys_pp.arrays.search import list_groups
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.part import Encoded, EncodedSubtrack
from nsys_pp.output.colors import perfetto_seeds
from nsys_pp.output.perfetto.protobuf import (
    DELIMITED,
    Annotation,
    Array,
    BuiltinClock,
    ClockSnapshot,
    Defaults,
    EventType,
    Interned,
    InternedData,
    Parts,
    Reading,
    SequenceFlags,
    Trace,
    TracePacket,
    TrackEvent,
    constant,
    encode_rows,
    encode_strings,
    field,
    fixed64,
    join_records,
    message,
    tag,
    varint,
)
from nsys_pp.output.trace.drawing import (
    MARK_POINTS,
    SLICES,
    WORDS,
    Drawing,
    FrameColumns,
    Path,
    Subtrack,
    arrange,
    index_tracks,
    is_flow,
    sequence_id,
    subtracks_by_track,
)
from nsys_pp.output.trace.packing import Events, order_events
from nsys_pp.progress import report_stage

MAX_THREADS = 4  # more do not help: part of the encoding of a block holds the interpreter lock
BLOCK_ROWS = 1 << 15  # a block has 1-3 MB before compression
COMPRESSION_LEVEL = 1  # of libdeflate; level 2 takes a third longer for two percent
_EVENT_TYPES = {"slices": EventType.SLICE_BEGIN, "marks": EventType.INSTANT, "counter": EventType.COUNTER}
_Numbered = tuple[int, Subtrack]
"""A subtrack, and its number in its track."""


class Sink(Protocol):
    """Receiver of blocks."""

    def write(self, data: bytes, /) -> object:
        """Write all bytes."""


class _Field(Struct, frozen=True):
    """A field of the events of a batch."""

    number: int
    values: Array
    present: Bools | None = None  # mask of the values that are not null; None: all of them
    rows: Int64s | None = None  # of the values, for each row of the batch; None: in order
    is_raw: bool = False  # 8 bytes as they are
    argument: int = 0  # number of the argument's name; 0: the field is no argument

    def find_present(self, first: int, stop: int) -> Bools | None:
        """Return the mask of the rows [first, stop) that have the field; None: all of them."""
        if self.present is None:
            return None
        mask = self.present[first:stop] if self.rows is None else self.present[self.rows[first:stop]]
        return None if mask.all() else mask

    def encode(self, first: int, stop: int, chosen: Array | slice) -> Parts:
        """Encode the field for some of the rows [first, stop), which all have it."""
        values = self.values[first:stop] if self.rows is None else self.values.take(self.rows[first:stop])
        encoded = (fixed64 if self.is_raw else field)(self.number, values[chosen])
        if not self.argument:
            return encoded
        return message(TrackEvent.DEBUG_ANNOTATIONS, field(Annotation.NAME_IID, self.argument), encoded)


class _Batch(Struct, frozen=True, kw_only=True):
    """A batch of subtracks ready to be encoded block by block; the rows of a subtrack are together."""

    sequence: int
    track_uuids: NDArray[np.uint64]
    first_rows: Int64s  # first row of each subtrack
    event_type: int
    events: Events
    deltas_ns: Int64s  # since the previous event; of the first one of a subtrack, since the report's base
    fields: list[_Field]
    interned: bytes  # tables of strings


def encode_drawing(
    drawing: Drawing,
    sink: Sink,
    *,
    threads: int | None = None,
    frames: dict[int, FrameColumns] | None = None,
) -> Encoded:
    """Encode a drawing as blocks.

    Args:
        drawing: Drawing of a report.
        sink: Receives the blocks, in order.
        threads: Number of threads; each encodes and compresses one block at a time. Default: the number of
            processors, at most `MAX_THREADS`; 1 if the drawing has few rows. The bytes do not depend on it.
        frames: Columns of frames by id, which other drawings share; receives further ones. Default: none.

    Returns:
        The drawn tracks, and per subtrack the size of its blocks; subtracks without rows are skipped. The
        first subtrack of a batch has the blocks of all.

    Raises:
        ValueError: The drawing is invalid (see `nsys_pp.output.trace.drawing`).
    """
    tracks, subtracks = index_tracks(drawing), subtracks_by_track(drawing)
    frames = {} if frames is None else frames
    drawn = [node.track.path for node in arrange(tracks, subtracks)]
    all_subtracks = [one for of_track in subtracks.values() for one in of_track]
    base_ns = min((one.start_ns for one in all_subtracks), default=0)
    row_count, written = sum(len(one.rows) for one in all_subtracks), 0
    encoded: list[EncodedSubtrack] = []
    waiting: deque[tuple[int, Future[bytes]]] = deque()

    def write_until(most: int) -> None:
        """Write the first blocks until no more than `most` are left."""
        nonlocal written
        while len(waiting) > most:
            number, block = waiting.popleft()
            data, own = block.result(), encoded[number]
            sink.write(data)
            encoded[number] = replace(own, size_bytes=own.size_bytes + len(data))
            written = min(written + BLOCK_ROWS, row_count)  # the last block of a track has fewer
            report_stage(f"encoded {written:,} of {row_count:,} rows", written / row_count)

    count = threads or min(MAX_THREADS, pl.thread_pool_size())
    with ThreadPoolExecutor(count) as pool:
        for numbered in _list_batches(subtracks, drawn):
            batch = _prepare(numbered, drawing.report_id, base_ns, frames)
            number = len(encoded)
            encoded += _describe(numbered, batch)
            for first in range(0, len(batch.events.begin_index), BLOCK_ROWS):
                waiting.append((number, pool.submit(_encode_block, batch, first)))
                write_until(2 * count)
        write_until(0)
    return Encoded(
        report_id=drawing.report_id,
        base_ns=base_ns,
        tracks=[tracks[path] for path in drawn if path in tracks],
        subtracks=encoded,
    )


def leaf_uuid(report_id: int, path: Path, ordinal: int) -> int:
    """Hash a subtrack of a report to a uuid of 64 bits; the same subtrack has the same uuid in all traces."""
    text = "\0".join([f"{report_id:016x}", *path]) + f"\0\0{ordinal}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def compress(packets: bytes | NDArray[np.uint8]) -> bytes:
    """Encode one packet that holds the given packets, compressed."""
    data = deflate.zlib_compress(packets, COMPRESSION_LEVEL)
    inner = tag(TracePacket.COMPRESSED_PACKETS, DELIMITED) + varint(len(data))
    return b"".join((tag(Trace.PACKET, DELIMITED), varint(len(inner) + len(data)), inner, data))  # one copy


def reading(clock_id: int, timestamp: int | Array) -> Parts:
    """Encode the time of one clock within a snapshot."""
    return message(
        ClockSnapshot.CLOCKS, field(Reading.CLOCK_ID, clock_id), field(Reading.TIMESTAMP, timestamp)
    )


def _list_batches(subtracks: dict[Path, list[Subtrack]], drawn: Sequence[Path]) -> Iterator[list[_Numbered]]:
    """Yield the batches of each track: the subtracks of a frame together."""
    for path in drawn:
        for _, batch in groupby(enumerate(subtracks.get(path, ())), lambda one: id(one[1].source)):
            yield list(batch)


def _prepare(
    numbered: Sequence[_Numbered], report_id: int, base_ns: int, frames: dict[int, FrameColumns]
) -> _Batch:
    """Order the events of a batch and number its strings, in order of appearance."""
    subtracks = [subtrack for _, subtrack in numbered]
    kind, source = subtracks[0].kind, subtracks[0].source
    if id(source) not in frames:
        frames[id(source)] = FrameColumns(source)
    columns = frames[id(source)]
    rows = np.concatenate([one.rows for one in subtracks])
    heights = np.array([len(one.rows) for one in subtracks])
    first_rows = np.cumsum(heights) - heights
    if kind == "slices":
        start, end = (columns.find_values(name)[0].take(rows) for name in ("start_ns", "end_ns"))
        depth = np.concatenate([one.depth for one in subtracks])
        events = order_events(start, end, depth, first_rows)
    else:
        times = columns.find_values("time_ns")[0].take(rows)
        if np.diff(times).min(initial=0) < 0:
            raise ValueError("marks or samples of a subtrack are not in order of time")
        events = Events(times_ns=times, begin_index=np.arange(len(times)))
    if kind == "counter":
        values, _ = columns.find_values("value")
        fields, interned = [_Field(TrackEvent.COUNTER_DOUBLE, values, rows=rows, is_raw=True)], b""
    else:
        fields, interned = _collect_fields(columns, rows, SLICES if kind == "slices" else MARK_POINTS)
    deltas_ns = np.diff(events.times_ns, prepend=base_ns)
    first_events = events.begin_index[first_rows]
    deltas_ns[first_events] = events.times_ns[first_events] - base_ns
    uuids = [leaf_uuid(report_id, subtrack.track, ordinal) for ordinal, subtrack in numbered]
    return _Batch(
        sequence=sequence_id(report_id),
        track_uuids=np.array(uuids, dtype=np.uint64),
        first_rows=first_rows,
        event_type=_EVENT_TYPES[kind],
        events=events,
        deltas_ns=deltas_ns,
        fields=fields,
        interned=interned,
    )


def _collect_fields(columns: FrameColumns, rows: Int64s, schema: pl.Schema) -> tuple[list[_Field], bytes]:
    """Collect the fields of slices or marks: name, color, flows, arguments; and encode their strings."""
    dtypes = columns.dtypes  # of columns with values
    arguments = [name for name in columns.frame.columns if name not in schema and not is_flow(name)]
    names, event_names = columns.number([name for name in ["name"] if name in dtypes], rows)
    colors, keys = columns.number([name for name in ["color"] if name in dtypes], rows)
    words, texts = columns.number([name for name in arguments if isinstance(dtypes.get(name), WORDS)], rows)
    fields = [_Field(TrackEvent.NAME_IID, values, values > 0) for values in names.values()]
    fields += [_Field(TrackEvent.CORRELATION_STRING_IID, values, values > 0) for values in colors.values()]
    fields += [
        _Field(TrackEvent.FLOW_IDS, *columns.find_values(name), rows, is_raw=True)
        for name in dtypes
        if is_flow(name)
    ]
    for argument, name in enumerate(arguments, 1):
        if name in words:
            values = words[name]
            fields.append(_Field(Annotation.STRING_IID, values, values > 0, argument=argument))
        elif name in dtypes:
            is_raw, number = dtypes[name].is_float(), _find_kind(dtypes[name])
            found = columns.find_values(name)
            fields.append(_Field(number, *found, rows, is_raw=is_raw, argument=argument))
    tables = {
        InternedData.EVENT_NAMES: event_names,
        InternedData.CORRELATION_STRINGS: perfetto_seeds(keys),
        InternedData.ANNOTATION_NAMES: arguments,
        InternedData.ANNOTATION_STRINGS: texts,
    }
    encoded = [encode_strings(number, Interned.IID, Interned.TEXT, table) for number, table in tables.items()]
    return fields, b"".join(encoded)


def _find_kind(dtype: pl.DataType) -> int:
    if dtype.is_float():
        return Annotation.DOUBLE
    if dtype == pl.Boolean:
        return Annotation.BOOL
    return Annotation.INT if dtype.is_signed_integer() else Annotation.UINT


def _describe(numbered: Sequence[_Numbered], batch: _Batch) -> Iterator[EncodedSubtrack]:
    times_ns, firsts = batch.events.times_ns, batch.events.begin_index[batch.first_rows]
    lasts = np.append(firsts[1:], len(times_ns)) - 1
    for (ordinal, subtrack), first_ns, last_ns in zip(
        numbered, times_ns[firsts].tolist(), times_ns[lasts].tolist(), strict=True
    ):
        yield EncodedSubtrack(
            track=subtrack.track,
            ordinal=ordinal,
            kind=subtrack.kind,
            rows=len(subtrack.rows),
            first_ns=first_ns,
            last_ns=last_ns,
            size_bytes=0,
        )


def _encode_block(batch: _Batch, first: int) -> bytes:
    """Encode the rows of a block, with all ends of slices before the next row begins.

    As one compressed packet.
    """
    begin = batch.events.begin_index
    stop = min(first + BLOCK_ROWS, len(begin))
    low, high = int(begin[first]), int(begin[stop]) if stop < len(begin) else len(batch.deltas_ns)
    deltas = batch.deltas_ns[low:high].view(np.uint64)
    begins = begin[first:stop] - low
    # the packet that begins a further subtrack is before its first event
    opened = slice(*np.searchsorted(batch.first_rows[1:], (first, stop)))
    before = begins[batch.first_rows[1:][opened] - first]
    place = np.arange(len(deltas))
    place += np.searchsorted(before, place, side="right")
    records = []
    event_type = field(TrackEvent.TYPE, batch.event_type)
    for rows, fields in _list_shapes(batch.fields, first, stop):
        values = [one.encode(first, stop, rows) for one in fields]
        own = begins[rows]
        records.append((place[own], _encode_events(batch.sequence, deltas[own], event_type, *values)))
    is_end = np.ones(len(deltas), dtype=bool)
    is_end[begins] = False
    ends = np.flatnonzero(is_end)
    event_type = field(TrackEvent.TYPE, EventType.SLICE_END)
    records.append((place[ends], _encode_events(batch.sequence, deltas[ends], event_type)))
    openings = message(
        Trace.PACKET,
        field(TracePacket.SEQUENCE_ID, batch.sequence),
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.NEEDS_INCREMENTAL_STATE),
        _defaults(batch.track_uuids[1:][opened]),
        _restart_clock(),
    )
    records.append((place[before] - 1, encode_rows(openings, len(before))))
    packets = join_records([record for record in records if len(record[0])])
    if first:
        return compress(packets)
    opening = message(  # clears the state of the sequence, and sets defaults, strings and the clock
        Trace.PACKET,
        field(TracePacket.SEQUENCE_ID, batch.sequence),
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.INCREMENTAL_STATE_CLEARED),
        _defaults(int(batch.track_uuids[0])),
        field(TracePacket.INTERNED_DATA, batch.interned),
        _restart_clock(),
    )
    return compress(np.concatenate((np.frombuffer(constant(opening), np.uint8), packets)))


def _list_shapes(
    fields: Sequence[_Field], first: int, stop: int
) -> Iterator[tuple[Array | slice, list[_Field]]]:
    """Group the rows [first, stop) by their fields; yield the rows and the fields of each group."""
    masks = [one.find_present(first, stop) for one in fields]
    nullable = [mask for mask in masks if mask is not None and mask.any()]
    if not nullable:
        yield slice(None), [one for one, mask in zip(fields, masks, strict=True) if mask is None]
        return
    first_of, shape = find_distinct(pack(*(mask.astype(np.int64) for mask in nullable)))
    for row, rows in zip(first_of, list_groups(shape, len(first_of)), strict=True):
        yield rows, [one for one, mask in zip(fields, masks, strict=True) if mask is None or mask[row]]


def _encode_events(sequence: int, deltas: NDArray[np.uint64], *event: Parts) -> NDArray[np.uint8]:
    packet = message(
        Trace.PACKET,
        field(TracePacket.TIMESTAMP, deltas),
        field(TracePacket.SEQUENCE_ID, sequence),
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.NEEDS_INCREMENTAL_STATE),
        message(TracePacket.TRACK_EVENT, *event),
    )
    return encode_rows(packet, len(deltas))


def _defaults(track_uuid: int | NDArray[np.uint64]) -> Parts:
    return message(
        TracePacket.DEFAULTS,
        field(Defaults.TIMESTAMP_CLOCK_ID, BuiltinClock.OF_SUBTRACK),
        message(Defaults.TRACK_EVENT, field(TrackEvent.TRACK_UUID, track_uuid)),
    )


@cache
def _restart_clock() -> Parts:
    """Encode the snapshot that resets the subtrack clock to the report's base."""
    own = message(
        ClockSnapshot.CLOCKS,
        field(Reading.CLOCK_ID, BuiltinClock.OF_SUBTRACK),
        field(Reading.TIMESTAMP, 0),
        field(Reading.IS_INCREMENTAL, True),
    )
    return message(TracePacket.CLOCK_SNAPSHOT, own, reading(BuiltinClock.OF_REPORT, 0))
