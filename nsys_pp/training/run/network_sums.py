"""Bytes of network metrics by step, from rates that are valid in intervals."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.conform import build_schema, conform

MACHINE_STEPS = build_schema(
    {  # one row per step of a machine, in order, without overlaps
        "step": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="MACHINE_STEPS",
)

NETWORK_RATES = build_schema(
    {  # one row per sample, or for several successive ones
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "bytes_per_ns": pl.Float64,
        "peak_bytes_per_ns": pl.Float64,  # the same for a single sample
    },
    name="NETWORK_RATES",
)

STEP_BYTES = build_schema(
    {  # one row per step with samples
        "step": pl.Int64,
        "bytes": pl.Float64,
        "peak_bytes_per_ns": pl.Float64,
    },
    name="STEP_BYTES",
)


def list_machine_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """List the steps of the lanes of a machine (`MACHINE_STEPS`): each ends where the next one begins on any lane.

    Args:
        steps: `RUN_STEPS` of its lanes.
    """
    spans = steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns")
    end = pl.min_horizontal("end_ns", pl.col("start_ns").shift(-1))
    return spans.with_columns(end_ns=pl.coalesce(end, "end_ns")).pipe(conform, MACHINE_STEPS)


def sum_bytes(rates: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Sum the bytes of a metric by step: a sample that reaches into several steps counts by its share of time.

    Args:
        rates: `NETWORK_RATES`, in any order; samples of several ports at the same time add up.
        steps: `MACHINE_STEPS`, on the clock of the samples.

    Returns:
        `STEP_BYTES`.
    """
    rates = rates.filter(pl.col("end_ns") > pl.col("start_ns")).sort("start_ns")
    if rates.is_empty() or steps.is_empty():
        return STEP_BYTES.to_frame()
    first, last = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    start, end, rate, peak = (rates[name].to_numpy() for name in NETWORK_RATES)
    total = _sum_until(start, end, rate, last) - _sum_until(start, end, rate, first)
    known = _sum_until(start, end, np.ones(len(rate)), last) - _sum_until(
        start, end, np.ones(len(rate)), first
    )
    peaks = [
        float(peak[(start < until) & (end > since)].max(initial=0.0))
        for since, until in zip(first, last, strict=True)
    ]
    return (
        steps.select("step")
        .with_columns(pl.Series("bytes", total), pl.Series("peak_bytes_per_ns", peaks))
        .filter(pl.Series(known > 0))
        .pipe(conform, STEP_BYTES)
    )


def _sum_until(start: Int64s, end: Int64s, rate: Floats, edges: Int64s) -> Floats:
    """Integrate rates up to each edge; intervals may overlap."""
    order = np.argsort(end, kind="stable")
    by_end = np.concatenate([[0.0], np.cumsum((rate * (end - start))[order])])
    ended = np.searchsorted(end[order], edges, side="right")
    # of the others that began: rate times edge, less rate times start
    rate_begun, rate_ended = (np.concatenate([[0.0], np.cumsum(of)]) for of in (rate, rate[order]))
    origin = int(start[0])
    offset = rate * (start - origin)
    begun_at, ended_at = (np.concatenate([[0.0], np.cumsum(of)]) for of in (offset, offset[order]))
    begun = np.searchsorted(start, edges, side="left")
    running = (rate_begun[begun] - rate_ended[ended]) * (edges - origin)
    totals: Floats = by_end[ended] + running - (begun_at[begun] - ended_at[ended])
    return totals
