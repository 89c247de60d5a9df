"""Field numbers and enum values of Perfetto's messages; no other module has them.

One class per message, fields in order of their numbers. Source:
https://github.com/google/perfetto/blob/v52.0/protos/perfetto/trace (`trace_packet.proto`,
`track_event/track_event.proto`, `track_event/track_descriptor.proto`,
`track_event/debug_annotation.proto`, `interned_data/interned_data.proto`, `clock_snapshot.proto`,
`trace_packet_defaults.proto`); `TraceAttributes` is of v55.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class Trace:
    """The file: a sequence of packets."""

    PACKET = 1


class TracePacket:
    """One packet; its kind is the field that is set."""

    CLOCK_SNAPSHOT = 6
    TIMESTAMP = 8
    SEQUENCE_ID = 10  # trusted_packet_sequence_id
    TRACK_EVENT = 11
    INTERNED_DATA = 12
    SEQUENCE_FLAGS = 13
    COMPRESSED_PACKETS = 50
    DEFAULTS = 59  # trace_packet_defaults
    TRACK_DESCRIPTOR = 60
    FIRST_PACKET_ON_SEQUENCE = 87
    TRACE_ATTRIBUTES = 126  # since v55


class SequenceFlags:
    """Flags: a packet clears the incremental state of its sequence, or needs it."""

    INCREMENTAL_STATE_CLEARED = 1
    NEEDS_INCREMENTAL_STATE = 2


class ClockSnapshot:
    """Readings of several clocks at one moment."""

    CLOCKS = 1
    PRIMARY_TRACE_CLOCK = 2


class Reading:
    """Time of one clock at the moment of a snapshot (`ClockSnapshot.Clock`)."""

    CLOCK_ID = 1
    TIMESTAMP = 2
    IS_INCREMENTAL = 3


class BuiltinClock:
    """Ids of clocks: two built-in ones, and ours (64-127 are local to a sequence)."""

    REALTIME = 1
    BOOTTIME = 6  # the trace's own clock
    OF_REPORT = 64
    OF_SUBTRACK = 65


class TrackDescriptor:
    """A track, its parent, and its order among its siblings."""

    UUID = 1
    NAME = 2
    PARENT_UUID = 5
    COUNTER = 8
    CHILD_ORDERING = 11
    SIBLING_ORDER_RANK = 12
    DESCRIPTION = 14
    SIBLING_MERGE_BEHAVIOR = 15
    SIBLING_MERGE_KEY = 16


class ChildOrdering:
    """Order of a track's children."""

    EXPLICIT = 3


class SiblingMerge:
    """Merging of sibling tracks into one row."""

    NONE = 2
    BY_SIBLING_MERGE_KEY = 3


class CounterDescriptor:
    """Descriptor of a counter track."""

    UNIT = 3
    UNIT_NAME = 6


class CounterUnit:
    """Units that the UI formats."""

    TIME_NS = 1
    COUNT = 2
    SIZE_BYTES = 3


class TrackEvent:
    """A slice begin, a slice end, an instant or a counter sample."""

    DEBUG_ANNOTATIONS = 4
    TYPE = 9
    NAME_IID = 10
    TRACK_UUID = 11
    NAME = 23
    COUNTER_DOUBLE = 44
    FLOW_IDS = 47  # fixed64
    CORRELATION_STRING_IID = 54


class EventType:
    """Types of track events."""

    SLICE_BEGIN = 1
    SLICE_END = 2
    INSTANT = 3
    COUNTER = 4


class Annotation:
    """An argument of an event (`DebugAnnotation`)."""

    NAME_IID = 1
    BOOL = 2
    UINT = 3
    INT = 4
    DOUBLE = 5
    STRING_IID = 17


class InternedData:
    """Tables of strings, each numbered separately."""

    EVENT_NAMES = 2
    ANNOTATION_NAMES = 3
    ANNOTATION_STRINGS = 29
    CORRELATION_STRINGS = 43


class Interned:
    """A row of a table of strings (`EventName`, `DebugAnnotationName`, `InternedString`)."""

    IID = 1
    TEXT = 2


class Defaults:
    """Default fields of all packets of a sequence (`TracePacketDefaults`)."""

    TRACK_EVENT = 11
    TIMESTAMP_CLOCK_ID = 58


class TraceAttributes:
    """Facts about the whole trace."""

    ATTRIBUTE = 1


class Attribute:
    """One fact: a key and its value (`TraceAttributes.Attribute`)."""

    KEY = 1
    STRING = 3


Array = NDArray[Any]

VARINT, FIXED64, DELIMITED = 0, 1, 2  # wire types


class Column(Struct, frozen=True):
    """Values of one part, one per row.

    Unsigned integers (for varints), or an (n, width) matrix of raw bytes.
    """

    values: Array
    width: int

    def __len__(self) -> int:
        """Return the width in bytes: parts of both kinds have a length."""
        return self.width


Part = bytes | Column

Parts = tuple[Part, ...]


def varint(value: int) -> bytes:
    """Encode one integer in the fewest bytes; a negative integer as its 64-bit two's complement.

    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    if 0 <= value <= 0x7F:
        return bytes((value,))
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@cache
def tag(number: int, wire_type: int) -> bytes:
    """Encode the key in front of a field's value."""
    return varint(number << 3 | wire_type)


def field(number: int, value: int | float | str | bytes | Array) -> Parts:
    """Encode one field: a constant, or a column.

    Args:
        number: The field's number.
        value: An int or bool (varint), float (double), str or bytes; or an array with one value per row:
            integers or booleans (varint; ten bytes wide if any is negative), float64 (double), or a
            matrix of uint8 (bytes, one row per message).

    Returns:
        The field's parts.
    """
    if isinstance(value, np.ndarray):
        if value.ndim == 2:
            return (tag(number, DELIMITED) + varint(value.shape[1]), Column(value, value.shape[1]))
        if value.dtype.kind == "f":
            return fixed64(number, value)
        return (tag(number, VARINT), _varint_column(value))
    if isinstance(value, float):
        return (tag(number, FIXED64) + struct.pack("<d", value),)
    if isinstance(value, int):
        return (tag(number, VARINT) + varint(value),)
    data = value.encode() if isinstance(value, str) else value
    return (tag(number, DELIMITED) + varint(len(data)) + data,)


def fixed64(number: int, values: Array) -> Parts:
    """Encode a column of 64-bit values with their little-endian bytes: fixed64, sfixed64 or double."""
    raw = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
    return (tag(number, FIXED64), Column(raw.view(np.uint8).reshape(-1, 8), 8))


def message(number: int, *fields: Parts) -> Parts:
    """Encode a field with a message of these fields."""
    parts = [part for parts in fields for part in parts]
    return (tag(number, DELIMITED) + varint(_width(parts)), *parts)


def constant(*fields: Parts) -> bytes:
    """Encode fields that have no column.

    >>> constant(message(1, field(2, 7), field(3, "x"))).hex()
    '0a0510071a0178'
    """
    return b"".join(part for parts in fields for part in parts if isinstance(part, bytes))


def encode_rows(parts: Parts, rows: int) -> NDArray[np.uint8]:
    """Encode one message per row.

    Args:
        parts: The message; every column has `rows` values.
        rows: Number of rows.

    Returns:
        A (rows, width) matrix: one message per row, in row order.

    >>> encode_rows(field(1, np.array([1, 300])), 2).tolist()
    [[8, 129, 0], [8, 172, 2]]
    """
    template = b"".join([part if isinstance(part, bytes) else bytes(part.width) for part in parts])
    matrix = np.empty((rows, len(template)), dtype=np.uint8)
    matrix[:] = np.frombuffer(template, dtype=np.uint8)
    at = 0
    for part in parts:
        if isinstance(part, Column):
            _fill(matrix[:, at : at + part.width], part)
        at += len(part)
    return matrix


def join_records(groups: Sequence[tuple[Array, NDArray[np.uint8]]]) -> NDArray[np.uint8]:
    """Concatenate groups of records, each group with its own width, in the order of their indices.

    Args:
        groups: The indices of a group's records among all records, and the records as a matrix. Together the
            indices are 0, 1, ... without a gap.

    Returns:
        The bytes of all records in order of their indices.

    >>> a, b = np.array([[1], [1]], dtype=np.uint8), np.array([[2, 3]], dtype=np.uint8)
    >>> join_records([(np.array([0, 2]), a), (np.array([1]), b)]).tolist()
    [1, 2, 3, 1]
    """
    if len(groups) == 1:
        return groups[0][1].reshape(-1)
    widths = np.empty(sum(len(index) for index, _ in groups), dtype=np.int64)
    for index, matrix in groups:
        widths[index] = matrix.shape[1]
    stops = np.cumsum(widths)
    joined = np.empty(int(stops[-1]) if len(stops) else 0, dtype=np.uint8)
    for index, matrix in groups:
        record, width = np.dtype((np.void, matrix.shape[1])), matrix.shape[1]
        if len(index):  # item i is the bytes from offset i on, so that a record is copied by one assignment
            windows = np.ndarray((len(joined) - width + 1,), dtype=record, buffer=joined, strides=(1,))
            windows[stops[index] - width] = matrix.view(record).reshape(-1)
    return joined


def encode_strings(number: int, texts: Sequence[str]) -> bytes:
    """Encode a table of strings: one message (`Interned`) per string, with ids 1, 2, ... in order.

    Args:
        number: The field that holds the messages.
        texts: The strings.

    Returns:
        The encoded fields; empty without strings.

    >>> encode_strings(1, ["a", "bc"]).hex()
    '0a0508011201610a06080212026263'
    """
    encoded = [text.encode() for text in texts]
    lengths = np.array([*map(len, encoded)], dtype=np.int64)
    inner = (
        *field(Interned.IID, np.arange(1, len(lengths) + 1)),
        tag(Interned.TEXT, DELIMITED),
        _varint_column(lengths),
    )
    heads = encode_rows(
        (tag(number, DELIMITED), _varint_column(lengths + _width(inner)), *inner), len(lengths)
    )
    joined, width = heads.tobytes(), heads.shape[1]
    starts = range(0, len(joined), width)
    return b"".join(
        [piece for at, text in zip(starts, encoded, strict=True) for piece in (joined[at : at + width], text)]
    )


def _width(parts: Sequence[Part]) -> int:
    return sum(map(len, parts))


def _varint_column(values: Array) -> Column:
    if values.dtype.kind == "b":
        return Column(values.view(np.uint8), 1)
    top = int(values.max(initial=0))
    if values.dtype.kind == "i" and int(values.min(initial=0)) < 0:
        return Column(values.astype(np.int64).view(np.uint64), 10)
    width = max(1, -(-top.bit_length() // 7))
    return Column(values.astype(np.min_scalar_type(top), copy=False), width)


def _fill(target: NDArray[np.uint8], column: Column) -> None:
    """Write a column's bytes, least significant seven bits first."""
    if column.values.ndim == 2:  # raw bytes
        target[:] = column.values
        return
    last = column.width - 1
    for i in range(last):
        np.bitwise_or(
            column.values >> column.values.dtype.type(7 * i), 0x80, out=target[:, i], casting="unsafe"
        )
    target[:, last] = column.values >> column.values.dtype.type(7 * last)
