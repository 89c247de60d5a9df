"""Merging of encoded reports into one Perfetto trace.

A trace is a concatenation of packets. The header comes first: clocks, attributes and the tree of tracks.
Then, for each report, a preamble maps its clock onto the trace's, and compressed blocks hold its events.
Blocks depend on their report only. So reports are encoded separately, in any order and process, parts hold
the blocks, and a merge copies their bytes.

The preamble begins the packet sequence of a report with one snapshot of both clocks per piece of `Clock`. To
shift a report in time, only its preamble is rewritten. The importer requires the snapshots of the same set of
clocks to be in order of time. This holds: all subtracks repeat the same snapshot, the snapshots of a preamble
are in order, and each report has its own sequence. The importer converts a time by the last snapshot at or
before it, or else by the first one, at a slope of 1.

Sources: https://github.com/google/perfetto/blob/v52.0/docs/reference/synthetic-track-event.md,
`protos/perfetto/trace/clock_snapshot.proto` (incremental clocks, clock ids 64-127) and
`src/trace_processor/util/clock_synchronizer.h` (snapshots by set of clocks, conversion) there.
`tests/output/perfetto/test_trace.py` checks traces with Perfetto's importer.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from msgspec import Struct

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Encoded, EncodedSubtrack
from nsys_pp.output.perfetto.encoding import Sink as Sink
from nsys_pp.output.perfetto.encoding import compress, leaf_uuid
from nsys_pp.output.perfetto.encoding import encode_drawing as encode_drawing
from nsys_pp.output.perfetto.header import encode_header, reading
from nsys_pp.output.perfetto.protobuf import BuiltinClock, SequenceFlags, Trace, TracePacket
from nsys_pp.output.perfetto.wire import DELIMITED, Array, Parts, encode_rows, field, message, tag
from nsys_pp.output.trace.drawing import Path, Placement, list_titles, place_path, place_tracks, sequence_id

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
    starts = [start for report in reports if (start := _start_ns(report)) is not None]
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
    placements = [report.placement for report in reports]
    is_utc = all(placement.is_utc for placement in placements)
    attributes = {key: text for placement in placements for key, text in placement.attributes.items()}
    if placements:
        attributes["zero_utc_ns" if is_utc else "zero_ns"] = str(zero_ns)
    leaves: dict[Path, list[int]] = {}  # uuids of the tracks with events
    for report in reports:
        for subtrack in report.drawn_subtracks():
            leaf = leaf_uuid(report.encoded.report_id, subtrack.track, subtrack.ordinal)
            leaves.setdefault(place_path(subtrack.track, report.placement), []).append(leaf)
    return encode_header(
        tracks={
            path: track
            for report in reversed(reports)
            for path, track in place_tracks(report.encoded.tracks, report.placement).items()
        },
        leaves=leaves,
        outermost=list_titles(placements),
        first_ns=first_ns - zero_ns,
        utc_ns=first_ns if is_utc else None,
        attributes=attributes,
    )


def _start_ns(report: PlacedReport) -> int | None:
    """Return the time of the first drawn event on the run's clock; None if no event is drawn."""
    starts = [subtrack.first_ns for subtrack in report.drawn_subtracks()]
    return int(report.placement.clock.to_trace(np.array([min(starts)]))[0]) if starts else None


def _read(source: Source, size: int) -> bytes:
    pieces = []
    while size:
        pieces.append(source.read(size))
        size -= len(pieces[-1])
        if not pieces[-1]:
            raise EOFError("the blocks of a report end early")
    return b"".join(pieces)
