"""Subtracks of a drawing as Perfetto packets; all subtracks of a report share one packet sequence.

The sequence begins with a preamble (`nsys_pp.output.perfetto.clocks`). The subtracks follow one after another, as
compressed blocks that depend on the report only. The slice subtracks of a track are a batch: where many slices overlap, a track
has thousands of small subtracks. The first packet of a batch clears the incremental state of the sequence (strings,
defaults, time of the last event) and sets its own, so a merge may omit any track. Each further subtrack of the batch
begins with a packet that sets its track and restarts the time of the last event.

Source: `docs/reference/synthetic-track-event.md` (sequences, interning, incremental state) of
https://github.com/google/perfetto/blob/v52.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.columns import list_distinct
from nsys_pp.arrays.row_packets import RowColumn
from nsys_pp.arrays.types import Bools, Bytes
from nsys_pp.output.perfetto.clocks import restart_subtrack_clock
from nsys_pp.output.perfetto.packets import PacketBlock, PacketGroup
from nsys_pp.output.perfetto.protobuf import (
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
from nsys_pp.output.perfetto.wire import (
    DELIMITED,
    Array,
    Column,
    Parts,
    encode_strings,
    field,
    fixed64,
    message,
    tag,
    varint,
)
from nsys_pp.output.trace.colors import perfetto_seeds
from nsys_pp.output.trace.drawing import (
    MARK_POINTS,
    SLICES,
    CounterSubtrack,
    MarkSubtrack,
    SliceSubtrack,
    Subtrack,
    is_flow,
)
from nsys_pp.output.trace.events import Events, order_events
from nsys_pp.output.trace.strings import WORDS, Strings
from nsys_pp.output.trace.subtrack_columns import Source, SubtrackColumns
from nsys_pp.output.trace.tree import count_rows

_FEW_STRINGS, _CACHE_SIZE = 127, 256  # tables of a run that repeat
_LARGE_BYTES = 1 << 20  # of tables that are copied to an array, which can be in a file
_NOTHING = np.empty((0, 0), np.uint8)
BLOCK_ROWS = 1 << 15  # a block has 1-3 MB before compression
MAX_NULLABLE = 63  # columns with nulls in one subtrack: the present fields of a row are bits of a 64-bit key


class FieldKind(Struct, frozen=True):
    """Kind of a field of events: a number, and the number of the name for an argument."""

    number: int
    is_raw: bool = False  # 8 bytes as they are
    argument: int = 0  # number of the argument's name; 0: the field is no argument

    def encode(self, values: Array | Column) -> Parts:
        """Encode the field for rows that all have it."""
        value = fixed64(self.number, values) if self.is_raw else field(self.number, values)
        if not self.argument:
            return value
        return message(TrackEvent.DEBUG_ANNOTATIONS, field(Annotation.NAME_IID, self.argument), value)


class RowField(Struct, frozen=True, kw_only=True):
    """A field of the events of a subtrack."""

    kind: FieldKind
    column: RowColumn

    def present(self, first: int, stop: int) -> Bools | None:
        """Return the mask of the rows [first, stop) that have the field; None: all of them."""
        column = self.column
        if column.is_number:
            mask = column.values[first:stop] != 0
        elif column.present is None:
            return None
        else:
            mask = (
                column.present[first:stop] if column.rows is None else column.present[column.rows[first:stop]]
            )
        return None if mask.all() else mask

    def gather(self, first: int, stop: int) -> Array:
        """Return the values of the rows [first, stop)."""
        values, rows = self.column.values, self.column.rows
        return values[first:stop] if rows is None else values.take(rows[first:stop])


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
    interned: list[tuple[int, Strings]]  # tables of strings, each with its field of InternedData


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
    interned: list[tuple[int, Strings]] = []
    fields: list[RowField] = []
    if isinstance(subtracks[0], CounterSubtrack):
        kind, values = FieldKind(TrackEvent.COUNTER_DOUBLE, is_raw=True), columns.gather("value")
        fields.append(RowField(kind=kind, column=RowColumn(values=values, is_raw=True)))
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


def list_blocks(batch: PacketBatch) -> Iterator[tuple[int, int]]:
    """Yield the first and the end row of each block of a batch. Blocks may be built in any order and in any thread."""
    rows = len(batch.events.begin_index)
    for first in range(0, rows, BLOCK_ROWS):
        yield first, min(first + BLOCK_ROWS, rows)


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
) -> tuple[list[RowField], list[tuple[int, Strings]]]:
    """Collect the fields of slices or marks (name, color, flow, arguments), and their tables of strings."""
    source = columns.source
    if source.plan is None:  # the subtracks of a frame have the same fields
        source.plan = _plan_fields(source, schema)
    plan: _Plan = source.plan
    numbers, (event_names, colors, texts) = columns.number(plan.words)
    fields = []
    for column, kind in plan.kinds.items():
        if column in numbers:
            values = RowColumn(values=numbers[column], is_number=True)
        else:
            values = RowColumn(
                values=source.array(column),
                rows=columns.rows,
                present=source.present(column),
                is_raw=kind.is_raw,
            )
        fields.append(RowField(kind=kind, column=values))
    return fields, [
        (InternedData.EVENT_NAMES, event_names),
        (InternedData.CORRELATION_STRINGS, perfetto_seeds(colors)),
        (InternedData.ANNOTATION_NAMES, plan.arguments),
        (InternedData.ANNOTATION_STRINGS, texts),
    ]


class _Plan(Struct, frozen=True):
    """Fields of the slices or marks of a frame."""

    kinds: dict[str, FieldKind]  # of each column with values
    words: list[list[str]]  # columns with values that are strings: names, colors, arguments
    arguments: list[str]  # their names, in order of their numbers


def _plan_fields(source: Source, schema: pl.Schema) -> _Plan:
    dtypes = source.dtypes
    arguments = [column for column in dtypes if column not in schema and not is_flow(column)]
    words = [column for column in arguments if isinstance(dtypes[column], WORDS)]
    kinds = {"name": FieldKind(TrackEvent.NAME_IID), "color": FieldKind(TrackEvent.CORRELATION_STRING_IID)}
    kinds |= {column: FieldKind(TrackEvent.FLOW_IDS, is_raw=True) for column in dtypes if is_flow(column)}
    kinds |= {column: _argument(dtypes[column], number) for number, column in enumerate(arguments, 1)}
    return _Plan(
        kinds={column: kind for column, kind in kinds.items() if source.has_values(column)},
        words=[
            [column for column in group if source.has_values(column)]
            for group in (["name"], ["color"], words)
        ],
        arguments=arguments,
    )


@cache
def _argument(dtype: pl.DataType, number: int) -> FieldKind:
    """Return the kind of the field of an argument, whose name has a number."""
    if isinstance(dtype, WORDS):
        return FieldKind(Annotation.STRING_IID, argument=number)
    if dtype.is_float():
        return FieldKind(Annotation.DOUBLE, is_raw=True, argument=number)
    if dtype == pl.Boolean:
        return FieldKind(Annotation.BOOL, argument=number)
    return FieldKind(Annotation.INT if dtype.is_signed_integer() else Annotation.UINT, argument=number)


def build_block(batch: PacketBatch, first: int, stop: int) -> PacketBlock:
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
        groups.append(PacketGroup(positions=place[ends], parts=end_packets(batch.sequence, deltas[ends])))
    if len(before):
        openings = opening_packets(batch.sequence, batch.track_uuids[1:][slice(*opened)])
        groups.append(PacketGroup(positions=place[before] - 1, parts=openings))
    return PacketBlock(head=encode_first_packet(batch) if first == 0 else b"", groups=groups)


def _shapes(fields: list[RowField], first: int, stop: int) -> Iterator[tuple[Array | slice, list[RowField]]]:
    """Group rows by the set of fields that they have; yield the rows and the fields of each group."""
    masks = [(row_field, row_field.present(first, stop)) for row_field in fields]
    used = [(row_field, mask) for row_field, mask in masks if mask is None or mask.any()]
    nullable = [(row_field, mask) for row_field, mask in used if mask is not None]
    if len(nullable) > MAX_NULLABLE:
        raise ValueError(f"more than {MAX_NULLABLE} arguments of a subtrack have nulls")
    if not nullable:
        yield slice(None), [row_field for row_field, _ in used]
        return
    key = np.zeros(stop - first, dtype=np.uint64)
    for bit, (_, mask) in enumerate(nullable):
        key |= mask.astype(np.uint64) << np.uint64(bit)
    for shape in list_distinct(key):
        has = {id(row_field): bool(int(shape) >> bit & 1) for bit, (row_field, _) in enumerate(nullable)}
        yield np.flatnonzero(key == shape), [f for f, _ in used if has.get(id(f), True)]


def _begins(
    batch: PacketBatch, deltas: Array, first: int, rows: Array | slice, fields: list[RowField]
) -> Parts:
    stop = min(first + BLOCK_ROWS, len(batch.events.begin_index))
    values = [row_field.gather(first, stop)[rows] for row_field in fields]
    kinds = [row_field.kind for row_field in fields]
    return begin_packets(batch.sequence, batch.event_type, deltas, kinds, values)


def begin_packets(
    sequence: int | Column,
    event_type: int,
    deltas: Array | Column,
    kinds: Sequence[FieldKind],
    values: Sequence[Array | Column],
) -> Parts:
    """Build packets of events with the same fields: begins of slices, marks or samples."""
    encoded = [kind.encode(column) for kind, column in zip(kinds, values, strict=True)]
    return _packets(sequence, deltas, field(TrackEvent.TYPE, event_type), *encoded)


def end_packets(sequence: int | Column, deltas: Array | Column) -> Parts:
    """Build packets of ends of slices."""
    return _packets(sequence, deltas, field(TrackEvent.TYPE, EventType.SLICE_END))


def _packets(sequence: int | Column, deltas: Array | Column, *event: Parts) -> Parts:
    return message(
        Trace.PACKET,
        field(TracePacket.TIMESTAMP, deltas),
        field(TracePacket.SEQUENCE_ID, sequence),
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.NEEDS_INCREMENTAL_STATE),
        message(TracePacket.TRACK_EVENT, *event),
    )


def opening_packets(sequence: int | Column, track_uuids: NDArray[np.uint64] | Column) -> Parts:
    """Build the packets that begin further subtracks: they set the track, and restart the clock; strings stay."""
    return message(
        Trace.PACKET,
        field(TracePacket.SEQUENCE_ID, sequence),
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.NEEDS_INCREMENTAL_STATE),
        _defaults(track_uuids),
        restart_subtrack_clock(),
    )


def encode_first_packet(batch: PacketBatch) -> bytes | Bytes:
    """Encode the first packet of a batch: it clears the sequence's state, and sets defaults, strings and the clock."""
    tables = [_encode_table(number, strings) for number, strings in batch.interned]
    size = sum(map(len, tables))
    packet = message(
        Trace.PACKET,
        field(TracePacket.SEQUENCE_ID, batch.sequence),
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.INCREMENTAL_STATE_CLEARED),
        _defaults(int(batch.track_uuids[0])),
        (tag(TracePacket.INTERNED_DATA, DELIMITED) + varint(size), Column(_NOTHING, size)),
        restart_subtrack_clock(),
    )
    pieces = [piece for part in packet for piece in ([part] if isinstance(part, bytes) else tables)]
    if size < _LARGE_BYTES:
        return b"".join([bytes(piece) for piece in pieces])
    return np.concatenate([np.frombuffer(piece, np.uint8) for piece in pieces if len(piece)])


def _encode_table(number: int, strings: Strings) -> bytes | Bytes:
    if isinstance(strings, list) and len(strings) <= _FEW_STRINGS:
        return _encode_few(number, tuple(strings))
    return encode_strings(number, Interned.IID, Interned.TEXT, strings)


@lru_cache(_CACHE_SIZE)
def _encode_few(number: int, strings: tuple[str, ...]) -> bytes | Bytes:
    """Encode a table as others of the run that have the same strings."""
    return encode_strings(number, Interned.IID, Interned.TEXT, strings)


def _defaults(track_uuid: int | NDArray[np.uint64] | Column) -> Parts:
    return message(
        TracePacket.DEFAULTS,
        field(Defaults.TIMESTAMP_CLOCK_ID, BuiltinClock.OF_SUBTRACK),
        message(Defaults.TRACK_EVENT, field(TrackEvent.TRACK_UUID, track_uuid)),
    )
