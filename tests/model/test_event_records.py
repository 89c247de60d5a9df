"""Records of CUDA events and the calls that wait for them, against their definition in plain loops."""

from __future__ import annotations

import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import API_CALLS, STREAM_CALLS
from nsys_pp.model.gpu_ops import find_event_calls

CALLS = st.lists(
    st.tuples(
        st.booleans(),  # a record
        st.integers(1, 2),  # process
        st.integers(1, 3),  # event
        st.integers(1, 2),  # context
        st.integers(0, 20),  # start
        st.integers(0, 6),  # length
        st.one_of(st.none(), st.integers(1, 5)),  # number of the record
    ),
    max_size=14,
)
Call = tuple[bool, int, int, int, int, int, int | None]


def find(calls: list[Call]) -> dict[int, int | None]:
    """Return the position of the record of each call that waits."""
    columns = ("is_record", "process_key", "event_id", "context_id", "start_ns", "length", "record_id")
    frame = pl.DataFrame(calls, schema=columns, orient="row").with_columns(
        correlation_id=pl.int_range(pl.len()), end_ns=pl.col("start_ns") + pl.col("length")
    )
    api_calls = frame.with_columns(thread_key=pl.lit(1), name=pl.lit("call")).pipe(conform, API_CALLS)
    stream_calls = frame.with_columns(stream_id=pl.lit(7), record_id=pl.col("record_id").cast(pl.Int64))
    found = find_event_calls(stream_calls.pipe(conform, STREAM_CALLS), api_calls)
    records = found.filter("is_record")
    assert records["record"].to_list() == list(range(len(records)))
    call_of = dict(zip(records["record"], records["correlation_id"], strict=True))
    waits = found.filter(~pl.col("is_record")).select("correlation_id", "record").iter_rows()
    return {correlation: call_of.get(record) for correlation, record in waits}


def define(calls: list[Call]) -> dict[int, int | None]:
    records = [(at, one) for at, one in enumerate(calls) if one[0]]
    numbered = [(one[1], one[6]) for _, one in records if one[6] is not None]
    counts = bool(numbered) and len(set(numbered)) == len(numbered)
    expected: dict[int, int | None] = {}
    for at, (is_record, process, event, _, start, _, number) in enumerate(calls):
        if is_record:
            continue
        own = [(one, row) for row, one in records if one[1:3] == (process, event)]
        if counts and number is not None:
            expected[at] = next((row for one, row in own if one[6] == number), None)
            continue
        before = [(one[4], row, one) for one, row in own if one[4] <= start]
        last = max(before, key=lambda item: item[:2], default=None)
        is_one_event = len({one[3] for one, _ in own}) == 1
        is_before = last is not None and last[0] + last[2][5] <= start
        expected[at] = last[1] if last is not None and is_before and is_one_event else None
    return expected


@settings(deadline=None, max_examples=200)
@given(CALLS)
@example([(True, 1, 1, 1, 0, 2, None), (True, 1, 1, 1, 5, 2, None), (False, 1, 1, 1, 8, 1, None)])
@example([(True, 1, 1, 1, 0, 9, None), (False, 1, 1, 1, 8, 1, None)])
@example([(True, 1, 1, 1, 0, 2, 4), (False, 1, 1, 1, 8, 1, 4), (False, 1, 1, 1, 8, 1, 5)])
def test_records_are_those_of_the_definition(calls: list[Call]) -> None:
    assert find(calls) == define(calls)


def test_no_calls_have_no_records() -> None:
    assert find_event_calls(STREAM_CALLS.to_frame(), API_CALLS.to_frame()).is_empty()
