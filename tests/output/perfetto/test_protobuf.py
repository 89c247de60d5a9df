"""Field numbers against the schema in the `perfetto` wheel, and a trace against its strict parser."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from nsys_pp.output.perfetto import protobuf
from nsys_pp.output.perfetto.trace import write_perfetto
from tests.output.drawings import encode, random_drawing

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
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                unknown += list_unknown(part)
    return unknown
