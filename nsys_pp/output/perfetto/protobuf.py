"""Field numbers and enum values of Perfetto's messages; no other module has them.

One class per message, fields in order of their numbers. Source:
https://github.com/google/perfetto/blob/v52.0/protos/perfetto/trace (`trace_packet.proto`,
`track_event/track_event.proto`, `track_event/track_descriptor.proto`,
`track_event/debug_annotation.proto`, `interned_data/interned_data.proto`, `clock_snapshot.proto`,
`trace_packet_defaults.proto`); `TraceAttributes` is of v55. `nsys_pp.output.perfetto.wire` encodes them.
"""

from __future__ import annotations


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
    TIMESTAMP_CLOCK_ID = 58
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
