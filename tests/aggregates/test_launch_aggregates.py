"""Delays and queues of launches are those of their definitions."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings

from nsys_pp.aggregates.times import step_on_device, sum_launches
from nsys_pp.arrays.distributions import describe_distributions
from nsys_pp.frames.aggregates import LATE_NS, LAUNCH_AGGREGATES, SLOW_CALL_NS
from tests.aggregates.real_reports import NAMES, read_real_report
from tests.aggregates.small_reports import REPORTS, Row, SmallReport, call, make_report, op, step

_DEVICE = ["process_key", "device_id"]
_STEP = [*_DEVICE, "step"]
_NUMBERS = ["count", "total", "short_count", "slow_call_count", "late_count", "queued_ns", "queue_most"]


def _sum(report: SmallReport) -> pl.DataFrame:
    return sum_launches(
        report.gpu_ops, api_calls=report.api_calls, launches=report.launches, steps=report.steps
    )


def _list_launches(report: SmallReport) -> list[Row]:
    """List what each call put on each device, by the definition."""
    calls = report.api_calls.to_dicts()
    found: dict[tuple[object, ...], Row] = {}
    for op_id, row in enumerate(report.gpu_ops.iter_rows(named=True)):
        own = [place for known, place in report.launches.rows() if known == op_id]
        if row["kind"] in ("kernel", "graph") and own:
            first = min(own, key=lambda place: (calls[place]["start_ns"], place))
            launch = found.setdefault((row["device_id"], first), row | {"call": calls[first]})
            launch["start_ns"] = min(launch["start_ns"], row["start_ns"])
            launch["end_ns"] = max(launch["end_ns"], row["end_ns"])
    return list(found.values())


def _find_step(device: tuple[object, ...], time: int, report: SmallReport) -> int | None:
    row = pl.DataFrame(
        [(*device, time)], {**report.steps.select(_DEVICE).schema, "start_ns": pl.Int64}, orient="row"
    )
    return step_on_device(row, report.steps)[0]  # type: ignore[no-any-return]


@settings(deadline=None, max_examples=60)
@given(report=REPORTS)
def test_sums_are_those_of_their_definitions(report: SmallReport) -> None:
    expected: dict[tuple[object, ...], list[int]] = {}
    launches = _list_launches(report)
    for device in {(row["process_key"], row["device_id"]) for row in launches}:
        own = [row for row in launches if (row["process_key"], row["device_id"]) == device]
        for row in own:
            called, delay = row["call"], row["start_ns"] - row["call"]["start_ns"]
            call_ns = called["end_ns"] - called["start_ns"]
            sums = expected.setdefault((*device, _find_step(device, row["start_ns"], report)), [0] * 7)
            new = (
                1,
                delay,
                row["end_ns"] - row["start_ns"] < call_ns,
                call_ns > SLOW_CALL_NS,
                delay > LATE_NS,
                0,
                0,
            )
            sums[:] = [old + more for old, more in zip(sums, new, strict=True)]
        spans = [(min(row["call"]["start_ns"], row["start_ns"]), row["end_ns"]) for row in own]
        for time in range(-1, 70):
            queue = sum(start <= time < end for start, end in spans)
            if queue:
                sums = expected.setdefault((*device, _find_step(device, time, report)), [0] * 7)
                sums[5:] = [sums[5] + queue, max(sums[6], queue)]
    found = _sum(report)
    assert {row[:3]: list(row[3:]) for row in found.select(_STEP + _NUMBERS).rows()} == expected
    assert found.select(_STEP).equals(found.select(_STEP).sort(_STEP, nulls_last=True))


def test_cut_offs_are_exceeded_and_not_reached() -> None:
    calls = [call(1, 1, (0, SLOW_CALL_NS)), call(1, 2, (0, SLOW_CALL_NS + 1)), call(1, 3, (0, 20))]
    spans = [(LATE_NS, LATE_NS + 20), (LATE_NS + 1, LATE_NS + SLOW_CALL_NS + 2), (30, 49)]
    ops = [op((1, 0), span, correlation=number) for number, span in enumerate(spans, 1)]
    [row] = _sum(make_report(ops, calls)).select(_NUMBERS).rows()
    assert row[:5] == (3, 2 * LATE_NS + 31, 2, 1, 1)


def test_a_graph_of_many_kernels_is_one_launch() -> None:
    ops = [op((1, 0), (start, start + 10), correlation=1) for start in (40, 20, 60)]
    [row] = _sum(make_report(ops, [call(1, 1, (0, 30))])).select(_NUMBERS).rows()
    assert row == (1, 20, 0, 0, 0, 70, 1)


def test_of_several_calls_the_latest_possible_one_counts() -> None:
    calls = [call(1, 1, (7, 9)), call(1, 1, (2, 3)), call(1, 1, (5, 6))]
    assert _sum(make_report([op((1, 0), (10, 15), correlation=1)], calls))["total"].to_list() == [3]


def test_copies_and_kernels_without_a_call_do_not_count() -> None:
    ops = [op((1, 0), (10, 15), ("memcpy", False), correlation=1), op((1, 0), (20, 30), correlation=2)]
    assert _sum(make_report(ops, [call(1, 1, (0, 5))])).equals(LAUNCH_AGGREGATES.to_frame())
    assert _sum(make_report()).equals(LAUNCH_AGGREGATES.to_frame())


def test_a_queue_reaches_into_steps_in_which_nothing_starts() -> None:
    steps = [step((1, 0), number, (10 * number, 10 * number + 10)) for number in range(4)]
    ops = [op((1, 0), (25, 35), correlation=1), op((1, 0), (28, 32), correlation=2)]
    found = _sum(make_report(ops, [call(1, 1, (15, 16)), call(1, 2, (22, 23))], steps))
    assert found.select("step", *_NUMBERS).rows() == [
        *((1, 0, 0, 0, 0, 0, 5, 1), (2, 2, 16, 0, 0, 0, 18, 2), (3, 0, 0, 0, 0, 0, 7, 2)),
    ]
    assert found["values"].to_list() == [[], [6, 10], []]
    assert describe_distributions(found)["mean_ns"].to_list() == [None, 8.0, None]


@pytest.mark.parametrize("name", NAMES)
def test_launches_of_a_real_report_are_all_counted(shared_reports: list[Path], name: str) -> None:
    real = read_real_report(shared_reports, name)
    ops, calls = real.report.gpu_ops, real.report.api_calls
    found = sum_launches(ops, api_calls=calls, launches=real.launches, steps=real.steps)
    kernels = ops.filter(pl.col("kind").is_in(["kernel", "graph"])).join(real.launches, on="op_id")
    first = kernels.group_by("call_row").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    called = calls["start_ns"].gather(first["call_row"])
    assert found["count"].sum() == len(first)
    assert found["total"].sum() == (first["start_ns"] - called).sum()
    assert found["queued_ns"].sum() == (first["end_ns"] - called).sum()
