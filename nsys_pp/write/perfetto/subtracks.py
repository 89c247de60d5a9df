"""Subtracks of a drawing as Perfetto packets; all subtracks of a report share one packet sequence.

The sequence begins with a preamble (`nsys_pp.write.perfetto.clocks`). The subtracks follow one after another, as
compressed blocks that depend on the report only. The slice subtracks of a track are a batch: where many slices overlap, a track
has thousands of small subtracks. The first packet of a batch clears the incremental state of the sequence (strings,
defaults, time of the last event) and sets its own, so a merge may omit any track. Each further subtrack of the batch
begins with a packet that sets its track and restarts the time of the last event.

Source: `docs/reference/synthetic-track-event.md` (sequences, interning, incremental state) of
https://github.com/google/perfetto/blob/v52.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.columns import list_distinct
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.write.perfetto.clocks import restart_subtrack_clock
from nsys_pp.write.perfetto.packets import PacketBlock, PacketGroup
from nsys_pp.write.perfetto.protobuf import (
    Annotation,
    BuiltinClock,
    Defaults,
    EventType,
    Interned,
    InternedData,
    SequenceFlags,
    Trace,
    TracePacket,
    TrackEvent,
)
from nsys_pp.write.perfetto.wire import (
    Array,
    Parts,
    constant,
    encode_strings,
    field,
    fixed64,
    message,
)
from nsys_pp.write.trace.colors import perfetto_seeds
from nsys_pp.write.trace.drawing import (
    MARK_POINTS,
    SLICES,
    CounterSubtrack,
    MarkSubtrack,
    SliceSubtrack,
    Subtrack,
    is_flow,
)
from nsys_pp.write.trace.events import Events, order_events
from nsys_pp.write.trace.strings import WORDS, intern
from nsys_pp.write.trace.subtrack_columns import SubtrackColumns
from nsys_pp.write.trace.tree import count_rows

BLOCK_ROWS = 1 << 15  # a block has 1-3 MB before compression
MAX_NULLABLE = 63  # columns with nulls in one subtrack: the present fields of a row are bits of a 64-bit key


class RowField(Struct, frozen=True, kw_only=True):
    """A field of the events of a subtrack: one value per row, and the mask of rows with a value."""

    encode: Callable[[Array], Parts]
    values: Array
    present: Bools | None  # None: all rows have a value
    rows: Int64s | None = None  # of the values, in order; None: values are in order


class PacketBatch(Struct, frozen=True, kw_only=True):
    """A batch of subtracks ready to be encoded block by block; the rows of a subtrack are together."""

    sequence: int
    track_uuids: NDArray[np.uint64]
    first_rows: NDArray[np.int64]  # first row of each subtrack
    event_type: int
    events: Events
    deltas_ns: NDArray[
        np.int64
    ]  # since the previous event; of the first one of a subtrack, since the report's base
    fields: list[RowField]
    interned: list[tuple[int, pl.Series]]  # tables of strings, each with its field of InternedData


def prepare_batch(
    subtracks: Sequence[Subtrack],
    columns: SubtrackColumns,
    *,
    sequence: int,
    track_uuids: Sequence[int],
    base_ns: int,
) -> PacketBatch:
    """Order the events of the subtracks of a batch and number its strings.

    Args:
        subtracks: Subtracks with at least one row; several only of slices of one track with the same columns.
        columns: Prepared columns of all their rows, one subtrack after the other.
        sequence: The packet sequence of its report.
        track_uuids: Perfetto's uuid of each subtrack's own track.
        base_ns: Origin of times, ns on the report's clock; not after the first event.

    Returns:
        The prepared batch; its strings are numbered in order of appearance.

    Raises:
        ValueError: Rows are not in order, or slices do not nest, or nest too deep.
    """
    heights = np.array([count_rows(subtrack) for subtrack in subtracks])
    first_rows = np.cumsum(heights) - heights
    event_type, events = _events(subtracks[0], columns, first_rows)
    interned: list[tuple[int, pl.Series]] = []
    fields: list[RowField] = []
    if isinstance(subtracks[0], CounterSubtrack):
        values = columns.gather("value")
        fields.append(
            RowField(encode=partial(fixed64, TrackEvent.COUNTER_DOUBLE), values=values, present=None)
        )
    else:
        fields, interned = _collect_fields(
            columns, SLICES if isinstance(subtracks[0], SliceSubtrack) else MARK_POINTS
        )
    deltas_ns = np.diff(events.times_ns, prepend=base_ns)
    first_events = events.begin_index[first_rows]
    deltas_ns[first_events] = events.times_ns[first_events] - base_ns
    return PacketBatch(
        sequence=sequence,
        track_uuids=np.array(track_uuids, dtype=np.uint64),
        first_rows=first_rows,
        event_type=event_type,
        events=events,
        deltas_ns=deltas_ns,
        fields=fields,
        interned=interned,
    )


def block_tasks(batch: PacketBatch) -> Iterator[Callable[[], PacketBlock]]:
    """Yield one task per block of a batch; a task builds its block. Tasks may run in any order and in any thread."""
    rows = len(batch.events.begin_index)
    for first in range(0, rows, BLOCK_ROWS):
        yield partial(_build_block, batch, first, min(first + BLOCK_ROWS, rows))


def _events(kind: Subtrack, columns: SubtrackColumns, first_rows: NDArray[np.int64]) -> tuple[int, Events]:
    if isinstance(kind, SliceSubtrack):
        start, end = columns.gather("start_ns"), columns.gather("end_ns")
        return EventType.SLICE_BEGIN, order_events(start, end, columns.depth, first_rows)
    times = columns.gather("time_ns")
    if np.diff(times).min(initial=0) < 0:
        raise ValueError("marks or samples of a subtrack are not in order of time")
    event_type = EventType.INSTANT if isinstance(kind, MarkSubtrack) else EventType.COUNTER
    return event_type, Events(times_ns=times, begin_index=np.arange(len(times)))


def _collect_fields(
    columns: SubtrackColumns, schema: pl.Schema
) -> tuple[list[RowField], list[tuple[int, pl.Series]]]:
    """Collect the fields of slices or marks (name, color, flow, arguments), and their tables of strings."""
    frame = columns.source.frame
    arguments = [column for column in frame.columns if column not in schema and not is_flow(column)]
    empty = pl.Series([], dtype=pl.String)
    strings, texts = [empty], {"name": empty, "color": empty}
    encoders: dict[str, Callable[[Array], Parts]] = {
        "name": partial(field, TrackEvent.NAME_IID),
        "color": partial(field, TrackEvent.CORRELATION_STRING_IID),
    }
    values: dict[str, Array] = {}
    for column in texts:
        if columns.has_values(column):
            texts[column], values[column] = intern(frame[column], columns.gather(column), columns.rows)
    for column in filter(is_flow, frame.columns):
        if columns.has_values(column):
            encoders[column] = partial(fixed64, TrackEvent.FLOW_IDS)
            values[column] = columns.source.array(column)
    for i, column in enumerate(arguments):
        if columns.has_values(column):
            number, values[column] = _argument(columns, column, strings)
            encoders[column] = partial(_annotation, i + 1, number)
    fields = [
        RowField(
            encode=encoders[column],
            values=of_rows,
            present=columns.present(column),
            rows=None if isinstance(frame[column].dtype, WORDS) else columns.rows,
        )
        for column, of_rows in values.items()
    ]
    return fields, [
        (InternedData.EVENT_NAMES, texts["name"]),
        (InternedData.CORRELATION_STRINGS, perfetto_seeds(texts["color"])),
        (InternedData.ANNOTATION_NAMES, pl.Series(arguments, dtype=pl.String)),
        (InternedData.ANNOTATION_STRINGS, pl.concat(strings)),
    ]


def _argument(columns: SubtrackColumns, column: str, strings: list[pl.Series]) -> tuple[int, Array]:
    """Return the field number of an argument, and its values: of all rows of the source, or numbers of the strings of each row.

    The strings are appended to `strings` and numbered on.
    """
    source = columns.source
    dtype = source.frame[column].dtype
    if dtype.is_integer():
        return Annotation.INT if dtype.is_signed_integer() else Annotation.UINT, source.array(column)
    if dtype.is_float():
        return Annotation.DOUBLE, source.array(column)
    if dtype == pl.Boolean:
        return Annotation.BOOL, source.array(column)
    texts, ids = intern(source.frame[column], columns.gather(column), columns.rows)
    ids += np.uint32(sum(map(len, strings)))
    strings.append(texts)
    return Annotation.STRING_IID, ids


def _annotation(name_id: int, number: int, values: Array) -> Parts:
    return message(TrackEvent.DEBUG_ANNOTATIONS, field(Annotation.NAME_IID, name_id), field(number, values))


def _build_block(batch: PacketBatch, first: int, stop: int) -> PacketBlock:
    """Build the packets of the rows [first, stop), with all ends of slices before row `stop` begins."""
    begin = batch.events.begin_index
    low = int(begin[first])
    high = int(begin[stop]) if stop < len(begin) else len(batch.deltas_ns)
    deltas = batch.deltas_ns[low:high].view(np.uint64)
    begins = begin[first:stop] - low
    # the packet that begins a subtrack is before its first event; the first packet of the batch is written apart
    opened = np.searchsorted(batch.first_rows[1:], (first, stop))
    before = begins[batch.first_rows[1:][slice(*opened)] - first]
    place = np.arange(len(deltas))
    if len(before):
        place += np.searchsorted(before, place, side="right")
    groups = [
        PacketGroup(
            positions=place[begins[rows]], parts=_begins(batch, deltas[begins[rows]], first, rows, fields)
        )
        for rows, fields in _shapes(batch.fields, first, stop)
    ]
    if len(deltas) > len(begins):
        is_end = np.ones(len(deltas), dtype=bool)
        is_end[begins] = False
        ends = np.flatnonzero(is_end)
        closing = _packets(batch, deltas[ends], field(TrackEvent.TYPE, EventType.SLICE_END))
        groups.append(PacketGroup(positions=place[ends], parts=closing))
    if len(before):
        openings = _openings(batch, batch.track_uuids[1:][slice(*opened)])
        groups.append(PacketGroup(positions=place[before] - 1, parts=openings))
    return PacketBlock(head=_encode_first_packet(batch) if first == 0 else b"", groups=groups)


def _shapes(fields: list[RowField], first: int, stop: int) -> Iterator[tuple[Array | slice, list[RowField]]]:
    """Group rows by the set of fields that they have; yield the rows and the fields of each group."""
    nullable = [(row_field, row_field.present) for row_field in fields if row_field.present is not None]
    if len(nullable) > MAX_NULLABLE:
        raise ValueError(f"more than {MAX_NULLABLE} arguments of a subtrack have nulls")
    if not nullable:
        yield slice(None), fields
        return
    key = np.zeros(stop - first, dtype=np.uint64)
    for bit, (_, present) in enumerate(nullable):
        key |= present[first:stop].astype(np.uint64) << np.uint64(bit)
    for shape in list_distinct(key):
        has = {id(row_field): bool(int(shape) >> bit & 1) for bit, (row_field, _) in enumerate(nullable)}
        yield np.flatnonzero(key == shape), [f for f in fields if has.get(id(f), True)]


def _begins(
    batch: PacketBatch, deltas: Array, first: int, rows: Array | slice, fields: list[RowField]
) -> Parts:
    span = slice(first, first + BLOCK_ROWS)
    encoded = []
    for row_field in fields:
        if row_field.rows is None:
            values = row_field.values[span][rows]
        else:
            values = row_field.values.take(row_field.rows[span][rows])
        encoded.append(row_field.encode(values))
    return _packets(batch, deltas, field(TrackEvent.TYPE, batch.event_type), *encoded)


def _packets(batch: PacketBatch, deltas: Array, *event: Parts) -> Parts:
    return message(
        Trace.PACKET,
        field(TracePacket.TIMESTAMP, deltas),
        field(TracePacket.SEQUENCE_ID, batch.sequence),
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.NEEDS_INCREMENTAL_STATE),
        message(TracePacket.TRACK_EVENT, *event),
    )


def _openings(batch: PacketBatch, track_uuids: NDArray[np.uint64]) -> Parts:
    """Build the packets that begin further subtracks: they set the track, and restart the clock; strings stay."""
    return message(
        Trace.PACKET,
        field(TracePacket.SEQUENCE_ID, batch.sequence),
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.NEEDS_INCREMENTAL_STATE),
        _defaults(track_uuids),
        restart_subtrack_clock(),
    )


def _encode_first_packet(batch: PacketBatch) -> bytes:
    """Encode the first packet of a batch: it clears the sequence's state, and sets defaults, strings and the clock."""
    tables = b"".join(
        encode_strings(number, Interned.IID, Interned.TEXT, strings) for number, strings in batch.interned
    )
    return constant(
        message(
            Trace.PACKET,
            field(TracePacket.SEQUENCE_ID, batch.sequence),
            field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.INCREMENTAL_STATE_CLEARED),
            _defaults(int(batch.track_uuids[0])),
            field(TracePacket.INTERNED_DATA, tables),
            restart_subtrack_clock(),
        )
    )


def _defaults(track_uuid: int | NDArray[np.uint64]) -> Parts:
    return message(
        TracePacket.DEFAULTS,
        field(Defaults.TIMESTAMP_CLOCK_ID, BuiltinClock.OF_SUBTRACK),
        message(Defaults.TRACK_EVENT, field(TrackEvent.TRACK_UUID, track_uuid)),
    )
