"""Waits of small random programs against their definition in plain loops, and where less is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import API_CALLS, GPU_OPS, STREAM_CALLS
from nsys_pp.frames.training import MESSAGES, PAUSE_NS, STEPS, WAITS
from nsys_pp.projection.launches import match_launches
from nsys_pp.training.kernels import find_segments
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.waits import build_waits

COMPUTE, COPIES, REDUCE, RECEIVE = 7, 13, 20, 21
GEMM, SET, COPY, COLLECTIVE, MESSAGE = (
    "gemm",
    "Memset",
    "Memcpy HtoD",
    "ncclDevKernel_AllReduce",
    "ncclDevKernel_SendRecv",
)
UNPACK = "unpack"  # a kernel aside
KINDS = {
    UNPACK: "kernel",
    GEMM: "kernel",
    SET: "memset",
    COPY: "memcpy",
    COLLECTIVE: "kernel",
    MESSAGE: "kernel",
}
NEEDS = {COLLECTIVE: "collective", MESSAGE: "message"}
CALL_NS, LATENCY_NS, GAP_NS, RETURN_NS = 3_000, 5_000, 1_000, 6_000
MAIN, AUTOGRAD = 1, 2
Piece = tuple[str, int, int]


@dataclass
class Op:
    """An operation, and the one that held it.

    Without one its launch did, and the host waited for `awaited` before.
    """

    name: str
    stream: int
    correlation: int
    start: int
    end: int
    holder: Op | None
    awaited: Op | None


@dataclass
class Program:
    """A host that launches operations, one after the other, and the device that runs them."""

    now: int = 1_000
    thread: int = MAIN
    ops: list[Op] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    stream_calls: list[dict[str, Any]] = field(default_factory=list)
    awaited: Op | None = None

    def call(self, name: str, until: int | None = None, **row: Any) -> int:
        number, until = len(self.calls) + 1, self.now + CALL_NS if until is None else until
        times = {"start_ns": self.now, "end_ns": until, "correlation_id": number}
        self.calls.append({"name": name, "thread_key": self.thread, **times})
        if row:
            self.stream_calls.append({"correlation_id": number, "is_record": False, **row})
        self.now = until + 500
        return number

    def last(self, stream: int) -> Op | None:
        return next((op for op in reversed(self.ops) if op.stream == stream), None)

    def launch(self, name: str, stream: int, length: int, after: list[int]) -> None:
        """Launch an operation that waits for the last ones of other streams."""
        needed = []
        for other in after:
            last = self.last(other)
            if last is not None and other != stream:
                event = len(self.calls)
                self.call("cudaEventRecord", stream_id=other, event_id=event, is_record=True)
                self.call("cudaStreamWaitEvent", stream_id=stream, event_id=event)
                needed.append((last.end, last))
        before = self.last(stream)
        if before is not None:
            needed.append((before.end + GAP_NS, before))
        ready, holder = max(needed, key=lambda need: need[0], default=(0, None))
        if abs(ready - self.now - LATENCY_NS) < 4_000:  # both hold it
            self.now += 8_000
        arrival = self.now + LATENCY_NS
        call = self.call("cudaLaunchKernel")
        start = max(arrival, ready)
        self.ops.append(
            Op(name, stream, call, start, start + length, holder if ready > arrival else None, self.awaited)
        )

    def synchronise(self, stream: int) -> None:
        last = self.last(stream)
        waits = last is not None and last.end > self.now
        self.call(
            "cudaStreamSynchronize", max(last.end if last else 0, self.now) + RETURN_NS, stream_id=stream
        )
        if waits:
            self.awaited = last


def frames(program: Program) -> dict[str, pl.DataFrame]:
    ops = [
        {"name": op.name, "kind": KINDS[op.name], "stream_id": op.stream, "correlation_id": op.correlation}
        | {"start_ns": op.start, "end_ns": op.end, "is_communication": op.name in NEEDS}
        for op in program.ops
    ]
    gpu_ops = pl.DataFrame(ops).with_columns(
        op_id=pl.int_range(pl.len()), process_key=1, device_id=0, context_id=1, graph_id=pl.lit(None)
    )
    calls = pl.DataFrame(program.calls).with_columns(process_key=1).pipe(conform, API_CALLS)
    rows = pl.DataFrame(program.stream_calls, schema=STREAM_CALLS, infer_schema_length=None)
    return {
        "gpu_ops": conform(gpu_ops, GPU_OPS),
        "api_calls": calls,
        "stream_calls": conform(rows.with_columns(process_key=1, context_id=1), STREAM_CALLS),
    }


def waits_of(program: Program, *, waited: Any = None, **changed: pl.DataFrame) -> pl.DataFrame:
    """Find the waits of a program, of which the whole is one step."""
    recorded = frames(program) | changed
    step = {
        "start_ns": 0,
        "end_ns": max(op.end for op in program.ops) + 2_000,
        "process_key": 1,
        "device_id": 0,
    }
    steps = pl.DataFrame([step]).with_columns(
        *(pl.lit(None).alias(name) for name in STEPS if name not in step)
    ).with_columns(step=0).pipe(conform, STEPS)  # fmt: skip
    stream_calls = recorded.pop("stream_calls")
    ops = LaunchedOps(**recorded, launches=match_launches(recorded["api_calls"], recorded["gpu_ops"]))
    found = build_waits(
        find_segments(ops, steps),
        ops,
        steps=steps,
        stream_calls=stream_calls,
        messages=MESSAGES.to_frame(),
        waited=waited,
    )
    assert found.schema == WAITS
    return found


def pieces_of(waits: pl.DataFrame) -> list[Piece]:
    text = pl.coalesce(pl.col("cause", "need").cast(pl.String))
    return _join(waits.select(text, "start_ns", "end_ns").rows())


def chain(op: Op | None, since: int) -> list[Piece]:
    """Follow the chain of an operation back to a time: the pieces before its start.

    None for kernels aside.
    """
    pieces: list[Piece] = []
    while op is not None:
        holder = op.awaited if op.holder is None else op.holder
        if holder is None or holder.end <= since or holder.name == GEMM:
            return [("host", since, op.start), *pieces]
        pieces = [*run_of(holder, since), ("host", holder.end, op.start), *pieces]
        op = holder if holder.start > since else None
    return pieces


def run_of(op: Op, since: int) -> list[Piece]:
    return [(NEEDS.get(op.name, "copy"), max(op.start, since), op.end)] if op.name != UNPACK else []


def defined(program: Program) -> list[Piece]:
    """Explain every gap between kernels by the chain of the next one on the main stream.

    And the end of the step.
    """
    kernels = sorted((op for op in program.ops if op.name in (GEMM, UNPACK)), key=lambda op: op.start)
    mains = [op for op in kernels if op.name == GEMM]
    end = max(op.end for op in program.ops) + 2_000
    others = [op for op in program.ops if op.name not in (GEMM, UNPACK, COPY)]
    last = max(others, key=lambda op: op.end, default=None)
    pieces: list[Piece] = []
    now = 0
    for start, kernel_end in [*((op.start, op.end) for op in kernels), (end, end)]:
        following = next((op for op in mains if op.start >= start), None)
        if following is not None and start - now > (PAUSE_NS if now else 0):
            pieces += clip(chain(following, now), now, start)
        elif following is None and start > now and (start - now > PAUSE_NS or start == end):
            tail = [] if last is None or last.end <= now else [*chain(last, now), *run_of(last, now)]
            rest = max([now, *(until for _, _, until in tail)])
            pieces += clip([*tail, ("idle", rest, max(end, rest))], now, start)
        now = max(now, kernel_end)
    return _join(pieces)


def clip(pieces: list[Piece], since: int, until: int) -> list[Piece]:
    return [
        (cause, max(start, since), min(end, until))
        for cause, start, end in pieces
        if min(end, until) > max(start, since)
    ]


def _join(pieces: list[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for cause, start, end in pieces:
        if joined and joined[-1][0] == cause == "host" and joined[-1][2] == start:
            start = joined.pop()[1]
        if start < end:
            joined.append((cause, start, end))
    return joined


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw a program: launches on four streams, waits for events, waits of the host, and other work."""
    program = Program()
    lengths = st.integers(2, 90).map(lambda us: us * 1_000)
    streams = st.lists(st.sampled_from([COMPUTE, COPIES, REDUCE, RECEIVE]), max_size=2, unique=True)
    names = {
        COMPUTE: [GEMM, GEMM, SET],
        COPIES: [COPY, COPY, UNPACK],
        REDUCE: [COLLECTIVE],
        RECEIVE: [MESSAGE],
    }
    program.launch(GEMM, COMPUTE, 20_000, [])
    for _ in range(draw(st.integers(1, 14))):
        action = draw(st.sampled_from(["launch", "launch", "launch", "synchronise", "work"]))
        if action == "launch":
            stream = draw(st.sampled_from([COMPUTE, COMPUTE, COPIES, REDUCE, RECEIVE]))
            program.launch(draw(st.sampled_from(names[stream])), stream, draw(lengths), draw(streams))
        elif action == "synchronise":
            program.synchronise(draw(st.sampled_from([COMPUTE, COPIES, REDUCE, RECEIVE])))
        else:
            program.now += draw(st.integers(1, 60)) * 1_000
    program.launch(GEMM, COMPUTE, 9_000_000, [])  # most of the kernels' time is on this stream
    ends = [(SET, COMPUTE, 1), (COLLECTIVE, REDUCE, 200), (UNPACK, COPIES, 1)]
    for name, stream, factor in ends[: draw(st.integers(0, 3))]:
        program.launch(name, stream, draw(lengths) * factor, draw(streams))
    return program


@settings(deadline=None, max_examples=150)
@given(programs())
def test_gaps_are_explained_by_the_chain_of_what_held_them(program: Program) -> None:
    assert pieces_of(waits_of(program)) == defined(program)


def receive_late(program: Program) -> None:
    """Launch a kernel, and a message that ends 13 ms later."""
    program.launch(GEMM, COMPUTE, 50_000, [])
    program.launch(MESSAGE, RECEIVE, 13_000_000, [])


# launches after a late message, and the causes of the waits
AFTER_MESSAGE = {
    "a set": (
        [(SET, COMPUTE, 3_000, [RECEIVE]), (GEMM, COMPUTE, 50_000, [])],
        ["host", "message", "copy", "host", "idle"],
    ),
    "collectives that follow each other": (
        [*[(COLLECTIVE, REDUCE, 40_000, [RECEIVE])] * 3, (GEMM, COMPUTE, 50_000, [REDUCE])],
        ["host", "message", "collective", *["host", "collective"] * 2, "idle"],
    ),
    "a kernel that was launched long before": (
        [(GEMM, COMPUTE, 50_000, [RECEIVE])],
        ["host", "message", "idle"],
    ),
}


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.mark.parametrize("events", [True, False], ids=["events", "no events"])
@pytest.mark.parametrize(("launched", "expected"), AFTER_MESSAGE.values(), ids=AFTER_MESSAGE)
def test_what_follows_a_message_leaves_the_wait_to_it(
    launched: list[tuple[str, int, int, list[int]]], expected: list[str], events: bool, program: Program
) -> None:
    receive_late(program)
    for one in launched:
        program.launch(*one)
    found = pieces_of(waits_of(program, **({} if events else {"stream_calls": STREAM_CALLS.to_frame()})))
    assert [cause for cause, *_ in found] == expected
    assert found[1][2] - found[1][1] > 12_000_000


def test_an_event_whose_record_is_unknown_is_the_last_operation_that_ended(program: Program) -> None:
    receive_late(program)
    program.launch(GEMM, COMPUTE, 50_000, [RECEIVE])
    last = program.ops[-1]
    last.start, last.end = last.start + 30_000, last.end + 30_000  # the device takes its time
    waits_only = frames(program)["stream_calls"].filter(~pl.col("is_record"))
    assert "message" in [piece[0] for piece in pieces_of(waits_of(program, stream_calls=waits_only))]


def test_what_nothing_explains_is_unknown(program: Program) -> None:
    program.launch(GEMM, COMPUTE, 50_000, [])
    program.launch(GEMM, COMPUTE, 50_000, [])
    last = program.ops[-1]
    last.start, last.end = 900_000, 950_000
    assert pieces_of(waits_of(program))[1:] == [
        ("unknown", program.ops[0].end, 900_000),
        ("idle", 950_000, 952_000),
    ]


@pytest.mark.parametrize("early_ns", [0, 40_000])
def test_a_synchronous_copy_may_return_before_its_end(early_ns: int, program: Program) -> None:
    program.launch(GEMM, COMPUTE, 50_000, [])
    program.launch(COPY, COMPUTE, 18_000_000, [])
    copied = program.ops[-1]
    program.calls[-1] |= {"name": "cudaMemcpy", "end_ns": copied.end - early_ns}
    program.now = copied.end + 20_000
    program.launch(GEMM, COMPUTE, 50_000, [])
    found = pieces_of(waits_of(program))
    assert ("copy", copied.start, copied.end) in found
    assert [cause for cause, *_ in found] == ["host", "host", "copy", "host", "idle"]


@pytest.mark.parametrize("is_waited", [True, False])
def test_a_launch_that_another_thread_waits_for_waits_for_its_operations(is_waited: bool) -> None:
    """The main thread waits for a message, then autograd launches."""
    program = Program(thread=AUTOGRAD)
    program.launch(GEMM, COMPUTE, 50_000, [])
    program.thread = MAIN
    program.launch(MESSAGE, RECEIVE, 500_000, [])
    program.synchronise(RECEIVE)
    program.thread, program.now = AUTOGRAD, program.now + 2_000_000
    program.launch(GEMM, COMPUTE, 50_000, [])
    calls = np.flatnonzero(frames(program)["api_calls"]["thread_key"].to_numpy() == AUTOGRAD)
    waited = (np.full(len(calls), MAIN), calls) if is_waited else None
    found = [piece[0] for piece in pieces_of(waits_of(program, waited=waited))]
    assert found == (["host", "message", "host", "idle"] if is_waited else ["host", "host", "idle"])
