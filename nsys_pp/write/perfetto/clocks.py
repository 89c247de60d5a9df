"""The clocks of a Perfetto trace: each report's, and that of the subtrack that is being read.

A report's sequence begins with a small head that maps the report's clock onto the trace's, one
snapshot of both for each piece: to move a report in time, only its head is written again. A subtrack's
timestamps count from the event before, on a clock that its first packet sets back to the report's
base. An event's time goes from the subtrack's clock to the report's and on to the trace's.

The importer compares a snapshot only with those of the same clocks, which must not go back: that of
a subtrack is always the same one, those of a report are in order, and reports have sequences of their
own. It maps a time by the last snapshot at or before it, or else by the first, with slope 1.

Sources: `protos/perfetto/trace/clock_snapshot.proto` (incremental clocks, clock ids 64-127) and
`src/trace_processor/util/clock_synchronizer.h` (snapshots by set of clocks, conversion) of
https://github.com/google/perfetto/blob/v52.0.
"""

from __future__ import annotations

import numpy as np
from zlib_ng import zlib_ng

from nsys_pp.frames.clock import Clock
from nsys_pp.write.perfetto.protobuf import (
    BuiltinClock,
    ClockSnapshot,
    Reading,
    SequenceFlags,
    Trace,
    TracePacket,
)
from nsys_pp.write.perfetto.wire import Array, Parts, constant, encode_rows, field, message

FRAME_SEQUENCE = 1  # of what holds for the whole trace; 0 is no sequence
COMPRESSION_LEVEL = 2  # of zlib-ng; level 1 writes a third more, level 3 takes a third longer


def sequence_id(report_id: int) -> int:
    """Give the packet sequence of a report: 31 bits of its id, but none that is taken already.

    With the 32nd bit the importer of v52 does not know the sequence's clocks for such
    (`IsConvertedSequenceClock` shifts a signed number).
    """
    return max(report_id & 0x7FFFFFFF, FRAME_SEQUENCE + 1)


def encode_head(sequence: int, base_ns: int, last_ns: int, clock: Clock) -> bytes:
    """Encode the packets that open a report's sequence and put its times on the trace's clock.

    Args:
        sequence: The report's.
        base_ns: What its times count from, on its own clock.
        last_ns: Its last event; pieces of the clock that begin later are left out.
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
    head = encode_rows(message(Trace.PACKET, sequence_field, *opening, first), 1).tobytes()
    if not len(further):
        return head
    rest = message(Trace.PACKET, sequence_field, _snapshot(own[1:], trace[1:]))
    return head + compress(encode_rows(rest, len(further)).tobytes())


def _snapshot(own: Array, trace: Array) -> Parts:
    return message(
        TracePacket.CLOCK_SNAPSHOT,
        reading(BuiltinClock.OF_REPORT, own),
        reading(BuiltinClock.BOOTTIME, trace),
    )


def reading(clock_id: int, timestamp: int | Array) -> Parts:
    """Make the reading of one clock in a snapshot of several."""
    return message(
        ClockSnapshot.CLOCKS, field(Reading.CLOCK_ID, clock_id), field(Reading.TIMESTAMP, timestamp)
    )


def restart_subtrack_clock() -> Parts:
    """Make the snapshot that sets the subtrack's clock, which counts from event to event, to the report's base."""
    own = message(
        ClockSnapshot.CLOCKS,
        field(Reading.CLOCK_ID, BuiltinClock.OF_SUBTRACK),
        field(Reading.TIMESTAMP, 0),
        field(Reading.IS_INCREMENTAL, True),
    )
    return message(TracePacket.CLOCK_SNAPSHOT, own, reading(BuiltinClock.OF_REPORT, 0))


def compress(packets: bytes) -> bytes:
    """Pack packets into one."""
    data = zlib_ng.compress(packets, COMPRESSION_LEVEL)
    return constant(message(Trace.PACKET, field(TracePacket.COMPRESSED_PACKETS, data)))
