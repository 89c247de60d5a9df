"""Durations of CUDA calls and operating system calls on the CPU, by name."""

from __future__ import annotations

import polars as pl

from nsys_pp.aggregates.step_times import step_on_host
from nsys_pp.arrays.columns import subtract
from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.frames.aggregates import CALL_AGGREGATES, CALL_API
from nsys_pp.frames.conform import conform


def sum_calls(api_calls: pl.DataFrame, os_calls: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add up durations of calls by name.

    Args:
        api_calls: `API_CALLS`.
        os_calls: `OS_CALLS`.
        steps: `STEPS`.

    Returns:
        `CALL_AGGREGATES`: CUDA calls first, then calls of the operating system, each in order of the first call of a
        row. A call inside another one counts in both rows. Empty in, empty out.
    """
    return pl.concat([_sum(api_calls, "cuda", steps), _sum(os_calls, "os", steps)])


def _sum(calls: pl.DataFrame, api: str, steps: pl.DataFrame) -> pl.DataFrame:
    if calls.is_empty():
        return CALL_AGGREGATES.to_frame()
    duration = subtract(calls["end_ns"], calls["start_ns"]).alias("duration_ns")
    timed = calls[["process_key", "name"]].hstack([step_on_host(calls, steps), duration])
    sums = build_distributions(timed, ["process_key", "step", "name"], "duration_ns")
    of_all = pl.Series("api", [api], dtype=CALL_API).new_from_index(0, len(sums))
    return conform(sums.hstack([of_all]), CALL_AGGREGATES)
