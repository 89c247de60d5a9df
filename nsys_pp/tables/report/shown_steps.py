"""Steps whose charts a report page shows: a typical one and the longest one."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.report_page import ShownStep
from nsys_pp.frames.training import Training
from nsys_pp.tables.verdict.evidence import Evidence


def choose_steps(training: Training) -> list[ShownStep]:
    """Choose the complete steps of median and of greatest length; of equal ones the first.

    Returns:
        The typical step, then the worst one, if it is another; empty without steps.
    """
    spans = Evidence(training).spans.sort("span_ns", "step")
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
