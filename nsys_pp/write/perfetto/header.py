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
from nsys_pp.write.trace.drawing import FRAME_SEQUENCE
from nsys_pp.write.trace.tree import Node, Path, arrange

UNITS = {"ns": CounterUnit.TIME_NS, "count": CounterUnit.COUNT, "bytes": CounterUnit.SIZE_BYTES}


def encode_frame(
    *,
    root: str,
    tracks: Mapping[Path, Track],
    leaves: Mapping[Path, Sequence[int]],
    first_ns: int,
    is_utc: bool,
    attributes: Mapping[str, str],
) -> bytes:
    """Encode the packets before all events; counters must be described before their first sample.

    Args:
        root: Name of the row above all others.
        tracks: Tracks by path in the trace, without the root.
        leaves: uuids of the tracks with events, by path; tracks with the same path are one row.
        first_ns: The first event, on the trace's clock.
        is_utc: The trace's clock is UTC.
        attributes: Facts about the trace.
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
    """Hash a path of the tree to 64 bits, the same in every process and run."""
    text = "\0".join([root, *path])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _packet(*fields: Parts) -> bytes:
    return constant(message(Trace.PACKET, field(TracePacket.SEQUENCE_ID, FRAME_SEQUENCE), *fields))


def _describe(root: str, node: Node, leaves: Mapping[Path, Sequence[int]], parents: set[Path]) -> list[Parts]:
    """Describe a row: the track with children, and the tracks with events.

    Tracks of one row share parent, order and merge key; each counter is its own row.
    """
    path = node.track.path
    uuids = list(leaves.get(path, []))
    if path in parents or not uuids:
        uuids.insert(0, path_uuid(root, path))
    is_shared = len(uuids) > 1 and node.track.counter_unit is None
    return [_describe_one(root, node, uuid, is_shared=is_shared) for uuid in uuids]


def _describe_one(root: str, node: Node, uuid: int, *, is_shared: bool) -> Parts:
    track = node.track
    more = [
        field(TrackDescriptor.PARENT_UUID, path_uuid(root, track.path[:-1])),
        field(TrackDescriptor.SIBLING_ORDER_RANK, node.order),
    ]
    if is_shared:
        more.append(field(TrackDescriptor.SIBLING_MERGE_BEHAVIOR, SiblingMerge.BY_SIBLING_MERGE_KEY))
        more.append(field(TrackDescriptor.SIBLING_MERGE_KEY, f"{path_uuid(root, track.path):016x}"))
    else:
        more.append(field(TrackDescriptor.SIBLING_MERGE_BEHAVIOR, SiblingMerge.NONE))
    if track.description:
        more.append(field(TrackDescriptor.DESCRIPTION, track.description))
    if track.counter_unit is not None:
        named = field(CounterDescriptor.UNIT_NAME, track.counter_unit)
        unit = UNITS.get(track.counter_unit)
        more.append(message(TrackDescriptor.COUNTER, field(CounterDescriptor.UNIT, unit) if unit else named))
    return message(TracePacket.TRACK_DESCRIPTOR, *_descriptor(uuid, track.name), *more)


def _descriptor(uuid: int, name: str) -> list[Parts]:
    return [
        field(TrackDescriptor.UUID, uuid),
        field(TrackDescriptor.NAME, name),
        field(TrackDescriptor.CHILD_ORDERING, ChildOrdering.EXPLICIT),
    ]
