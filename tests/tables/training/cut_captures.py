"""Trainings whose captures cut steps."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from nsys_pp.frames.training import Training


def cut_training(training: Training, cut: pl.Expr, *, share: float = 0.5) -> Training:
    """Let captures begin inside the steps of a training.

    Args:
        training: The training.
        cut: Mask of `RUN_STEPS` that the capture cuts.
        share: Part of a cut step that lies before the capture; its jobs and states are absent.
    """
    steps = training.steps.with_columns(is_partial=cut).with_columns(
        start_ns=pl.col("start_ns")
        + pl.when("is_partial")
        .then(share * (pl.col("end_ns") - pl.col("start_ns")))
        .otherwise(0)
        .cast(pl.Int64)
    )
    begins = steps.select("lane", "step", begin_ns="start_ns")
    recorded = {
        name: getattr(training, name)
        .join(begins, on=["lane", "step"], how="left", maintain_order="left")
        .filter(pl.col("begin_ns").is_null() | (pl.col("start_ns") >= pl.col("begin_ns")))
        .drop("begin_ns")
        for name in ("jobs", "lane_states")
    }
    return replace(training, steps=steps, **recorded)
