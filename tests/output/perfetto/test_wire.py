"""Encoded packets against the parser of protobuf.

Also field numbers against the schema in the `perfetto` wheel.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nsys_pp.output.perfetto import protobuf
from nsys_pp.output.perfetto.protobuf import (
    constant,
    encode_rows,
    encode_strings,
    field,
    fixed64,
    join_records,
    message,
    varint,
)
from nsys_pp.output.perfetto.trace import write_perfetto
from tests.output.drawings import encode, random_drawing

wrappers = pytest.importorskip("google.protobuf.wrappers_pb2", reason="no protobuf: `pip install perfetto`")


struct_pb2 = pytest.importorskip("google.protobuf.struct_pb2")


descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")


INTEGERS = [np.int64, np.uint64, np.int32, np.uint32, np.int16, np.uint16, np.int8, np.uint8]


def parse(kind: Any, data: bytes) -> Any:
    message = kind()
    message.ParseFromString(data)
    return message


@given(st.integers(-(2**63), 2**64 - 1))
def test_varint(value: int) -> None:
    kind = wrappers.UInt64Value if value >= 0 else wrappers.Int64Value
    assert parse(kind, b"\x08" + varint(value)).value == value
    assert value < 0 or b"\x08" + varint(value) == kind(value=value).SerializeToString() or value == 0


@pytest.mark.parametrize("dtype", INTEGERS)
def test_columns_of_integers(dtype: type[np.integer[Any]]) -> None:
    limits = np.iinfo(dtype)
    powers = {2**i + d for i in range(64) for d in (-1, 0)}
    values = [v for v in sorted({0, limits.min, limits.max, -1} | powers) if limits.min <= v <= limits.max]
    kind = wrappers.Int64Value if limits.min else wrappers.UInt64Value
    for few in (values, values[-1:], values[:1], [v for v in values if 0 <= v < 128]):
        column = np.array(few, dtype=dtype)
        rows = encode_rows(field(1, column), len(column))
        assert [parse(kind, row.tobytes()).value for row in rows] == few


@given(arrays(np.int64, st.integers(1, 20)))
def test_columns_of_any_integers(values: np.ndarray[Any, Any]) -> None:
    rows = encode_rows(field(1, values), len(values))
    assert [parse(wrappers.Int64Value, row.tobytes()).value for row in rows] == values.tolist()


def test_columns_of_booleans_and_floats() -> None:
    flags = encode_rows(field(1, np.array([True, False])), 2)
    assert [parse(wrappers.BoolValue, row.tobytes()).value for row in flags] == [True, False]
    reals = [0.0, -0.0, 1.5, float("inf"), 5e-324]
    rows = encode_rows(field(1, np.array(reals)), len(reals))
    assert [parse(wrappers.DoubleValue, row.tobytes()).value for row in rows] == reals


def test_fixed64_is_little_endian_whatever_the_array_is() -> None:
    rows = encode_rows(fixed64(1, np.array([1, 2**64 - 2], dtype=">u8")), 2)
    assert rows.tolist() == [[9, 1, 0, 0, 0, 0, 0, 0, 0], [9, 254, *[255] * 7]]


def test_nested_messages() -> None:
    names, numbers = np.frombuffer(b"abcdef", dtype=np.uint8).reshape(2, 3), np.array([7, 70_000])
    parts = message(4, field(1, names), field(3, numbers), field(7, "default é"))
    rows = encode_rows(parts, 2)
    for row, name, number in zip(rows, ["abc", "def"], [7, 70_000], strict=True):
        found = parse(descriptor_pb2.DescriptorProto, b"\x12" + row.tobytes()[1:]).field[0]
        assert (found.name, found.number, found.default_value) == (name, number, "default é")


def test_constants() -> None:
    data = constant(field(1, "name"), message(2, field(1, "f"), field(3, 300), field(8, b"")))
    found = parse(descriptor_pb2.DescriptorProto, data)
    assert found.SerializeToString(deterministic=True)
    assert (found.name, found.field[0].name, found.field[0].number) == ("name", "f", 300)
    assert parse(wrappers.DoubleValue, constant(field(1, 2.5))).value == 2.5


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 255)), max_size=30))
def test_records_of_several_widths_are_joined_in_place(records: list[tuple[int, int]]) -> None:
    groups = []
    for width in {width for width, _ in records}:
        places = [place for place, (other, _) in enumerate(records) if other == width]
        values = [[records[place][1]] * width for place in places]
        groups.append((np.array(places), np.array(values, dtype=np.uint8)))
    joined = join_records(groups).tobytes() if groups else b""
    assert joined == b"".join(bytes([value] * width) for width, value in records)


@given(st.lists(st.text(max_size=200), max_size=200))
def test_tables_of_strings(texts: list[str]) -> None:
    found = parse(descriptor_pb2.DescriptorProto, encode_strings(2, 3, 1, texts)).field
    assert [(row.number, row.name) for row in found] == [(i + 1, text) for i, text in enumerate(texts)]


schema: Any = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="no schema: `pip install perfetto`"
)


unknown_fields: Any = pytest.importorskip("google.protobuf.unknown_fields")


# Our class: the message, and how our names differ from its fields' names.
MESSAGES: dict[str, tuple[str, dict[str, str]]] = {
    "Trace": ("Trace", {}),
    "TracePacket": (
        "TracePacket",
        {"SEQUENCE_ID": "trusted_packet_sequence_id", "DEFAULTS": "trace_packet_defaults"},
    ),
    "ClockSnapshot": ("ClockSnapshot", {}),
    "Reading": ("ClockSnapshot.Clock", {}),
    "TrackDescriptor": ("TrackDescriptor", {}),
    "CounterDescriptor": ("CounterDescriptor", {}),
    "TrackEvent": (
        "TrackEvent",
        {"COUNTER_DOUBLE": "double_counter_value", "CORRELATION_STRING_IID": "correlation_id_str_iid"},
    ),
    "Annotation": (
        "DebugAnnotation",
        {
            "BOOL": "bool_value",
            "UINT": "uint_value",
            "INT": "int_value",
            "DOUBLE": "double_value",
            "STRING_IID": "string_value_iid",
        },
    ),
    "InternedData": (
        "InternedData",
        {
            "ANNOTATION_NAMES": "debug_annotation_names",
            "ANNOTATION_STRINGS": "debug_annotation_string_values",
            "CORRELATION_STRINGS": "correlation_id_str",
        },
    ),
    "Interned": ("EventName", {"TEXT": "name"}),
    "Defaults": ("TracePacketDefaults", {"TRACK_EVENT": "track_event_defaults"}),
    "TraceAttributes": ("TraceAttributes", {}),
    "Attribute": ("TraceAttributes.Attribute", {"STRING": "string_value"}),
}


ENUMS = {
    "SequenceFlags": ("TracePacket.SequenceFlags", "SEQ_"),
    "ChildOrdering": ("TrackDescriptor.ChildTracksOrdering", ""),
    "SiblingMerge": ("TrackDescriptor.SiblingMergeBehavior", "SIBLING_MERGE_BEHAVIOR_"),
    "CounterUnit": ("CounterDescriptor.Unit", "UNIT_"),
    "EventType": ("TrackEvent.Type", "TYPE_"),
}


def constants(name: str) -> dict[str, int]:
    return {key: value for key, value in vars(getattr(protobuf, name)).items() if key.isupper()}


def find(path: str) -> Any:
    found = schema
    for part in path.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", MESSAGES)
def test_field_numbers(name: str) -> None:
    message, renamed = MESSAGES[name]
    fields = find(message).DESCRIPTOR.fields_by_name
    ours = {renamed.get(key, key.lower()): number for key, number in constants(name).items()}
    assert ours == {key: fields[key].number for key in ours if key in fields}


@pytest.mark.parametrize("name", ENUMS)
def test_enumerations(name: str) -> None:
    enum, prefix = ENUMS[name]
    values = dict(find(enum).items())
    assert constants(name) == {key: values[prefix + key] for key in constants(name)}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_trace_holds_nothing_that_the_schema_does_not_know(seed: int) -> None:
    trace = schema.Trace()
    trace.ParseFromString(b"".join(write_perfetto(encode(random_drawing(seed)))))
    inner = schema.Trace()
    for packet in trace.packet:
        inner.MergeFromString(
            zlib.decompress(packet.compressed_packets) if packet.compressed_packets else b""
        )
    packets = [*trace.packet, *inner.packet]
    assert [list_unknown(packet) for packet in packets] == [[]] * len(packets)
    assert sum(packet.HasField("track_event") for packet in inner.packet) > 100
    assert all(packet.trusted_packet_sequence_id for packet in packets if not packet.compressed_packets)


def list_unknown(message: Any) -> list[Any]:
    """List fields of a message, and of the messages in it, that its schema lacks."""
    unknown = list(unknown_fields.UnknownFieldSet(message))
    for entry, value in message.ListFields():
        if entry.message_type is not None:
            for part in value if entry.is_repeated else [value]:
                unknown += list_unknown(part)
    return unknown
