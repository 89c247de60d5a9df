"""Numbers of steps that are the same on all lanes."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.training import RUN_SPANS, RUN_STEPS, span_steps
from nsys_pp.training.numbering import (
    STEP_NUMBERS,
    describe_restart,
    join_steps,
    number_steps,
    renumber_steps,
)
from tests.training.scheduled_runs import STEPS_BY_LANE, fill_columns


def steps(*rows: tuple[int, int, int, int, bool]) -> pl.DataFrame:
    """(lane, step, start, end, is numbered)"""
    frame = pl.DataFrame(rows, schema=["lane", "step", "start_ns", "end_ns", "is_numbered"], orient="row")
    return fill_columns(frame.with_columns(is_partial=False), STEPS_BY_LANE)


def numbers(frame: pl.DataFrame) -> list[tuple[int, int, int]]:
    return number_steps(frame).rows()


def test_each_capture_of_a_lane_is_matched_by_time() -> None:
    """Lane 1 begins its second capture a step later than lane 0."""
    found = steps(
        (0, 0, 100, 200, False),
        (0, 1, 200, 300, False),
        (0, 3, 1000, 1100, False),
        (0, 4, 1100, 1200, False),
        (1, 0, 110, 210, False),
        (1, 1, 210, 310, False),
        (1, 3, 1110, 1210, False),
    )
    assert numbers(found) == [
        (0, 0, 0), (0, 1, 1), (0, 3, 2), (0, 4, 3), (1, 0, 0), (1, 1, 1), (1, 3, 3)
    ]  # fmt: skip


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6), st.integers(-40, 40)), min_size=1, max_size=5),
    st.booleans(),
)
def test_counted_steps_get_the_number_of_the_step_that_they_are(
    captures: list[tuple[int, int, int]], is_first_numbered: bool
) -> None:
    """Lanes begin in any step and lag by up to two fifths of a step; the first one sees all."""
    rows = [(0, step, 100 * step, 100 * step + 100, is_first_numbered) for step in range(16)]
    for lane, (first, count, lag) in enumerate(captures, 1):
        rows += [
            (lane, at, 100 * (first + at) + lag, 100 * (first + at) + 100 + lag, False) for at in range(count)
        ]
    expected = [(lane, step, step + (captures[lane - 1][0] if lane else 0)) for lane, step, *_ in rows]
    assert numbers(steps(*rows)) == expected


def test_counted_steps_take_the_numbers_of_those_that_are_named() -> None:
    found = steps(
        (0, 10, 100, 200, True),
        (0, 20, 200, 300, True),
        (1, 0, 10, 105, False),
        (1, 1, 105, 205, False),
        (1, 2, 205, 305, False),
        (1, 3, 305, 405, False),
    )
    assert numbers(found)[2:] == [(1, 0, 9), (1, 1, 10), (1, 2, 20), (1, 3, 21)]


_CAPTURES = st.lists(
    st.tuples(st.booleans(), st.permutations(range(8)), st.integers(1, 8), st.integers(-5, 5)),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)
@given(_CAPTURES)
def test_a_number_is_of_one_step_of_a_lane(captures: list[tuple[bool, list[int], int, int]]) -> None:
    """Numbers in names in any order, and counted steps of other captures at any time."""
    rows = [
        (lane, names[at] if is_named else at, 100 * (first + at), 100 * (first + at) + 100, is_named)
        for lane, (is_named, names, count, first) in enumerate(captures)
        for at in range(count)
    ]
    found = numbers(steps(*rows))
    assert [(lane, step) for lane, step, _ in found] == [(lane, step) for lane, step, *_ in rows]
    assert len({(lane, number) for lane, _, number in found}) == len(rows)


def test_names_of_a_counter_that_restarts_identify_no_steps() -> None:
    """The first lane records steps 10, 11 and 12, the second one 12, and 10 and 11 after a restart."""
    found = steps(
        *((0, 10 + at, 100 * at, 100 * at + 100, True) for at in range(3)),
        *((1, step, 100 * at + 1, 100 * at + 101, True) for at, step in [(2, 12), (3, 10), (4, 11)]),
    )
    assert numbers(found) == [(0, 10, 0), (0, 11, 1), (0, 12, 2), (1, 12, 2), (1, 10, 3), (1, 11, 4)]
    (note,) = describe_restart(found, number_steps(found))
    assert "restart during the run" in note


def test_names_in_one_order_on_all_lanes_are_kept_whatever_the_order_is() -> None:
    found = steps(
        *((0, step, 100 * at, 100 * at + 100, True) for at, step in enumerate([12, 10, 11])),
        *((1, step, 100 * at, 100 * at + 100, True) for at, step in enumerate([12, 11])),
    )
    assert all(step == number for _, step, number in numbers(found))
    assert describe_restart(found, number_steps(found)) == []


def test_steps_without_a_name_on_a_lane_that_names_others_lie_before_and_after() -> None:
    found = steps(
        (0, 0, 50, 100, False), (0, 10, 100, 200, True), (0, 11, 200, 300, True), (0, 1, 300, 340, False)
    )
    assert numbers(found) == [(0, 0, 9), (0, 10, 10), (0, 11, 11), (0, 1, 12)]


def test_a_number_that_the_lane_has_already_is_given_to_no_other_step() -> None:
    found = steps(
        (0, 10, 100, 200, True), (1, 10, 100, 140, True), (1, 0, 60, 90, False), (1, 11, 210, 220, True)
    )
    assert (1, 0, 10) not in numbers(found)
    assert [step for lane, step, _ in numbers(found) if lane == 1 and step != 0] == [10, 11]


def test_every_frame_is_renumbered_alike_and_what_is_outside_stays_outside() -> None:
    found = number_steps(steps((0, 0, 100, 200, False), (1, 0, 0, 100, False), (1, 1, 100, 200, False)))
    frame = pl.DataFrame(
        {"lane": [1, 0, 1, 0], "step": [1, 0, None, 7], "x": [1, 2, 3, 4]},
        schema_overrides={"lane": pl.UInt32},
    )
    assert renumber_steps(frame, found).rows() == [(1, 1, 1), (0, 1, 2), (1, None, 3), (0, None, 4)]


def test_steps_of_the_run_by_step_and_lane_and_as_one() -> None:
    every = steps((1, 5, 3, 13, True), (0, 5, 0, 10, True), (0, 6, 10, 20, True))
    joined = join_steps(every.with_columns(is_partial=pl.col("start_ns") == 3), number_steps(every))
    assert joined.schema == RUN_STEPS
    times = joined.drop("source").rows()
    assert times == [(0, 5, 0, 10, False), (1, 5, 3, 13, True), (0, 6, 10, 20, False)]
    assert span_steps(joined).rows() == [(5, 0, 13, True, 2), (6, 10, 20, False, 1)]


def test_no_steps_no_numbers() -> None:
    nothing = STEPS_BY_LANE.to_frame()
    assert number_steps(nothing).equals(STEP_NUMBERS.to_frame())
    joined = join_steps(nothing, number_steps(nothing))
    assert joined.equals(RUN_STEPS.to_frame())
    assert span_steps(joined).equals(RUN_SPANS.to_frame())
