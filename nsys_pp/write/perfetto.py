"""A drawing as a Perfetto trace.

The trace is a concatenation of independent packets: a preamble (clocks, attributes, the tree of
tracks), then lane by lane a head and compressed blocks. Formats and traps:
https://github.com/google/perfetto/blob/v52.0/docs/reference/synthetic-track-event.md and
`protos/perfetto/trace` there; everything is held by the importer's own answers in
`tests/write/test_perfetto.py`.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from nsys_pp.write.drawing import Drawing, Lane
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
from nsys_pp.write.tree import Node, Path, arrange, drawn_lanes, lanes_by_track, start_ns
from nsys_pp.write.wire import Parts, constant, field, message

PREAMBLE_SEQUENCE = 1
UNITS = {"ns": CounterUnit.TIME_NS, "count": CounterUnit.COUNT, "bytes": CounterUnit.SIZE_BYTES}


def write_perfetto(drawing: Drawing, *, threads: int | None = None) -> Iterator[bytes]:
    """Encode a drawing, block by block.

    Args:
        drawing: What the trace shows; times of its lanes must be 0 or more on the trace's clock.
        threads: How many blocks are encoded and compressed at a time; as many as there are
            processors where None. The bytes do not depend on it.

    Yields:
        The trace in order; a caller that writes each block at once needs memory for a few.

    Raises:
        ValueError: The drawing breaks its own rules (see `nsys_pp.write.drawing`).
    """
    nodes = arrange(drawing)
    lanes = lanes_by_track(drawing)
    first_ns = min(map(start_ns, drawn_lanes(drawing)), default=0)
    if first_ns < 0:
        raise ValueError("a lane begins before 0 of the trace's clock; Perfetto would drop its events")
    yield encode_preamble(drawing, nodes, lanes, first_ns)
    threads = threads or os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[bytes]] = deque()
        for task in _tasks(drawing.root, nodes, lanes):
            waiting.append(pool.submit(task))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def track_uuid(root: str, path: Path, ordinal: int = 0) -> int:
    """Hash a place in the tree to 64 bits, the same in every process and run."""
    text = "\0".join([root, *path]) + f"\0\0{ordinal}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def encode_preamble(
    drawing: Drawing, nodes: list[Node], lanes: dict[Path, list[Lane]], first_ns: int
) -> bytes:
    """Encode what holds for the whole trace: clocks, attributes, tracks."""
    clocks = [clock(BuiltinClock.BOOTTIME, first_ns)]
    if drawing.is_utc:
        clocks.append(clock(BuiltinClock.REALTIME, first_ns))
    primary = field(ClockSnapshot.PRIMARY_TRACE_CLOCK, BuiltinClock.BOOTTIME)
    packets = [_packet(message(TracePacket.CLOCK_SNAPSHOT, *clocks, primary))]
    if drawing.attributes:
        attributes = [
            message(TraceAttributes.ATTRIBUTE, field(Attribute.KEY, key), field(Attribute.STRING, value))
            for key, value in drawing.attributes.items()
        ]
        packets.append(_packet(message(TracePacket.TRACE_ATTRIBUTES, *attributes)))
    root = _descriptor(track_uuid(drawing.root, ()), drawing.root)
    packets.append(_packet(message(TracePacket.TRACK_DESCRIPTOR, *root)))
    for node in nodes:
        count = len(lanes.get(node.track.path, []))
        for ordinal in range(max(1, count)):
            packets.append(_packet(_describe(drawing.root, node, ordinal, is_shared=count > 1)))
    return b"".join(packets)


def _tasks(root: str, nodes: list[Node], lanes: dict[Path, list[Lane]]) -> Iterator[Callable[[], bytes]]:
    """Yield the makers of all lanes' parts in file order, which is the order of the tracks."""
    sequence = PREAMBLE_SEQUENCE
    for node in nodes:
        path = node.track.path
        for ordinal, lane in enumerate(lanes.get(path, [])):
            sequence += 1
            yield partial(encode_head, sequence, start_ns(lane))
            uuid = track_uuid(root, path, ordinal)
            yield from block_tasks(prepare_lane(lane, sequence=sequence, track_uuid=uuid))


def _packet(*fields: Parts) -> bytes:
    return constant(message(Trace.PACKET, field(TracePacket.SEQUENCE_ID, PREAMBLE_SEQUENCE), *fields))


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
        unit = UNITS.get(track.counter_unit)
        shown = (
            field(CounterDescriptor.UNIT, unit)
            if unit
            else field(CounterDescriptor.UNIT_NAME, track.counter_unit)
        )
        more.append(message(TrackDescriptor.COUNTER, shown))
    return message(
        TracePacket.TRACK_DESCRIPTOR, *_descriptor(track_uuid(root, track.path, ordinal), track.name), *more
    )


def _descriptor(uuid: int, name: str) -> list[Parts]:
    return [
        field(TrackDescriptor.UUID, uuid),
        field(TrackDescriptor.NAME, name),
        field(TrackDescriptor.CHILD_ORDERING, ChildOrdering.EXPLICIT),
    ]
