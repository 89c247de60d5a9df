"""Clocks of a Perfetto trace: one per report, and the clock of the current subtrack.

A report's sequence begins with a small head that maps the report's clock onto the trace's, one
snapshot of both for each piece: to move a report in time, only its head is rewritten. The timestamps of a
subtrack are relative to the previous event, on a clock that its first packet resets to the report's
base. The time of an event is mapped from the subtrack's clock to the report's, and from there to the trace's.

The importer compares a snapshot only with other snapshots of the same clocks, which must not go back: a
subtrack always repeats the same snapshot, a report has its snapshots in order, and each report has its own
sequence. It maps a time by the last snapshot at or before it, or else by the first, with slope 1.

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

COMPRESSION_LEVEL = 2  # of zlib-ng; level 1 writes a third more, level 3 takes a third longer


def encode_head(sequence: int, base_ns: int, last_ns: int, clock: Clock) -> bytes:
    """Encode the packets that open a report's sequence and map its times onto the trace's clock.

    Args:
        sequence: Sequence of the report.
        base_ns: Origin of its times, on its own clock.
        last_ns: Its last event; later pieces of the clock are skipped.
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
    """Encode the reading of one clock within a snapshot."""
    return message(
        ClockSnapshot.CLOCKS, field(Reading.CLOCK_ID, clock_id), field(Reading.TIMESTAMP, timestamp)
    )


def restart_subtrack_clock() -> Parts:
    """Encode the snapshot that resets the incremental clock of a subtrack to the report's base."""
    own = message(
        ClockSnapshot.CLOCKS,
        field(Reading.CLOCK_ID, BuiltinClock.OF_SUBTRACK),
        field(Reading.TIMESTAMP, 0),
        field(Reading.IS_INCREMENTAL, True),
    )
    return message(TracePacket.CLOCK_SNAPSHOT, own, reading(BuiltinClock.OF_REPORT, 0))


def compress(packets: bytes) -> bytes:
    """Compress packets into one packet."""
    data = zlib_ng.compress(packets, COMPRESSION_LEVEL)
    return constant(message(Trace.PACKET, field(TracePacket.COMPRESSED_PACKETS, data)))
