"""A Perfetto trace: its header (clocks, attributes, the tree of tracks) and the encoded blocks of reports.

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

Each track of a drawing is encoded as compressed blocks of packets, which depend on the report only.

All subtracks of a report share one packet sequence. The slice subtracks of a track are a batch: where many
slices overlap, a track has thousands of small subtracks. The first packet of a batch clears the incremental
state of the sequence (strings, defaults, time of the last event) and sets its own, so a merge may omit any
track. Each further subtrack of the batch begins with a packet that sets its track and restarts the time of
the last event.

Each event has the time since the previous event of its subtrack, on the subtrack clock, which is reset to the
report's base by the first packet of the subtrack. The preamble of the report maps this base onto the trace's
clock.

Source: `docs/reference/synthetic-track-event.md` (sequences, interning, incremental state) of
https://github.com/google/perfetto/blob/v52.0.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from itertools import groupby
from typing import IO, Protocol

import deflate
import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from nsys_pp.arrays.columns import find_distinct, pack
from nsys_pp.arrays.search import list_groups
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Encoded, EncodedSubtrack, Track
from nsys_pp.output.colors import perfetto_seeds
from nsys_pp.output.perfetto.protobuf import (
    DELIMITED,
    Annotation,
    Array,
    Attribute,
    BuiltinClock,
    ChildOrdering,
    ClockSnapshot,
    CounterDescriptor,
    CounterUnit,
    Defaults,
    EventType,
    InternedData,
    Parts,
    Reading,
    SequenceFlags,
    SiblingMerge,
    Trace,
    TraceAttributes,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
    constant,
    encode_rows,
    encode_strings,
    field,
    fixed64,
    join_records,
    message,
    tag,
    varint,
)
from nsys_pp.output.trace.drawing import (
    HEADER_SEQUENCE,
    MARK_POINTS,
    SLICES,
    WORDS,
    Drawing,
    FrameColumns,
    Path,
    Placement,
    Subtrack,
    arrange,
    index_tracks,
    is_flow,
    list_titles,
    place_path,
    place_tracks,
    sequence_id,
    subtracks_by_track,
)
from nsys_pp.output.trace.packing import Events, order_events
from nsys_pp.progress import report_stage

ABOUT = "about"  # name of the row below an outermost row that has no other

# before the name of the child whose events an outermost row shows, in its description
SHOWS = "shows "

_AFTER_OUTERMOST = 1 << 62  # ranks of machines

_UNITS = {"ns": CounterUnit.TIME_NS, "count": CounterUnit.COUNT, "bytes": CounterUnit.SIZE_BYTES}


def hoist(
    tracks: Mapping[Path, Track], leaves: Mapping[Path, Sequence[int]], outermost: Mapping[Path, str]
) -> tuple[dict[Path, Track], dict[Path, list[int]]]:
    """Move rows out of their machines, above these.

    Also the events of their first children with slices onto them.

    A row whose children are all counters shows the first of them.

    The description of a machine is added to those of its rows, and the name of a moved row to those of the
    rows below it.

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
        moved_tracks[path] = replace(
            track,
            path=path,
            rank=track.rank + _AFTER_OUTERMOST if (path == track.path and len(path) == 1) else track.rank,
        )
    for number, (path, name) in enumerate(outermost.items()):
        new = new_paths[path]
        track, machine = moved_tracks[new], tracks[path[:1]]
        texts = [track.description, machine.description]
        moved_tracks[new] = replace(track, name=name, rank=number, description="; ".join(filter(None, texts)))
    moved_leaves = {_move(path, new_paths): list(uuids) for path, uuids in leaves.items()}
    drawn = arrange(moved_tracks, moved_leaves)
    titles = {new_paths[path][0]: name for path, name in outermost.items()}
    children = [track for track in drawn if len(track.path) == 2 and track.path in moved_leaves]
    for child in sorted(children, key=lambda child: child.counter_unit is not None):  # else the first counter
        row = child.path[:1]
        if row[0] in titles and row not in moved_leaves:
            moved_leaves[row] = moved_leaves.pop(child.path)
            facts = filter(None, [f"{SHOWS}{child.name}", child.description, moved_tracks[row].description])
            moved_tracks[row] = replace(
                moved_tracks[row], description="; ".join(facts), counter_unit=child.counter_unit
            )
    for path, track in moved_tracks.items():
        if len(path) > 1 and path[0] in titles:  # the row around it may be out of view
            texts = [titles[path[0]], track.description]
            moved_tracks[path] = replace(track, description="; ".join(filter(None, texts)))
    return moved_tracks, moved_leaves


def _move(path: Path, new_paths: Mapping[Path, Path]) -> Path:
    new = new_paths.get(path[:2])
    return path if new is None else (*new, *path[2:])


def order_by_text(tracks: Sequence[Track]) -> dict[Path, str]:
    """Name the outermost of some tracks so that the order of their names as text is that of the tracks.

    >>> names = ["steps", "rank 9", "rank 10"]
    >>> list(order_by_text([Track(path=(name,), name=name, rank=0) for name in names]).values())
    ['  steps', ' rank 9', 'rank 10']
    """
    names: dict[Path, str] = {}
    spaces, next_name = 0, ""
    for track in reversed([track for track in tracks if len(track.path) == 1]):
        name = " " * spaces + track.name.lstrip(" ")
        if names and name.encode() >= next_name.encode():
            spaces += 1
            name = " " + name
        names[track.path] = next_name = name
    return dict(reversed(names.items()))


@lru_cache(maxsize=1 << 14)
def path_uuid(path: Path) -> int:
    """Hash a path in the trace to a uuid of 64 bits; the same path has the same uuid in all traces."""
    return int.from_bytes(hashlib.blake2b("\0".join(path).encode(), digest_size=8).digest(), "little")


def _packet(*fields: Parts) -> bytes:
    return constant(message(Trace.PACKET, field(TracePacket.SEQUENCE_ID, HEADER_SEQUENCE), *fields))


def _describe(track: Track, leaves: Mapping[Path, Sequence[int]], parents: set[Path]) -> list[Parts]:
    """Describe a row: a track for its children, if any, and its tracks with events.

    The tracks of a row have the same parent, order and merge key, so the viewer merges them. Counters are not
    merged.
    """
    uuids = list(leaves.get(track.path, []))
    if track.path in parents or not uuids:
        uuids.insert(0, path_uuid(track.path))
    fields = [*_named(track.name), field(TrackDescriptor.SIBLING_ORDER_RANK, track.rank)]
    if len(track.path) > 1:
        fields.append(field(TrackDescriptor.PARENT_UUID, path_uuid(track.path[:-1])))
    if len(uuids) > 1 and track.counter_unit is None:
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
    shared = constant(*fields)  # one text for all: where many slices overlap, a row has thousands of tracks
    return [
        message(TracePacket.TRACK_DESCRIPTOR, field(TrackDescriptor.UUID, uuid), (shared,)) for uuid in uuids
    ]


def _encode_about(track: Track, parent_uuid: int, first_ns: int) -> list[Parts]:
    """Encode a child of an outermost row that has none (see above): a mark at the start."""
    uuid = path_uuid((*track.path, ABOUT))
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
        field(TrackEvent.NAME, track.description or track.name),
    )
    return [descriptor, field(TracePacket.TIMESTAMP, first_ns) + mark]


def _named(name: str) -> list[Parts]:
    return [
        field(TrackDescriptor.NAME, name),
        field(TrackDescriptor.CHILD_ORDERING, ChildOrdering.EXPLICIT),
    ]


_HEAD_BYTES = 24  # tags and lengths of a block have fewer, and a block has more

MOST_BLOCK_BYTES = 1 << 28  # also decompressed; ordinary blocks have 1-10 MB


class PlacedReport(Struct, frozen=True, kw_only=True):
    """An encoded report, its placement in the trace, and its blocks."""

    encoded: Encoded
    placement: Placement
    open_blocks: Callable[[], AbstractContextManager[IO[bytes]]]
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


def check_blocks(encoded: Encoded, source: IO[bytes]) -> None:
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


def _read_blocks(source: IO[bytes], size: int) -> Iterator[bytes]:
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
    drawn = arrange(tracks, leaves)
    names = order_by_text(drawn)
    parents = {track.path[:-1] for track in drawn}
    for track in drawn:
        named = replace(track, name=names.get(track.path, track.name))
        packets += [_packet(descriptor) for descriptor in _describe(named, leaves, parents)]
        if len(track.path) == 1 and track.path not in parents:
            parent_uuid = leaves[track.path][0]
            packets += [_packet(parts) for parts in _encode_about(named, parent_uuid, first_ns - zero_ns)]
    return b"".join(packets)


def _read(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError("the blocks of a report end early")
    return data


MAX_THREADS = 4  # more do not help: part of the encoding of a block holds the interpreter lock
BLOCK_ROWS = 1 << 15  # a block has 1-3 MB before compression
COMPRESSION_LEVEL = 1  # of libdeflate; level 2 takes a third longer for two percent
_EVENT_TYPES = {"slices": EventType.SLICE_BEGIN, "marks": EventType.INSTANT, "counter": EventType.COUNTER}


class Sink(Protocol):
    """Receiver of blocks."""

    def write(self, data: bytes, /) -> object:
        """Write all bytes."""


class _Field(Struct, frozen=True):
    number: int
    values: Array
    present: Bools | None = None  # mask of the values that are not null; None: all of them
    rows: Int64s | None = None  # of the values, for each row of the batch; None: in order
    is_raw: bool = False  # 8 bytes as they are, also of integers
    argument: int = 0  # number of the argument's name; 0: the field is no argument

    def find_present(self, first: int, stop: int) -> Bools | None:
        """Return the mask of the rows [first, stop) that have the field; None: all of them."""
        if self.present is None:
            return None
        mask = self.present[first:stop] if self.rows is None else self.present[self.rows[first:stop]]
        return None if mask.all() else mask

    def encode(self, first: int, stop: int, chosen: Array | slice) -> Parts:
        """Encode the field for some of the rows [first, stop), which all have it."""
        values = self.values[first:stop] if self.rows is None else self.values.take(self.rows[first:stop])
        encoded = (fixed64 if self.is_raw else field)(self.number, values[chosen])
        if not self.argument:
            return encoded
        return message(TrackEvent.DEBUG_ANNOTATIONS, field(Annotation.NAME_IID, self.argument), encoded)


class _Batch(Struct, frozen=True, kw_only=True):
    """A batch of subtracks ready to be encoded block by block; the rows of a subtrack are together."""

    sequence: int
    track_uuids: NDArray[np.uint64]
    first_rows: Int64s  # first row of each subtrack
    event_type: int
    events: Events
    deltas_ns: Int64s  # since the previous event; of the first one of a subtrack, since the report's base
    fields: list[_Field]
    interned: bytes  # tables of strings


def encode_drawing(drawing: Drawing, sink: Sink, *, frames: dict[int, FrameColumns] | None = None) -> Encoded:
    """Encode a drawing as blocks, several at a time in threads, on whose number the bytes do not depend.

    Args:
        drawing: Drawing of a report.
        sink: Receives the blocks, in order.
        frames: Columns of frames by id, which other drawings share; receives further ones. Default: none.

    Returns:
        The drawn tracks, and per subtrack the size of its blocks; subtracks without rows are skipped. The
        first subtrack of a batch has the blocks of all.

    Raises:
        ValueError: The drawing is invalid (see `nsys_pp.output.trace.drawing`).
    """
    tracks, subtracks = index_tracks(drawing), subtracks_by_track(drawing)
    frames = {} if frames is None else frames
    drawn = [track.path for track in arrange(tracks, subtracks)]
    all_subtracks = [one for of_track in subtracks.values() for one in of_track]
    base_ns = min((one.start_ns for one in all_subtracks), default=0)
    row_count, written = sum(len(one.rows) for one in all_subtracks), 0
    encoded: list[EncodedSubtrack] = []
    waiting: deque[tuple[int, Future[bytes]]] = deque()

    def write_until(most: int) -> None:
        """Write the first blocks until no more than `most` are left."""
        nonlocal written
        while len(waiting) > most:
            number, block = waiting.popleft()
            data, own = block.result(), encoded[number]
            sink.write(data)
            encoded[number] = replace(own, size_bytes=own.size_bytes + len(data))
            written = min(written + BLOCK_ROWS, row_count)  # the last block of a track has fewer
            report_stage(f"encoded {written:,} of {row_count:,} rows", written / row_count)

    count = min(MAX_THREADS, pl.thread_pool_size())
    batches = [  # the subtracks of a track and frame together
        list(batch)
        for path in drawn
        for _, batch in groupby(enumerate(subtracks.get(path, ())), lambda one: id(one[1].source))
    ]
    with ThreadPoolExecutor(count) as pool:
        for numbered in batches:
            batch = _prepare(numbered, drawing.report_id, base_ns, frames)
            number = len(encoded)
            encoded += _describe_subtracks(numbered, batch)
            for first in range(0, len(batch.events.begin_index), BLOCK_ROWS):
                waiting.append((number, pool.submit(_encode_block, batch, first)))
                write_until(2 * count)
        write_until(0)
    return Encoded(
        report_id=drawing.report_id,
        base_ns=base_ns,
        tracks=[tracks[path] for path in drawn if path in tracks],
        subtracks=encoded,
    )


def leaf_uuid(report_id: int, path: Path, ordinal: int) -> int:
    """Hash a subtrack of a report to a uuid of 64 bits; the same subtrack has the same uuid in all traces."""
    text = "\0".join([f"{report_id:016x}", *path]) + f"\0\0{ordinal}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def compress(packets: bytes | NDArray[np.uint8]) -> bytes:
    """Encode one packet that holds the given packets, compressed."""
    data = deflate.zlib_compress(packets, COMPRESSION_LEVEL)
    inner = tag(TracePacket.COMPRESSED_PACKETS, DELIMITED) + varint(len(data))
    return b"".join((tag(Trace.PACKET, DELIMITED), varint(len(inner) + len(data)), inner, data))  # one copy


def reading(clock_id: int, timestamp: int | Array) -> Parts:
    """Encode the time of one clock within a snapshot."""
    return message(
        ClockSnapshot.CLOCKS, field(Reading.CLOCK_ID, clock_id), field(Reading.TIMESTAMP, timestamp)
    )


def _prepare(
    numbered: Sequence[tuple[int, Subtrack]], report_id: int, base_ns: int, frames: dict[int, FrameColumns]
) -> _Batch:
    """Order the events of a batch and number its strings, in order of appearance.

    A batch has subtracks, each with its number in its track.
    """
    subtracks = [subtrack for _, subtrack in numbered]
    kind, source = subtracks[0].kind, subtracks[0].source
    if id(source) not in frames:
        frames[id(source)] = FrameColumns(source)
    columns = frames[id(source)]
    rows = np.concatenate([one.rows for one in subtracks])
    heights = np.array([len(one.rows) for one in subtracks])
    first_rows = np.cumsum(heights) - heights
    if kind == "slices":
        start, end = (columns.find_values(name)[0].take(rows) for name in ("start_ns", "end_ns"))
        events = order_events(start, end, np.concatenate([one.depth for one in subtracks]), first_rows)
    else:
        times = columns.find_values("time_ns")[0].take(rows)
        if np.diff(times).min(initial=0) < 0:
            raise ValueError("marks or samples of a subtrack are not in order of time")
        events = Events(times_ns=times, begin_index=np.arange(len(times)))
    if kind == "counter":
        values, _ = columns.find_values("value")
        fields, interned = [_Field(TrackEvent.COUNTER_DOUBLE, values, rows=rows)], b""
    else:
        fields, interned = _collect_fields(columns, rows, SLICES if kind == "slices" else MARK_POINTS)
    deltas_ns = np.diff(events.times_ns, prepend=base_ns)
    first_events = events.begin_index[first_rows]
    deltas_ns[first_events] = events.times_ns[first_events] - base_ns
    uuids = [leaf_uuid(report_id, subtrack.track, ordinal) for ordinal, subtrack in numbered]
    return _Batch(
        sequence=sequence_id(report_id),
        track_uuids=np.array(uuids, dtype=np.uint64),
        first_rows=first_rows,
        event_type=_EVENT_TYPES[kind],
        events=events,
        deltas_ns=deltas_ns,
        fields=fields,
        interned=interned,
    )


def _collect_fields(columns: FrameColumns, rows: Int64s, schema: pl.Schema) -> tuple[list[_Field], bytes]:
    """Collect the fields of slices or marks: name, color, flows, arguments; and encode their strings."""
    dtypes = columns.dtypes  # of columns with values
    arguments = [name for name in columns.frame.columns if name not in schema and not is_flow(name)]
    names, event_names = columns.number([name for name in ["name"] if name in dtypes], rows)
    colors, keys = columns.number([name for name in ["color"] if name in dtypes], rows)
    words, texts = columns.number([name for name in arguments if isinstance(dtypes.get(name), WORDS)], rows)
    fields = [_Field(TrackEvent.NAME_IID, values, values > 0) for values in names.values()]
    fields += [_Field(TrackEvent.CORRELATION_STRING_IID, values, values > 0) for values in colors.values()]
    fields += [
        _Field(TrackEvent.FLOW_IDS, *columns.find_values(name), rows, is_raw=True)
        for name in dtypes
        if is_flow(name)
    ]
    for argument, name in enumerate(arguments, 1):
        if name in words:
            values = words[name]
            fields.append(_Field(Annotation.STRING_IID, values, values > 0, argument=argument))
        elif name in dtypes:
            number = _find_kind(dtypes[name])
            fields.append(_Field(number, *columns.find_values(name), rows, argument=argument))
    tables = {
        InternedData.EVENT_NAMES: event_names,
        InternedData.CORRELATION_STRINGS: perfetto_seeds(keys),
        InternedData.ANNOTATION_NAMES: arguments,
        InternedData.ANNOTATION_STRINGS: texts,
    }
    return fields, b"".join(encode_strings(number, table) for number, table in tables.items())


def _find_kind(dtype: pl.DataType) -> int:
    if dtype.is_float():
        return Annotation.DOUBLE
    if dtype == pl.Boolean:
        return Annotation.BOOL
    return Annotation.INT if dtype.is_signed_integer() else Annotation.UINT


def _describe_subtracks(numbered: Sequence[tuple[int, Subtrack]], batch: _Batch) -> Iterator[EncodedSubtrack]:
    times_ns, firsts = batch.events.times_ns, batch.events.begin_index[batch.first_rows]
    lasts = np.append(firsts[1:], len(times_ns)) - 1
    for (ordinal, subtrack), first_ns, last_ns in zip(
        numbered, times_ns[firsts].tolist(), times_ns[lasts].tolist(), strict=True
    ):
        yield EncodedSubtrack(
            track=subtrack.track,
            ordinal=ordinal,
            kind=subtrack.kind,
            rows=len(subtrack.rows),
            first_ns=first_ns,
            last_ns=last_ns,
            size_bytes=0,
        )


def _encode_block(batch: _Batch, first: int) -> bytes:
    """Encode the rows of a block, with all ends of slices before the next row begins.

    As one compressed packet.
    """
    begin = batch.events.begin_index
    stop = min(first + BLOCK_ROWS, len(begin))
    low, high = int(begin[first]), int(begin[stop]) if stop < len(begin) else len(batch.deltas_ns)
    deltas = batch.deltas_ns[low:high].view(np.uint64)
    begins = begin[first:stop] - low
    # the packet that begins a further subtrack is before its first event
    opened = slice(*np.searchsorted(batch.first_rows[1:], (first, stop)))
    before = begins[batch.first_rows[1:][opened] - first]
    place = np.arange(len(deltas))
    place += np.searchsorted(before, place, side="right")
    records = []
    event_type = field(TrackEvent.TYPE, batch.event_type)
    for rows, fields in _list_shapes(batch.fields, first, stop):
        values = [one.encode(first, stop, rows) for one in fields]
        own = begins[rows]
        records.append((place[own], _encode_events(batch.sequence, deltas[own], event_type, *values)))
    is_end = np.ones(len(deltas), dtype=bool)
    is_end[begins] = False
    ends = np.flatnonzero(is_end)
    event_type = field(TrackEvent.TYPE, EventType.SLICE_END)
    records.append((place[ends], _encode_events(batch.sequence, deltas[ends], event_type)))
    openings = message(
        Trace.PACKET,
        field(TracePacket.SEQUENCE_ID, batch.sequence),
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.NEEDS_INCREMENTAL_STATE),
        _defaults(batch.track_uuids[1:][opened]),
        _restart_clock(),
    )
    records.append((place[before] - 1, encode_rows(openings, len(before))))
    packets = join_records([record for record in records if len(record[0])])
    if first:
        return compress(packets)
    opening = message(  # clears the state of the sequence, and sets defaults, strings and the clock
        Trace.PACKET,
        field(TracePacket.SEQUENCE_ID, batch.sequence),
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.INCREMENTAL_STATE_CLEARED),
        _defaults(int(batch.track_uuids[0])),
        field(TracePacket.INTERNED_DATA, batch.interned),
        _restart_clock(),
    )
    return compress(np.concatenate((np.frombuffer(constant(opening), np.uint8), packets)))


def _list_shapes(
    fields: Sequence[_Field], first: int, stop: int
) -> Iterator[tuple[Array | slice, list[_Field]]]:
    """Group the rows [first, stop) by their fields; yield the rows and the fields of each group."""
    masks = [one.find_present(first, stop) for one in fields]
    nullable = [mask for mask in masks if mask is not None and mask.any()]
    if not nullable:
        yield slice(None), [one for one, mask in zip(fields, masks, strict=True) if mask is None]
        return
    first_of, shape = find_distinct(pack(*(mask.astype(np.int64) for mask in nullable)))
    for row, rows in zip(first_of, list_groups(shape, len(first_of)), strict=True):
        yield rows, [one for one, mask in zip(fields, masks, strict=True) if mask is None or mask[row]]


def _encode_events(sequence: int, deltas: NDArray[np.uint64], *event: Parts) -> NDArray[np.uint8]:
    return encode_rows(
        message(
            Trace.PACKET,
            field(TracePacket.TIMESTAMP, deltas),
            field(TracePacket.SEQUENCE_ID, sequence),
            field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.NEEDS_INCREMENTAL_STATE),
            message(TracePacket.TRACK_EVENT, *event),
        ),
        len(deltas),
    )


def _defaults(track_uuid: int | NDArray[np.uint64]) -> Parts:
    return message(
        TracePacket.DEFAULTS,
        field(Defaults.TIMESTAMP_CLOCK_ID, BuiltinClock.OF_SUBTRACK),
        message(Defaults.TRACK_EVENT, field(TrackEvent.TRACK_UUID, track_uuid)),
    )


@cache
def _restart_clock() -> Parts:
    """Encode the snapshot that resets the subtrack clock to the report's base."""
    own = message(
        ClockSnapshot.CLOCKS,
        field(Reading.CLOCK_ID, BuiltinClock.OF_SUBTRACK),
        field(Reading.TIMESTAMP, 0),
        field(Reading.IS_INCREMENTAL, True),
    )
    return message(TracePacket.CLOCK_SNAPSHOT, own, reading(BuiltinClock.OF_REPORT, 0))
