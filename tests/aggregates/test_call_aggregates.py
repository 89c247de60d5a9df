"""Sums of calls on the CPU."""

from __future__ import annotations

from nsys_pp.aggregates.items import sum_calls
from nsys_pp.frames.aggregates import CALL_AGGREGATES
from nsys_pp.frames.report import API_CALLS, OS_CALLS
from nsys_pp.frames.training import STEPS
from tests.aggregates.small_reports import fill, step


def row(process: int, start: int, end: int, name: str | None) -> dict[str, object]:
    return {"process_key": process, "thread_key": process, "start_ns": start, "end_ns": end, "name": name}


API = fill(
    API_CALLS, [row(1, 0, 9, "launch"), row(1, 9, 10, "launch"), row(1, 10, 12, "launch"), row(2, 0, 4, None)]
)
OS = fill(OS_CALLS, [row(1, 3, 8, "open"), row(1, 12, 14, "launch")])


def test_calls_count_by_name_api_process_and_the_step_in_which_they_start() -> None:
    found = sum_calls(API, OS, fill(STEPS, [step((1, 0), 5, (100, 200), (9, 12))]))
    assert found.select("process_key", "step", "api", "name", "values").rows() == [
        (1, None, "cuda", "launch", [9]),
        (1, 5, "cuda", "launch", [1, 2]),
        (2, None, "cuda", None, [4]),
        (1, None, "os", "open", [5]),
        (1, None, "os", "launch", [2]),
    ]


def test_nothing_gives_nothing() -> None:
    assert sum_calls(API_CALLS.to_frame(), OS_CALLS.to_frame(), STEPS.to_frame()).equals(
        CALL_AGGREGATES.to_frame()
    )
