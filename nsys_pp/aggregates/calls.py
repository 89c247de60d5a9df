"""Durations of CUDA calls and operating system calls on the CPU, by name."""

from __future__ import annotations

import polars as pl

from nsys_pp.aggregates.windows import step_on_host
from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.arrays.scratch_frames import build_blocks
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
    def time(first: int, stop: int) -> pl.DataFrame:
        rows = calls[first:stop]
        return rows.select(
            "process_key",
            step_on_host(rows, steps),
            pl.lit(api, dtype=CALL_API).alias("api"),
            "name",
            duration_ns=pl.col("end_ns") - pl.col("start_ns"),
        )

    timed = build_blocks(len(calls), time)
    return conform(
        build_distributions(timed, ["process_key", "step", "api", "name"], "duration_ns"), CALL_AGGREGATES
    )
