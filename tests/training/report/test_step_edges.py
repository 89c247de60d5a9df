"""Start and end of steps on their devices, against their definition in plain loops."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.training.steps import StepHosts, StepOps, find_step_edges

LATE = 50_000


@dataclass(frozen=True, slots=True)
class Op:
    launch: int
    start: int
    end: int
    kind: str  # "kernel", "set", "communication", "aside"


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    begin: int
    end: int


def find(steps: list[Step], ops: list[Op]) -> list[tuple[int, int]]:
    hosts = StepHosts(
        device=np.zeros(len(steps), np.int64),
        number=np.array([step.number for step in steps]),
        first=np.array([min(op.start for op in ops if op.kind == "kernel" and of(op, steps) == n) for n in range(len(steps))]),
        begin=np.array([step.begin for step in steps]),
        end=np.array([step.end for step in steps]),
        is_open=np.zeros(len(steps), np.bool_),
        is_capture=np.zeros(len(steps), np.bool_),
        has_end=np.ones(len(steps), np.bool_),
    )  # fmt: skip
    kinds = np.array([op.kind for op in ops])
    edges = find_step_edges(
        hosts,
        StepOps(
            device=np.zeros(len(ops), np.int64),
            start=np.array([op.start for op in ops]),
            end=np.array([op.end for op in ops]),
            launch=np.array([op.launch for op in ops]),
            launched=np.array([op.launch + 1 for op in ops]),
            is_kernel=kinds == "kernel",
            is_communication=kinds == "communication",
            is_aside=kinds == "aside",
        ),
    )
    return list(zip(edges.start.tolist(), edges.end.tolist(), strict=True))


def of(op: Op, steps: list[Step]) -> int | None:
    """Return the step in which an operation was launched; None between steps."""
    return next((n for n, step in enumerate(steps) if step.begin <= op.launch <= step.end), None)


def defined(steps: list[Step], ops: list[Op]) -> list[tuple[int, int]]:
    first = [
        min(op.start for op in ops if op.kind in ("kernel", "set") and of(op, steps) == number)
        for number in range(len(steps))
    ]
    starts, ends = [], []
    for number, step in enumerate(steps):
        launched = [op for op in ops if op.launch < step.begin and op.kind != "aside"]
        before = [op.end for op in launched if op.end <= first[number]]
        starts.append(min(max([step.begin, *before]), first[number]))
        until = first[number + 1] if number + 1 < len(steps) else 10**9
        own = [op.end for op in ops if of(op, steps) == number and op.kind != "aside"]
        ends.append(max([step.end, *(end for end in own if end <= until)]))
    for number, (step, following) in enumerate(pairwise(steps)):
        is_followed = not any(step.end < op.launch < following.begin for op in ops)
        is_followed &= following.number == step.number + 1
        ends[number] = starts[number + 1] if is_followed else min(ends[number], starts[number + 1])
    return list(zip(starts, ends, strict=True))


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Step], list[Op]]:
    """Draw steps on the host and their operations: kernels and sets in order, others at any time."""
    steps: list[Step] = []
    ops: list[Op] = []
    lengths = st.integers(1, 40)
    now, free = draw(st.integers(0, 20)), 0
    for number in draw(st.lists(st.integers(3, 5), min_size=1, max_size=3).map(sorted)):
        begin = now
        for kind in draw(st.permutations(["kernel", *draw(st.lists(st.sampled_from(["kernel", "set", "communication", "aside"]), max_size=5))])):  # fmt: skip
            launch = now = now + draw(lengths)
            is_own = kind in ("kernel", "set")
            start = max(launch + 1, free) if is_own else launch + draw(lengths)
            end = start + draw(lengths)
            free = end if is_own else free
            ops.append(Op(launch, start, end, kind))
        end = now + draw(lengths)
        steps.append(Step(number, begin, end))
        now = end + draw(st.integers(0, 30))
        if draw(st.booleans()):  # something between steps
            launch = now = now + draw(lengths)
            start = max(launch + 1, free)
            free = start + draw(lengths)
            ops.append(Op(launch, start, free, draw(st.sampled_from(["kernel", "set", "aside"]))))
            now += draw(lengths)
    ops.append(Op(now + 1, max(free, now + 1), max(free, now + 1) + 5, "set"))  # after the last range
    return steps, ops


@settings(deadline=None, max_examples=300)
@given(runs())
def test_steps_are_cut_by_their_definition(drawn: tuple[list[Step], list[Op]]) -> None:
    steps, ops = drawn
    found = find(steps, ops)
    assert found == defined(steps, ops)
    assert all(end <= start for (_, end), (start, _) in pairwise(found))


def test_a_device_that_is_busy_with_unrecorded_work_cuts_its_first_step() -> None:
    steps = [Step(3, 1_000, 5_000)]
    late = Op(2_000, 900_000, 950_000, "kernel")
    assert find(steps, [late]) == [(900_000, 950_000)]
    message = Op(2_000, 3_000, 900_000 - LATE, "communication")
    assert find(steps, [late, message]) == [(1_000, 950_000)]
