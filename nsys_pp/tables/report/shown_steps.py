"""Steps whose charts a report page shows: a typical one and the longest one."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import STEP_LENGTHS, ShownStep
from nsys_pp.frames.training import Training
from nsys_pp.tables.training.step_table import build_step_table
from nsys_pp.tables.verdict.evidence import Evidence


def measure_steps(training: Training) -> pl.DataFrame:
    """Measure the length of each complete step: `STEP_LENGTHS`. Empty for a training without steps."""
    medians = Evidence(training).spans
    whole = build_step_table(training).select("step", whole_ns=pl.col("span_ns").cast(pl.Float64))
    lengths = medians.join(whole, on="step", how="left").sort("step")
    if not lengths["whole_ns"].null_count():
        lengths = lengths.with_columns(span_ns="whole_ns")
    return lengths.pipe(conform, STEP_LENGTHS)


def choose_steps(training: Training, lengths: pl.DataFrame) -> list[ShownStep]:
    """Choose the complete steps of median and of greatest length; of equal ones the first.

    Args:
        training: The training.
        lengths: `STEP_LENGTHS` of it.

    Returns:
        The typical step, then the worst one, if it is another; empty without steps.
    """
    spans = lengths.sort("span_ns", "step")
    if spans.is_empty():
        return []
    typical = spans.row((len(spans) - 1) // 2, named=True)
    worst = spans.filter(pl.col("span_ns") == pl.col("span_ns").max()).row(0, named=True)
    roles = {"typical": typical} | ({"worst": worst} if worst["span_ns"] > typical["span_ns"] else {})
    return [_describe(training, role, **row) for role, row in roles.items()]


def _describe(training: Training, role: str, *, step: int, span_ns: float) -> ShownStep:
    of_step = training.steps.filter(step=step)
    start, end = of_step.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return ShownStep(
        step=step,
        role=role,
        span_ns=span_ns,
        start_ns=start - training.zero_ns,
        end_ns=end - training.zero_ns,
    )
