"""A drawing as a Perfetto trace.

The trace is a concatenation of independent packets: lane by lane a head and compressed blocks, then
what holds for all (clocks, attributes, the tree of tracks). Formats and traps:
https://github.com/google/perfetto/blob/v52.0/docs/reference/synthetic-track-event.md and
`protos/perfetto/trace` there; everything is held by the importer's own answers in
`tests/write/test_perfetto.py`.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import field as field_of
from functools import partial

from nsys_pp.write.drawing import CounterLane, Drawing, Track
from nsys_pp.write.perfetto_lanes import block_tasks, clock, encode_head, prepare_lane
from nsys_pp.write.protobuf import (
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
from nsys_pp.write.tree import Node, Path, arrange, index_tracks, lanes_by_track, start_ns
from nsys_pp.write.wire import Parts, constant, field, message

FRAME_SEQUENCE = 1
MOST_THREADS = 4  # the parts of a block that hold the interpreter lock leave no more to gain
UNITS = {"ns": CounterUnit.TIME_NS, "count": CounterUnit.COUNT, "bytes": CounterUnit.SIZE_BYTES}


def write_perfetto(drawings: Iterable[Drawing], *, threads: int | None = None) -> Iterator[bytes]:
    """Encode drawings as one trace, block by block.

    A drawing is taken when those before it are encoded up to a few blocks, so that memory is
    bounded by the largest drawing, not by their number.

    Args:
        drawings: What the trace shows; times of lanes must be 0 or more on the trace's clock. Where
            several have a track of one path, it is one track, as the first describes it. All have
            one root.
        threads: How many blocks are encoded and compressed at a time; as many as there are
            processors, four at most, where None. The bytes do not depend on it.

    Yields:
        The trace in order; a caller that writes each block at once needs memory for a few.

    Raises:
        ValueError: A drawing breaks its own rules (see `nsys_pp.write.drawing`).
    """
    whole = _Whole()
    threads = threads or min(MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[bytes]] = deque()
        for task in _tasks(drawings, whole):
            waiting.append(pool.submit(task))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    yield encode_frame(whole)


@dataclass(slots=True)
class _Whole:
    """What is known of the whole trace, once all lanes have passed."""

    root: str = ""
    tracks: dict[Path, Track] = field_of(default_factory=dict)
    lane_count: dict[Path, int] = field_of(default_factory=dict)
    attributes: dict[str, str] = field_of(default_factory=dict)
    first_ns: int | None = None
    is_utc: bool = True


def track_uuid(root: str, path: Path, ordinal: int = 0) -> int:
    """Hash a place in the tree to 64 bits, the same in every process and run."""
    text = "\0".join([root, *path]) + f"\0\0{ordinal}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def encode_frame(whole: _Whole) -> bytes:
    """Encode what holds for the whole trace: clocks, attributes, tracks.

    It stands at the end, when all tracks are known: the importer sorts before it looks for the
    tracks of slices. Only counters must be described before their first sample; they are.
    """
    first_ns = whole.first_ns or 0
    clocks = [clock(BuiltinClock.BOOTTIME, first_ns)]
    if whole.is_utc:
        clocks.append(clock(BuiltinClock.REALTIME, first_ns))
    primary = field(ClockSnapshot.PRIMARY_TRACE_CLOCK, BuiltinClock.BOOTTIME)
    packets = [_packet(message(TracePacket.CLOCK_SNAPSHOT, *clocks, primary))]
    if whole.attributes:
        attributes = [
            message(TraceAttributes.ATTRIBUTE, field(Attribute.KEY, key), field(Attribute.STRING, value))
            for key, value in whole.attributes.items()
        ]
        packets.append(_packet(message(TracePacket.TRACE_ATTRIBUTES, *attributes)))
    top = _descriptor(track_uuid(whole.root, ()), whole.root)
    packets.append(_packet(message(TracePacket.TRACK_DESCRIPTOR, *top)))
    for node in arrange(whole.tracks, whole.lane_count):
        count = whole.lane_count.get(node.track.path, 0)
        if node.track.counter_unit is not None:
            continue
        for ordinal in range(max(1, count)):
            packets.append(_packet(_describe(whole.root, node, ordinal, is_shared=count > 1)))
    return b"".join(packets)


def _tasks(drawings: Iterable[Drawing], whole: _Whole) -> Iterator[Callable[[], bytes]]:
    """Yield the makers of all lanes' parts, in order of the drawings and of the tracks of each."""
    sequence = FRAME_SEQUENCE
    for drawing in drawings:
        tracks, lanes = index_tracks(drawing), lanes_by_track(drawing)
        whole.root = whole.root or drawing.root
        whole.tracks = {**tracks, **whole.tracks}
        whole.attributes |= drawing.attributes
        whole.is_utc &= drawing.is_utc
        for node in arrange(tracks, lanes):
            path = node.track.path
            for lane in lanes.get(path, []):
                sequence += 1
                ordinal = whole.lane_count.get(path, 0)
                whole.lane_count[path] = ordinal + 1
                first_ns = start_ns(lane)
                if first_ns < 0:
                    raise ValueError(
                        "a lane begins before 0 of the trace's clock; Perfetto would drop its events"
                    )
                whole.first_ns = first_ns if whole.first_ns is None else min(first_ns, whole.first_ns)
                if isinstance(lane, CounterLane):
                    yield partial(_packet, _describe(whole.root, node, ordinal, is_shared=False))
                yield partial(encode_head, sequence, first_ns)
                uuid = track_uuid(whole.root, path, ordinal)
                yield from block_tasks(prepare_lane(lane, sequence=sequence, track_uuid=uuid))


def _packet(*fields: Parts) -> bytes:
    return constant(message(Trace.PACKET, field(TracePacket.SEQUENCE_ID, FRAME_SEQUENCE), *fields))


def _describe(root: str, node: Node, ordinal: int, *, is_shared: bool) -> Parts:
    """Describe one lane of a track; lanes of one track share parent, place and merge key."""
    track = node.track
    more = [
        field(TrackDescriptor.PARENT_UUID, track_uuid(root, track.path[:-1])),
        field(TrackDescriptor.SIBLING_ORDER_RANK, node.place),
    ]
    if is_shared:
        more.append(field(TrackDescriptor.SIBLING_MERGE_BEHAVIOR, SiblingMerge.BY_SIBLING_MERGE_KEY))
        more.append(field(TrackDescriptor.SIBLING_MERGE_KEY, f"{track_uuid(root, track.path):016x}"))
    else:
        more.append(field(TrackDescriptor.SIBLING_MERGE_BEHAVIOR, SiblingMerge.NONE))
    if track.description:
        more.append(field(TrackDescriptor.DESCRIPTION, track.description))
    if track.counter_unit is not None:
        named = field(CounterDescriptor.UNIT_NAME, track.counter_unit)
        unit = UNITS.get(track.counter_unit)
        more.append(message(TrackDescriptor.COUNTER, field(CounterDescriptor.UNIT, unit) if unit else named))
    return message(
        TracePacket.TRACK_DESCRIPTOR, *_descriptor(track_uuid(root, track.path, ordinal), track.name), *more
    )


def _descriptor(uuid: int, name: str) -> list[Parts]:
    return [
        field(TrackDescriptor.UUID, uuid),
        field(TrackDescriptor.NAME, name),
        field(TrackDescriptor.CHILD_ORDERING, ChildOrdering.EXPLICIT),
    ]
