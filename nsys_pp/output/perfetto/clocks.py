"""Clocks of a Perfetto trace: the trace's clock, one clock per report, and one incremental clock for subtracks.

Each event has the time since the previous event of its subtrack, on the subtrack clock. The first packet of a subtrack
resets this clock to the report's base. The importer converts a time from the subtrack clock to the report's clock, and
from there to the trace's clock.

The packets of a report (its sequence) begin with a preamble that maps the report's clock onto the trace's: one snapshot
of both clocks per piece of `Clock`. To shift a report in time, only its preamble is rewritten.

The importer requires the snapshots of the same set of clocks to be in order of time. This holds: all subtracks repeat the
same snapshot, the snapshots of a preamble are in order, and each report has its own sequence. The importer converts a time
by the last snapshot at or before it, or else by the first one, at a slope of 1.

Sources: `protos/perfetto/trace/clock_snapshot.proto` (incremental clocks, clock ids 64-127) and
`src/trace_processor/util/clock_synchronizer.h` (snapshots by set of clocks, conversion) of
https://github.com/google/perfetto/blob/v52.0.
"""

from __future__ import annotations

from functools import cache

import deflate
import numpy as np
from numpy.typing import NDArray

from nsys_pp.frames.clock import Clock
from nsys_pp.output.perfetto.protobuf import (
    BuiltinClock,
    ClockSnapshot,
    Reading,
    SequenceFlags,
    Trace,
    TracePacket,
)
from nsys_pp.output.perfetto.wire import DELIMITED, Array, Parts, encode_rows, field, message, tag, varint

COMPRESSION_LEVEL = 1  # of libdeflate; level 2 takes a third longer for two percent


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
    first = _snapshot(own[:1], trace[:1])
    opening = (
        field(TracePacket.SEQUENCE_FLAGS, SequenceFlags.INCREMENTAL_STATE_CLEARED),
        field(TracePacket.FIRST_PACKET_ON_SEQUENCE, True),
    )
    sequence_field = field(TracePacket.SEQUENCE_ID, sequence)
    first_packet = encode_rows(message(Trace.PACKET, sequence_field, *opening, first), 1).tobytes()
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


def reading(clock_id: int, timestamp: int | Array) -> Parts:
    """Encode the time of one clock within a snapshot."""
    return message(
        ClockSnapshot.CLOCKS, field(Reading.CLOCK_ID, clock_id), field(Reading.TIMESTAMP, timestamp)
    )


@cache
def restart_subtrack_clock() -> Parts:
    """Encode the snapshot that resets the subtrack clock to the report's base."""
    own = message(
        ClockSnapshot.CLOCKS,
        field(Reading.CLOCK_ID, BuiltinClock.OF_SUBTRACK),
        field(Reading.TIMESTAMP, 0),
        field(Reading.IS_INCREMENTAL, True),
    )
    return message(TracePacket.CLOCK_SNAPSHOT, own, reading(BuiltinClock.OF_REPORT, 0))


def compress(packets: bytes | NDArray[np.uint8]) -> bytes:
    """Encode one packet that holds the given packets, compressed."""
    data = deflate.zlib_compress(packets, COMPRESSION_LEVEL)
    inner = tag(TracePacket.COMPRESSED_PACKETS, DELIMITED) + varint(len(data))
    return b"".join((tag(Trace.PACKET, DELIMITED), varint(len(inner) + len(data)), inner, data))  # one copy
