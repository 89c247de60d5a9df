"""Switches of threads -> THREAD_RUNS."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import THREAD_RUNS


def build_thread_runs(raw: RawReport) -> pl.DataFrame:
    """Pair each switch of a thread onto a processor with its next switch, if that one is off the processor.

        switches   off     on     off off    on    on     off    on
        runs               [      )                [      )

    Incomplete runs are left out: the start of a run whose first switch is off the processor (or follows another one),
    the end of a run with two switches onto the processor, and the run at the end of the capture are unknown.

    Returns:
        `THREAD_RUNS`.
    """
    if raw["thread_switches"].is_empty():
        return THREAD_RUNS.to_frame()
    switches = raw["thread_switches"].with_columns(pl.col("is_in") != 0)
    # off before on in the same nanosecond: one run ends and the next begins
    switches = switches.sort("thread", "time", "is_in")
    is_run = (
        pl.col("is_in") & ~pl.col("is_in").shift(-1) & (pl.col("thread").shift(-1) == pl.col("thread"))
    ).fill_null(value=False)
    return (
        switches.with_columns(end_ns=pl.col("time").shift(-1))
        .filter(is_run)
        .select("end_ns", process_key=process_key(pl.col("thread")), thread_key="thread", start_ns="time")
        .pipe(conform, THREAD_RUNS)
    )
