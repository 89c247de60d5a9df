"""Header of a Perfetto trace: clocks, attributes, and the tree of tracks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from nsys_pp.frames.part import Track
from nsys_pp.output.perfetto.clocks import reading
from nsys_pp.output.perfetto.protobuf import (
    Attribute,
    BuiltinClock,
    ChildOrdering,
    ClockSnapshot,
    CounterDescriptor,
    CounterUnit,
    EventType,
    SiblingMerge,
    Trace,
    TraceAttributes,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from nsys_pp.output.perfetto.rows import hoist, order_by_text
from nsys_pp.output.perfetto.wire import Parts, constant, field, message
from nsys_pp.output.trace.drawing import HEADER_SEQUENCE
from nsys_pp.output.trace.tree import Node, Path, arrange

ABOUT = "about"
"""Name of the row below an outermost row that has no other."""

_UNITS = {"ns": CounterUnit.TIME_NS, "count": CounterUnit.COUNT, "bytes": CounterUnit.SIZE_BYTES}


def encode_header(
    *,
    tracks: Mapping[Path, Track],
    leaves: Mapping[Path, Sequence[int]],
    outermost: Mapping[Path, str],
    first_ns: int,
    utc_ns: int | None,
    attributes: Mapping[str, str],
) -> bytes:
    """Encode the packets at the start of a trace, before all events.

    All tracks are described here: a counter track must be described before its first sample.

    Args:
        tracks: Tracks by path in the trace.
        leaves: Perfetto's uuids of the tracks with events, by path; uuids with the same path share a row.
        outermost: Names of the rows that are shown above all others, by path, in order (`nsys_pp.output.perfetto.rows`).
        first_ns: Time of the first event, on the trace's clock.
        utc_ns: UTC of the same time; None if unknown.
        attributes: Facts about the trace, by key.
    """
    clocks = [reading(BuiltinClock.BOOTTIME, first_ns)]
    if utc_ns is not None:
        clocks.append(reading(BuiltinClock.REALTIME, utc_ns))
    primary = field(ClockSnapshot.PRIMARY_TRACE_CLOCK, BuiltinClock.BOOTTIME)
    packets = [_packet(message(TracePacket.CLOCK_SNAPSHOT, *clocks, primary))]
    if attributes:
        facts = [
            message(TraceAttributes.ATTRIBUTE, field(Attribute.KEY, key), field(Attribute.STRING, value))
            for key, value in attributes.items()
        ]
        packets.append(_packet(message(TracePacket.TRACE_ATTRIBUTES, *facts)))
    tracks, leaves = hoist(tracks, leaves, outermost)
    nodes = arrange(tracks, leaves)
    names = order_by_text(nodes)
    parents = {node.track.path[:-1] for node in nodes}
    for node in nodes:
        node = replace(node, track=replace(node.track, name=names.get(node.track.path, node.track.name)))
        packets += [_packet(descriptor) for descriptor in _describe(node, leaves, parents)]
        if len(node.track.path) == 1 and node.track.path not in parents:
            parent_uuid = leaves[node.track.path][0]
            packets += [_packet(parts) for parts in _encode_about(node, parent_uuid, first_ns)]
    return b"".join(packets)


@lru_cache(maxsize=1 << 14)
def path_uuid(path: Path) -> int:
    """Hash a path in the trace to a uuid of 64 bits; the same path has the same uuid in all traces."""
    return int.from_bytes(hashlib.blake2b("\0".join(path).encode(), digest_size=8).digest(), "little")


def _packet(*fields: Parts) -> bytes:
    return constant(message(Trace.PACKET, field(TracePacket.SEQUENCE_ID, HEADER_SEQUENCE), *fields))


def _describe(node: Node, leaves: Mapping[Path, Sequence[int]], parents: set[Path]) -> list[Parts]:
    """Describe a row: a track for its children, if any, and its tracks with events.

    The tracks of a row have the same parent, order and merge key, so the viewer merges them. Counters are not merged.
    """
    path = node.track.path
    uuids = list(leaves.get(path, []))
    is_counter = node.track.counter_unit is not None
    if path in parents or not uuids:
        uuids.insert(0, path_uuid(path))
    # one text for all: where many slices overlap, a row has thousands of tracks
    shared = constant(*_describe_shared(node, is_shared=len(uuids) > 1 and not is_counter))
    return [
        message(TracePacket.TRACK_DESCRIPTOR, field(TrackDescriptor.UUID, uuid), (shared,)) for uuid in uuids
    ]


def _encode_about(node: Node, parent_uuid: int, first_ns: int) -> list[Parts]:
    """Encode a child of an outermost row that has none (`nsys_pp.output.perfetto.rows`): a mark at the start."""
    uuid = path_uuid((*node.track.path, ABOUT))
    descriptor = message(
        TracePacket.TRACK_DESCRIPTOR,
        field(TrackDescriptor.UUID, uuid),
        *_named(ABOUT),
        field(TrackDescriptor.PARENT_UUID, parent_uuid),
    )
    mark = message(
        TracePacket.TRACK_EVENT,
        field(TrackEvent.TYPE, EventType.INSTANT),
        field(TrackEvent.TRACK_UUID, uuid),
        field(TrackEvent.NAME, node.track.description or node.track.name),
    )
    return [descriptor, field(TracePacket.TIMESTAMP, first_ns) + mark]


def _describe_shared(node: Node, *, is_shared: bool) -> list[Parts]:
    """Describe a row without the uuids of its tracks."""
    track = node.track
    fields = [*_named(track.name), field(TrackDescriptor.SIBLING_ORDER_RANK, node.order)]
    if len(track.path) > 1:
        fields.append(field(TrackDescriptor.PARENT_UUID, path_uuid(track.path[:-1])))
    if is_shared:
        fields.append(field(TrackDescriptor.SIBLING_MERGE_BEHAVIOR, SiblingMerge.BY_SIBLING_MERGE_KEY))
        fields.append(field(TrackDescriptor.SIBLING_MERGE_KEY, f"{path_uuid(track.path):016x}"))
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
    return fields


def _named(name: str) -> list[Parts]:
    return [
        field(TrackDescriptor.NAME, name),
        field(TrackDescriptor.CHILD_ORDERING, ChildOrdering.EXPLICIT),
    ]
