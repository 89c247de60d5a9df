"""Activities of threads during intervals, against their definition in plain loops."""

from __future__ import annotations

from collections import Counter

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.frames.report import API_CALLS
from nsys_pp.training.gaps import ACTIVITIES, find_activities

Item = tuple[int, int, int, str]


@st.composite
def nested_items(draw: st.DrawFn) -> list[Item]:
    """Draw items that nest on each of two threads."""
    items: list[Item] = []
    for thread in (7, -3):
        open_ends = [100]
        at = 0
        while at < 100 and len(items) < 30:
            at += draw(st.integers(0, 12))
            while len(open_ends) > 1 and open_ends[-1] <= at:
                open_ends.pop()
            if at >= open_ends[-1]:
                break
            end = draw(st.integers(at, open_ends[-1]))
            items.append((thread, at, end, draw(st.sampled_from("abc"))))
            open_ends.append(end)
    return items


@given(
    nested_items(),
    st.lists(st.tuples(st.sampled_from([7, -3, 5]), st.integers(0, 90), st.integers(0, 40)), max_size=6),
)
def test_each_moment_counts_for_the_innermost_item(
    items: list[Item], spans: list[tuple[int, int, int]]
) -> None:
    intervals = pl.DataFrame(
        [(thread, start, start + length) for thread, start, length in spans],
        schema={"thread_key": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64},
        orient="row",
    )
    columns = ["thread_key", "start_ns", "end_ns", "name"]
    schema = {column: API_CALLS[column] for column in columns}
    found = find_activities(intervals, pl.DataFrame(items, schema=schema, orient="row"))

    expected: Counter[tuple[int, str]] = Counter()
    for number, (thread, since, until) in enumerate(intervals.rows()):
        for moment in range(since, until):
            around = [item for item in items if item[0] == thread and item[1] <= moment < item[2]]
            if around:
                innermost = max(around, key=lambda item: (item[1], -item[2], items.index(item)))
                expected[number, innermost[3]] += 1
    assert found.schema == ACTIVITIES
    assert {(number, name): time for number, name, time in found.rows()} == dict(expected)
    assert found["interval"].is_sorted()
    for _, own in found.group_by("interval"):
        assert own["time_ns"].to_list() == sorted(own["time_ns"].to_list(), reverse=True)
