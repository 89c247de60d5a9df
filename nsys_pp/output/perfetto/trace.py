"""A Perfetto trace of encoded reports: its header (clocks, attributes, the tree of tracks) and their blocks.

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
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Encoded, EncodedSubtrack, Track
from nsys_pp.output.perfetto.encoding import Sink as Sink
from nsys_pp.output.perfetto.encoding import compress, leaf_uuid, reading
from nsys_pp.output.perfetto.encoding import encode_drawing as encode_drawing
from nsys_pp.output.perfetto.protobuf import (
    DELIMITED,
    Array,
    Attribute,
    BuiltinClock,
    ChildOrdering,
    ClockSnapshot,
    CounterDescriptor,
    CounterUnit,
    EventType,
    Parts,
    SequenceFlags,
    SiblingMerge,
    Trace,
    TraceAttributes,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
    constant,
    encode_rows,
    field,
    message,
    tag,
)
from nsys_pp.output.trace.drawing import (
    HEADER_SEQUENCE,
    Node,
    Path,
    Placement,
    arrange,
    list_titles,
    place_path,
    place_tracks,
    sequence_id,
)

ABOUT = "about"


"""Name of the row below an outermost row that has no other."""


SHOWS = "shows "


"""Before the name of the child whose events an outermost row shows, in its description."""


_AFTER_OUTERMOST = 1 << 62  # ranks of machines


_UNITS = {"ns": CounterUnit.TIME_NS, "count": CounterUnit.COUNT, "bytes": CounterUnit.SIZE_BYTES}


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
    moved_tracks: dict[Path, Track] = {}
    for track in tracks.values():
        path = _move(track.path, new_paths)
        is_machine = path == track.path and len(path) == 1
        rank = track.rank + _AFTER_OUTERMOST if is_machine else track.rank
        moved_tracks[path] = replace(track, path=path, rank=rank)
    for number, (path, name) in enumerate(outermost.items()):
        new = new_paths[path]
        track, machine = moved_tracks[new], tracks[path[:1]]
        texts = [track.description, machine.description]
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


_HEAD_BYTES = 24  # tags and lengths of a block have fewer, and a block has more


MOST_BLOCK_BYTES = 1 << 28  # also decompressed; ordinary blocks have 1-10 MB


class Source(Protocol):
    """Reader of blocks."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes: at least one and at most `size`; none at the end."""


class PlacedReport(Struct, frozen=True, kw_only=True):
    """An encoded report, its placement in the trace, and its blocks."""

    encoded: Encoded
    placement: Placement
    open_blocks: Callable[[], AbstractContextManager[Source]]
    omitted: frozenset[Path] = frozenset()  # tracks that are not drawn, by their path in the report

    def is_drawn(self, track: Path) -> bool:
        """Return whether a track of the report is drawn."""
        return track[0] in self.placement.rows and track not in self.omitted

    def drawn_subtracks(self) -> list[EncodedSubtrack]:
        """Return the subtracks of drawn tracks."""
        return [subtrack for subtrack in self.encoded.subtracks if self.is_drawn(subtrack.track)]


def write_perfetto(reports: Sequence[PlacedReport]) -> Iterator[bytes]:
    """Merge encoded reports into a trace, as a stream of bytes.

    Args:
        reports: Reports of the trace, all with the same `zero_ns`.
            If tracks of several reports have the same path, they are one row, described by the first report.

    Yields:
        The bytes of the trace, in order.

    Raises:
        ValueError: Two reports have the same packet sequence.
    """
    if len({sequence_id(report.encoded.report_id) for report in reports}) < len(reports):
        raise ValueError("two reports of the trace have the same packet sequence")
    starts = [
        int(report.placement.clock.to_trace(np.array([min(times)]))[0])
        for report in reports
        if (times := [subtrack.first_ns for subtrack in report.drawn_subtracks()])
    ]
    # the time on the run's clock that is 0 in the trace, or the first event if it is earlier
    zero_ns = min([*starts, *(report.placement.zero_ns for report in reports)], default=0)
    yield _encode_header(reports, zero_ns, min(starts, default=zero_ns))
    for report in reports:
        drawn = report.drawn_subtracks()
        if not drawn:
            continue
        last_ns = max(subtrack.last_ns for subtrack in drawn)
        clock = report.placement.clock.shifted(-zero_ns)
        yield encode_preamble(sequence_id(report.encoded.report_id), report.encoded.base_ns, last_ns, clock)
        with report.open_blocks() as source:  # it raises an error of the blocks in words for the user
            for subtrack in report.encoded.subtracks:
                for block in _read_blocks(source, subtrack.size_bytes):
                    if report.is_drawn(subtrack.track):
                        yield block


def check_blocks(encoded: Encoded, source: Source) -> None:
    """Check that the blocks of each subtrack are compressed packets, and can be decompressed.

    Raises:
        ValueError: They are not.
        EOFError: The blocks end early.
    """
    for subtrack in encoded.subtracks:
        for block in _read_blocks(source, subtrack.size_bytes):
            first, _ = _find_data(block)
            inflater = zlib.decompressobj()
            try:
                inflater.decompress(block[first:], MOST_BLOCK_BYTES)
            except zlib.error as error:
                raise ValueError("a block cannot be decompressed") from error
            if not inflater.eof or inflater.unused_data:
                raise ValueError("a block is cut, or larger than any block")


def _read_blocks(source: Source, size: int) -> Iterator[bytes]:
    """Yield the blocks of a subtrack.

    Raises:
        ValueError: A block is not one compressed packet.
    """
    while size:
        head = _read(source, min(size, _HEAD_BYTES))
        _, end = _find_data(head)
        if not len(head) <= end <= min(size, MOST_BLOCK_BYTES):
            raise ValueError("a block is longer than its subtrack, or than any block")
        yield head + _read(source, end - len(head))
        size -= end


def _find_data(block: bytes) -> tuple[int, int]:
    """Return the first byte of the compressed data of a block, and the end of both.

    Raises:
        ValueError: It is not one compressed packet.
    """
    at, ends = 0, []
    for number in (Trace.PACKET, TracePacket.COMPRESSED_PACKETS):
        key = tag(number, DELIMITED)
        size, shift, after = 0, 0, at + len(key)
        if block[at:after] != key:
            raise ValueError("a block is not a compressed packet")
        for byte in block[after:_HEAD_BYTES]:
            after += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at = after
        ends.append(at + size)
    if ends[0] != ends[1]:
        raise ValueError("a block is not one compressed packet")
    return at, ends[0]


def encode_preamble(sequence: int, base_ns: int, last_ns: int, clock: Clock) -> bytes:
    """Encode the packets that begin a report's sequence and map its clock onto the trace's.

    Args:
        sequence: Packet sequence of the report.
        base_ns: Origin of the encoded times, on the report's clock.
        last_ns: Time of the last event, on the report's clock; later pieces of `clock` are skipped.
        clock: Maps the report's clock onto the trace's.
    """
    further = clock.from_ns[(clock.from_ns > base_ns) & (clock.from_ns <= last_ns)]
    begins = np.concatenate([np.array([base_ns]), further])
    own, trace = begins - base_ns, clock.to_trace(begins)
    opening = (
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.INCREMENTAL_STATE_CLEARED),
        field(TracePacket.FIRST_PACKET_ON_SEQUENCE, True),
    )
    sequence_field = field(TracePacket.SEQUENCE_ID, sequence)
    first = message(Trace.PACKET, sequence_field, *opening, _snapshot(own[:1], trace[:1]))
    first_packet = encode_rows(first, 1).tobytes()
    if not len(further):
        return first_packet
    rest = message(Trace.PACKET, sequence_field, _snapshot(own[1:], trace[1:]))
    return first_packet + compress(encode_rows(rest, len(further)).tobytes())


def _snapshot(own: Array, trace: Array) -> Parts:
    return message(
        TracePacket.CLOCK_SNAPSHOT,
        reading(BuiltinClock.OF_REPORT, own),
        reading(BuiltinClock.BOOTTIME, trace),
    )


def _encode_header(reports: Sequence[PlacedReport], zero_ns: int, first_ns: int) -> bytes:
    """Encode the packets at the start of a trace, before all events.

    All tracks are described here: a counter track must be described before its first sample.

    Args:
        reports: Reports of the trace.
        zero_ns: Time on the run's clock that is 0 in the trace.
        first_ns: Time of the first event, on the run's clock.
    """
    placements = [report.placement for report in reports]
    is_utc = all(placement.is_utc for placement in placements)
    clocks = [reading(BuiltinClock.BOOTTIME, first_ns - zero_ns)]
    if is_utc:
        clocks.append(reading(BuiltinClock.REALTIME, first_ns))
    primary = field(ClockSnapshot.PRIMARY_TRACE_CLOCK, BuiltinClock.BOOTTIME)
    packets = [_packet(message(TracePacket.CLOCK_SNAPSHOT, *clocks, primary))]
    attributes = {key: text for placement in placements for key, text in placement.attributes.items()}
    if placements:
        attributes["zero_utc_ns" if is_utc else "zero_ns"] = str(zero_ns)
        facts = [
            message(TraceAttributes.ATTRIBUTE, field(Attribute.KEY, key), field(Attribute.STRING, value))
            for key, value in attributes.items()
        ]
        packets.append(_packet(message(TracePacket.TRACE_ATTRIBUTES, *facts)))
    tracks: dict[Path, Track] = {}
    leaves: dict[Path, list[int]] = {}  # uuids of the tracks with events
    for report in reports:
        tracks = {**place_tracks(report.encoded.tracks, report.placement), **tracks}
        for subtrack in report.drawn_subtracks():
            leaf = leaf_uuid(report.encoded.report_id, subtrack.track, subtrack.ordinal)
            leaves.setdefault(place_path(subtrack.track, report.placement), []).append(leaf)
    tracks, leaves = hoist(tracks, leaves, list_titles(placements))
    nodes = arrange(tracks, leaves)
    names = order_by_text(nodes)
    parents = {node.track.path[:-1] for node in nodes}
    for node in nodes:
        node = replace(node, track=replace(node.track, name=names.get(node.track.path, node.track.name)))
        packets += [_packet(descriptor) for descriptor in _describe(node, leaves, parents)]
        if len(node.track.path) == 1 and node.track.path not in parents:
            parent_uuid = leaves[node.track.path][0]
            packets += [_packet(parts) for parts in _encode_about(node, parent_uuid, first_ns - zero_ns)]
    return b"".join(packets)


def _read(source: Source, size: int) -> bytes:
    pieces = []
    while size:
        pieces.append(source.read(size))
        size -= len(pieces[-1])
        if not pieces[-1]:
            raise EOFError("the blocks of a report end early")
    return b"".join(pieces)
