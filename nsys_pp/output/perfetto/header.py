"""Header of a Perfetto trace: clocks, attributes, and the tree of tracks.

Perfetto's UI opens a trace with all groups collapsed, unless there is only one group; and clock snapshots,
which carry the clock of each report, are a group of their own ("System"). So the rows that matter are
outermost, and have events of their own: the rows of the run, then a row for each GPU. Such a row shows the
events of its first child that has slices (jobs, or projected ranges, or communication), and the other rows of
the GPU are below it. Rows of processes are in groups by machine, the last ones.

The UI has two more rules for outermost rows, both from `viz/summary/track_event.sql` and the plugin
`dev.perfetto.TrackEvent` of https://github.com/google/perfetto, the same in v52 and v58:

* An outermost row without children is put in a group "Global Track Events", so it has a row below it with one
mark.
* Outermost rows are sorted by name, as text; their order cannot be set. Spaces before a name do not show on
the page, and sort
  first. So names begin with as many spaces as it takes (`order_by_text`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from nsys_pp.frames.part import Track
from nsys_pp.output.perfetto.protobuf import (
    Attribute,
    BuiltinClock,
    ChildOrdering,
    ClockSnapshot,
    CounterDescriptor,
    CounterUnit,
    EventType,
    Reading,
    SiblingMerge,
    Trace,
    TraceAttributes,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from nsys_pp.output.perfetto.wire import Array, Parts, constant, field, message
from nsys_pp.output.trace.drawing import HEADER_SEQUENCE, Node, Path, arrange

ABOUT = "about"
"""Name of the row below an outermost row that has no other."""

SHOWS = "shows "
"""Before the name of the child whose events an outermost row shows, in its description."""
_AFTER_OUTERMOST = 1 << 62  # ranks of machines
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
        outermost: Names of the rows that are shown above all others, by path, in order (`hoist`).
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


def reading(clock_id: int, timestamp: int | Array) -> Parts:
    """Encode the time of one clock within a snapshot."""
    return message(
        ClockSnapshot.CLOCKS, field(Reading.CLOCK_ID, clock_id), field(Reading.TIMESTAMP, timestamp)
    )


def hoist(
    tracks: Mapping[Path, Track], leaves: Mapping[Path, Sequence[int]], outermost: Mapping[Path, str]
) -> tuple[dict[Path, Track], dict[Path, list[int]]]:
    """Move rows out of their machines, above these.

    Also the events of their first children with slices onto them.

    A row whose children are all counters shows the first of them.

    The description of a machine is added to those of its rows.

    Args:
        tracks: Tracks by path.
        leaves: Perfetto's uuids of the tracks with events, by path.
        outermost: Names of the rows to move by path, in order of drawing.

    Returns:
        The tracks and the leaves, by new path. Other rows of machines are after the moved rows.
    """
    new_paths = {path: ("\0".join(path),) for path in outermost}
    moved_tracks = {
        track.path: track for track in (_move_track(track, new_paths) for track in tracks.values())
    }
    for number, (path, name) in enumerate(outermost.items()):
        new, machine = new_paths[path], tracks.get(path[:1])
        track = moved_tracks.get(new) or Track(path=new, name=name, rank=number)
        texts = [track.description, machine.description if machine else ""]
        moved_tracks[new] = replace(track, name=name, rank=number, description="; ".join(filter(None, texts)))
    moved_leaves = {_move(path, new_paths): list(uuids) for path, uuids in leaves.items()}
    nodes = arrange(moved_tracks, moved_leaves)
    is_bare = {path for path in new_paths.values() if path not in moved_leaves}
    children = [node.track for node in nodes if len(node.track.path) == 2 and node.track.path in moved_leaves]
    for child in sorted(children, key=lambda child: child.counter_unit is not None):  # else the first counter
        row = child.path[:1]
        if row in is_bare:
            is_bare.remove(row)
            moved_leaves[row] = moved_leaves.pop(child.path)
            facts = filter(None, [f"{SHOWS}{child.name}", child.description, moved_tracks[row].description])
            moved_tracks[row] = replace(
                moved_tracks[row], description="; ".join(facts), counter_unit=child.counter_unit
            )
    return moved_tracks, moved_leaves


def _move_track(track: Track, new_paths: Mapping[Path, Path]) -> Track:
    path = _move(track.path, new_paths)
    is_machine = path == track.path and len(path) == 1
    return replace(track, path=path, rank=track.rank + _AFTER_OUTERMOST if is_machine else track.rank)


def _move(path: Path, new_paths: Mapping[Path, Path]) -> Path:
    new = new_paths.get(path[:2])
    return path if new is None else (*new, *path[2:])


def order_by_text(nodes: Sequence[Node]) -> dict[Path, str]:
    """Name the outermost of some nodes so that the order of their names as text is the order of the nodes.

    >>> from nsys_pp.frames.part import Track
    >>> names = ["steps", "rank 9", "rank 10"]
    >>> nodes = [Node(track=Track(path=(name,), name=name, rank=0), order=0) for name in names]
    >>> list(order_by_text(nodes).values())
    ['  steps', ' rank 9', 'rank 10']
    """
    names: dict[Path, str] = {}
    spaces, next_name = 0, ""
    for node in reversed([node for node in nodes if len(node.track.path) == 1]):
        name = " " * spaces + node.track.name.lstrip(" ")
        if names and name.encode() >= next_name.encode():
            spaces += 1
            name = " " + name
        names[node.track.path] = next_name = name
    return dict(reversed(names.items()))


@lru_cache(maxsize=1 << 14)
def path_uuid(path: Path) -> int:
    """Hash a path in the trace to a uuid of 64 bits; the same path has the same uuid in all traces."""
    return int.from_bytes(hashlib.blake2b("\0".join(path).encode(), digest_size=8).digest(), "little")


def _packet(*fields: Parts) -> bytes:
    return constant(message(Trace.PACKET, field(TracePacket.SEQUENCE_ID, HEADER_SEQUENCE), *fields))


def _describe(node: Node, leaves: Mapping[Path, Sequence[int]], parents: set[Path]) -> list[Parts]:
    """Describe a row: a track for its children, if any, and its tracks with events.

    The tracks of a row have the same parent, order and merge key, so the viewer merges them. Counters are not
    merged.
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
    """Encode a child of an outermost row that has none (see above): a mark at the start."""
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
