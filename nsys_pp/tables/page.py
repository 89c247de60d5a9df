"""Frames behind the report page: steps that it shows, and the heat map of ranks."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import RANK_STEPS, STEP_LENGTHS, ShownStep
from nsys_pp.frames.training import BUBBLE_CAUSES, HOST_CAUSES, Training
from nsys_pp.tables.analysis import Evidence
from nsys_pp.tables.training import build_step_table


def measure_steps(evidence: Evidence) -> pl.DataFrame:
    """Measure the length of each complete step: `STEP_LENGTHS`. Empty for a training without steps."""
    whole = build_step_table(evidence.training).select("step", whole_ns=pl.col("span_ns").cast(pl.Float64))
    lengths = evidence.spans.join(whole, on="step", how="left").sort("step")
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
    times = training.steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    start_of, end_of = (
        dict(times.select("step", pl.col(name) - training.zero_ns).iter_rows())
        for name in ("start_ns", "end_ns")
    )
    return [
        ShownStep(role=role, start_ns=start_of[row["step"]], end_ns=end_of[row["step"]], **row)
        for role, row in roles.items()
    ]


# Most rows of a frame whose steps are not combined: a page of more is too large.
MOST_CELLS = 400_000
_TIMES = ("span_ns", "compute_ns", "bubble_ns", "wait_ns", "late_ns")


def build_rank_steps(evidence: Evidence, *, most_cells: int = MOST_CELLS) -> pl.DataFrame:
    """Build the values of every lane in every step.

    Args:
        evidence: The training.
        most_cells: If there are more rows, consecutive steps are combined into blocks.

    Returns:
        `RANK_STEPS`; times as in `LANE_STEPS`. Empty for a training without steps.
    """
    rows = evidence.all_steps.with_columns(
        pl.col("start_ns", "end_ns") - evidence.training.zero_ns,
        wait_ns=pl.sum_horizontal(
            f"{cause}_ns" for cause in BUBBLE_CAUSES if cause.startswith(("message", "collective"))
        ),
        late_ns=pl.sum_horizontal(f"{cause}_ns" for cause in HOST_CAUSES),
        last_step="step",
        is_complete="is_whole",
    ).join(evidence.find_excesses(), on=["lane", "step"], how="left")
    if len(rows) > most_cells:
        rows = (
            rows.with_columns(block=(pl.col("step").rank("dense") - 1) // -(-len(rows) // most_cells))
            .group_by("lane", "block")
            .agg(
                pl.col("step", "start_ns").min(),
                pl.col("last_step", "end_ns").max(),
                pl.col(_TIMES).mean(),
                pl.col("excess_fraction").max(),
                pl.col("is_complete").all(),
            )
            .with_columns(pl.col("step").min().over("block"), pl.col("last_step").max().over("block"))
        )
    return rows.sort("lane", "step").pipe(conform, RANK_STEPS)
