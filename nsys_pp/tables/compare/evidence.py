"""Evidence that the findings of a comparison share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import polars as pl

from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.tables.compare.changes import find_changes
from nsys_pp.tables.compare.comparability import MOST_REQUESTS
from nsys_pp.tables.compare.samples import KERNEL_MEAN
from nsys_pp.tables.verdict.evidence import to_float

Samples = Mapping[str, pl.DataFrame]


class Comparison:
    """Two runs, and the changes of their members.

    Args:
        facts: Facts of runs A and B.
        samples: Their samples, by name.
    """

    def __init__(self, facts: tuple[RunFacts, RunFacts], samples: tuple[Samples, Samples]) -> None:
        self.facts = facts
        self.raw = samples
        counts = [run.micro_batch_count for run in facts]
        self.per = bool(all(counts) and counts[0] != counts[1])  # values are per micro-batch
        self.samples = (
            tuple(_divide(run, count) for run, count in zip(samples, counts, strict=True))
            if self.per
            else samples
        )
        self.changes = cache(self._find_changes)

    def __repr__(self) -> str:
        """Return the runs; frames are many."""
        return f"Comparison({self.facts[0].lane_count} and {self.facts[1].lane_count} ranks)"

    @property
    def step_ns(self) -> float:
        """Median length of a step of run A, per micro-batch where values are; 0 without any."""
        return to_float(self.samples[0]["steps"].filter(subject="step")["value"].median())

    def share(self, time_ns: float) -> float:
        """Return a time as a share of a step of run A."""
        return time_ns / self.step_ns if self.step_ns else 0.0

    @property
    def may_be_other_batches(self) -> bool:
        """Whether steps are batches of inference that may hold other numbers of requests, or be of other kinds."""
        if not any(run.batches for run in self.facts):
            return False
        requests = [run.decode_requests for run in self.facts if run.decode_requests is not None]
        return len(requests) < len(self.facts) or max(requests) > MOST_REQUESTS * min(requests)

    @property
    def per_text(self) -> str:
        """Words for the amount of work that times refer to."""
        return "per micro-batch" if self.per else "per step"

    def _find_changes(self, name: str) -> pl.DataFrame:
        """Return `CHANGES` of the members of a frame."""
        return find_changes(*(run[name] for run in self.samples), are_peers=name == "ranks")


def divide_ranks(
    facts: tuple[RunFacts, RunFacts], samples: tuple[Samples, Samples]
) -> tuple[Samples, Samples]:
    """Divide times of ranks by the micro-batches of a step, where their numbers differ, for tables: the metric states it."""
    counts = [run.micro_batch_count for run in facts]
    if not all(counts) or counts[0] == counts[1]:
        return samples
    metric = pl.concat_str("metric", pl.lit(", per micro-batch"))
    first, second = (
        {**run, "ranks": run["ranks"].with_columns(pl.col("value", "least") / count, metric=metric)}
        for run, count in zip(samples, counts, strict=True)
    )
    return first, second


def _divide(samples: Samples, count: float) -> Samples:
    """Divide times of steps, ranks and kernels by the number of micro-batches."""
    divided = dict(samples)
    for name in ("steps", "ranks", "families", "kernels"):
        is_total = ~pl.col("metric").str.starts_with(KERNEL_MEAN)
        divided[name] = samples[name].with_columns(
            pl.when(is_total).then(pl.col("value", "least") / count).otherwise(pl.col("value", "least"))
        )
    return divided
