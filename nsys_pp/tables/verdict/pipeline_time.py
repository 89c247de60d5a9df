"""Length of a step as a function of the own compute of its lanes, for the gain of a faster lane.

A pipeline of stages with t_s of own compute per micro-batch, m micro-batches and v chunks per stage needs about

    sum_s t_s / v + (m - 1 / v) * max_s t_s

as each micro-batch passes all stages once, and the slowest stage sets the pace. Tensor slices of a stage work in step, so the
slowest counts; the slowest replica counts, as all wait for each other at the end of a step.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys_pp.tables.verdict.evidence import Evidence, to_float


class StepModel:
    """The model of a training.

    Args:
        evidence: Evidence of the training.
    """

    def __init__(self, evidence: Evidence) -> None:
        training = evidence.training
        own = evidence.own_compute
        per_step = own.group_by("lane", "step").agg(pl.col("value_ns").sum(), count=pl.len())
        self.micro_batches = max(1.0, to_float(per_step["count"].median()))
        self.chunks = max(1, training.schedule.chunk_count)
        value = pl.col("value_ns").median() / self.micro_batches
        self._lanes = (
            per_step.group_by("lane")
            .agg(value_ns=value)
            .join(training.lanes.select("lane", "stage", "replica"), on="lane")
            .with_columns(pl.col("stage", "replica").fill_null(-1))
            .sort("lane")
        )

    def length_ns(self, changed: Mapping[int, float] | None = None) -> float:
        """Return the length of a step, with the own compute per micro-batch of some lanes replaced."""
        lanes = self._lanes
        if changed:
            new = pl.col("lane").replace_strict(dict(changed), default=None, return_dtype=pl.Float64)
            lanes = lanes.with_columns(value_ns=pl.coalesce(new, "value_ns"))
        stages = lanes.group_by("replica", "stage").agg(pl.col("value_ns").max())
        passes = stages.group_by("replica").agg(
            length=pl.col("value_ns").sum() / self.chunks
            + (self.micro_batches - 1 / self.chunks) * pl.col("value_ns").max()
        )
        return to_float(passes["length"].max())

    def own_ns(self) -> dict[int, float]:
        """Return the own compute per micro-batch of each lane."""
        return dict(self._lanes.select("lane", "value_ns").iter_rows())

    def gain_ns(self, factors: Mapping[int, float]) -> float:
        """Return the gain of a step if the own compute of some lanes is multiplied by factors."""
        own = self.own_ns()
        changed = {lane: own[lane] * factor for lane, factor in factors.items() if lane in own}
        return max(0.0, self.length_ns() - self.length_ns(changed))
