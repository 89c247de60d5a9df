"""Header of a Perfetto trace: clocks, attributes, and the tree of tracks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from nsys_pp.frames.part import Track
from nsys_pp.write.perfetto.clocks import reading
from nsys_pp.write.perfetto.protobuf import (
    Attribute,
    BuiltinClock,
    ChildOrdering,
    ClockSnapshot,
    CounterDescriptor,
    CounterUnit,
    SiblingMerge,
    Trace,
    TraceAttributes,
    TracePacket,
    TrackDescriptor,
)
from nsys_pp.write.perfetto.wire import Parts, constant, field, message
from nsys_pp.write.trace.drawing import HEADER_SEQUENCE
from nsys_pp.write.trace.tree import Node, Path, arrange

_UNITS = {"ns": CounterUnit.TIME_NS, "count": CounterUnit.COUNT, "bytes": CounterUnit.SIZE_BYTES}


def encode_header(
    *,
    root: str,
    tracks: Mapping[Path, Track],
    leaves: Mapping[Path, Sequence[int]],
    first_ns: int,
    is_utc: bool,
    attributes: Mapping[str, str],
) -> bytes:
    """Encode the packets at the start of a trace, before all events.

    All tracks are described here: a counter track must be described before its first sample.

    Args:
        root: Name of the outermost row.
        tracks: Tracks by path in the trace; paths do not include the root.
        leaves: Perfetto's uuids of the tracks with events, by path; uuids with the same path share a row.
        first_ns: Time of the first event, on the trace's clock.
        is_utc: Whether the trace's clock is UTC.
        attributes: Facts about the trace, by key.
    """
    clocks = [reading(BuiltinClock.BOOTTIME, first_ns)]
    if is_utc:
        clocks.append(reading(BuiltinClock.REALTIME, first_ns))
    primary = field(ClockSnapshot.PRIMARY_TRACE_CLOCK, BuiltinClock.BOOTTIME)
    packets = [_packet(message(TracePacket.CLOCK_SNAPSHOT, *clocks, primary))]
    if attributes:
        facts = [
            message(TraceAttributes.ATTRIBUTE, field(Attribute.KEY, key), field(Attribute.STRING, value))
            for key, value in attributes.items()
        ]
        packets.append(_packet(message(TracePacket.TRACE_ATTRIBUTES, *facts)))
    top = _descriptor(path_uuid(root, ()), root)
    packets.append(_packet(message(TracePacket.TRACK_DESCRIPTOR, *top)))
    nodes = arrange(tracks, leaves)
    parents = {node.track.path[:-1] for node in nodes}
    for node in nodes:
        packets += [_packet(descriptor) for descriptor in _describe(root, node, leaves, parents)]
    return b"".join(packets)


def path_uuid(root: str, path: Path) -> int:
    """Hash a path in the trace to a uuid of 64 bits; the same path has the same uuid in all traces."""
    text = "\0".join([root, *path])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _packet(*fields: Parts) -> bytes:
    return constant(message(Trace.PACKET, field(TracePacket.SEQUENCE_ID, HEADER_SEQUENCE), *fields))


def _describe(root: str, node: Node, leaves: Mapping[Path, Sequence[int]], parents: set[Path]) -> list[Parts]:
    """Describe a row: a track for its children, if any, and its tracks with events.

    The tracks of a row have the same parent, order and merge key, so the viewer merges them. Counters are not merged.
    """
    path = node.track.path
    uuids = list(leaves.get(path, []))
    if path in parents or not uuids:
        uuids.insert(0, path_uuid(root, path))
    is_shared = len(uuids) > 1 and node.track.counter_unit is None
    return [_describe_one(root, node, uuid, is_shared=is_shared) for uuid in uuids]


def _describe_one(root: str, node: Node, uuid: int, *, is_shared: bool) -> Parts:
    track = node.track
    fields = [
        field(TrackDescriptor.PARENT_UUID, path_uuid(root, track.path[:-1])),
        field(TrackDescriptor.SIBLING_ORDER_RANK, node.order),
    ]
    if is_shared:
        fields.append(field(TrackDescriptor.SIBLING_MERGE_BEHAVIOR, SiblingMerge.BY_SIBLING_MERGE_KEY))
        fields.append(field(TrackDescriptor.SIBLING_MERGE_KEY, f"{path_uuid(root, track.path):016x}"))
    else:
        fields.append(field(TrackDescriptor.SIBLING_MERGE_BEHAVIOR, SiblingMerge.NONE))
    if track.description:
        fields.append(field(TrackDescriptor.DESCRIPTION, track.description))
    if track.counter_unit is not None:
        unit_name = field(CounterDescriptor.UNIT_NAME, track.counter_unit)
        unit = _UNITS.get(track.counter_unit)
        fields.append(
            message(TrackDescriptor.COUNTER, field(CounterDescriptor.UNIT, unit) if unit else unit_name)
        )
    return message(TracePacket.TRACK_DESCRIPTOR, *_descriptor(uuid, track.name), *fields)


def _descriptor(uuid: int, name: str) -> list[Parts]:
    return [
        field(TrackDescriptor.UUID, uuid),
        field(TrackDescriptor.NAME, name),
        field(TrackDescriptor.CHILD_ORDERING, ChildOrdering.EXPLICIT),
    ]
