"""Gaps of devices and streams are those of their definitions, and their causes add up to all idle time."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings

from nsys_pp.aggregates.times import find_idle, step_on_device, sum_launches
from nsys_pp.frames.aggregates import KERNEL_WAIT_NS, LATE_NS, SLOW_CALL_NS
from tests.aggregates.small_reports import REPORTS, Row, SmallReport, call, make_report, op, step

_DEVICE = ["process_key", "device_id"]


_STEP = [*_DEVICE, "step"]


_Gap = tuple[int, int, str]


def _find(report: SmallReport) -> pl.DataFrame:
    return find_idle(
        report.gpu_ops,
        api_calls=report.api_calls,
        launches=report.launches,
        windows=report.windows.device,
    )


def _list_gaps(ops: list[Row], calls: dict[int, int]) -> list[_Gap]:
    """List the gaps between operations by their definition; `calls`: when the call of an operation began."""
    gaps = []
    ops = sorted(ops, key=lambda row: row["start_ns"])
    for place, row in enumerate(ops[1:], 1):
        begin, end = max(before["end_ns"] for before in ops[:place]), row["start_ns"]
        launch = calls.get(row["op_id"])
        if launch is None:
            cause = "unknown"
        elif launch > begin:
            cause = "host_late"
        else:
            cause = "kernel_wait" if end - begin < KERNEL_WAIT_NS else "other"
        if begin < end:
            gaps.append((begin, end, cause))
    return gaps


def _add_up(
    sums: dict[tuple[object, ...], list[Any]], key: tuple[object, ...], gap: _Gap, windows: list[Row]
) -> None:
    begin, end, cause = gap
    for window in windows:
        length = min(end, window["end_ns"]) - max(begin, window["start_ns"])
        if length > 0:
            own = sums.setdefault((*key, window["step"], cause), [0, 0, None])
            begins = begin >= window["start_ns"]
            most = max(own[2] or 0, end - begin) if begins else own[2]
            own[:] = [own[0] + begins, own[1] + length, most]


@settings(deadline=None, max_examples=60)
@given(report=REPORTS)
def test_gaps_are_those_of_their_definition(report: SmallReport) -> None:
    calls: dict[int, int] = {}
    started = report.api_calls["start_ns"].to_list()
    for op_id, row in report.launches.rows():
        calls[op_id] = min(calls.get(op_id, started[row]), started[row])
    expected: dict[tuple[object, ...], list[Any]] = {}
    for windows in report.windows.device.partition_by(_DEVICE):
        device = windows.select(_DEVICE).row(0)
        ops = report.gpu_ops.filter(**dict(zip(_DEVICE, device, strict=True)))
        first, last = windows["start_ns"][0], windows["end_ns"][-1]
        edges = [(first, last)]
        if len(ops):
            edges = [(first, min(ops["start_ns"])), (max(ops["end_ns"]), last)]
        for gap in [(*edge, "edges") for edge in edges] + _list_gaps(ops.to_dicts(), calls):
            _add_up(expected, (*device, None), gap, windows.to_dicts())
        for stream in ops.partition_by("context_id", "stream_id"):
            for gap in _list_gaps(stream.to_dicts(), calls):
                _add_up(expected, (*device, stream["stream_id"][0]), gap, windows.to_dicts())
    found = _find(report).select(*_DEVICE, "stream_id", "step", "cause", "count", "total_ns", "most_ns")
    assert {row[:5]: list(row[5:]) for row in found.rows()} == expected
    assert len(found) == len(expected)


def _report(launch: int | None, *, begin: int = 100) -> SmallReport:
    """Two operations, the second one launched then."""
    calls = [call(1, 1, (0, 5))] + ([call(1, 2, (launch, launch + 3))] if launch is not None else [])
    ops = [op((1, 0), (10, 50), correlation=1), op((1, 0), (begin, 120), correlation=2)]
    return make_report(ops, calls, [step((1, 0), 4, (10, 60))])


@pytest.mark.parametrize(
    ("launch", "begin", "cause"),
    [
        *((50, 100, "other"), (51, 100, "host_late"), (None, 100, "unknown"), (None, 70, "unknown")),
        *((50, 79, "kernel_wait"), (50, 80, "other"), (51, 79, "host_late")),
    ],
)
def test_the_operation_that_ends_a_gap_tells_its_cause(launch: int | None, begin: int, cause: str) -> None:
    found = _find(_report(launch, begin=begin)).select(
        "stream_id", "step", "cause", "count", "total_ns", "most_ns"
    )
    rest = begin - 60
    assert found.rows() == [
        (None, 4, cause, 1, 10, begin - 50),
        (None, None, cause, 0, rest, None),
        (7, 4, cause, 1, 10, begin - 50),
        (7, None, cause, 0, rest, None),
    ]


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
        [(*device, time)],
        {**report.steps.select(_DEVICE).schema, "start_ns": pl.Int64},
        orient="row",
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
