"""Analysis of a run that tables and verdict share.

Which steps of a lane are whole, own compute, ideal bubbles.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache, cached_property

import polars as pl
from msgspec import Struct

from nsys_pp.families.classify import classify_operations
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.roster import list_missing_ranks
from nsys_pp.frames.training import (
    BUBBLE_CAUSES,
    CAUSES,
    IS_STEPLESS,
    MICRO_BATCH_KINDS,
    NONE,
    POSITION,
    SCHEDULED_KINDS,
    Explanations,
    Training,
)
from nsys_pp.tables.noise import Compared, compare_members, relate_to_peers, to_float
from nsys_pp.training.whatif import WhatIf

# Least excess of a slow rank, a slow stage, and a slow rank whose stage is unknown.
LEAST_RANK_EXCESS, LEAST_STAGE_EXCESS, LEAST_UNKNOWN_EXCESS = 0.03, 0.05, 0.1
_JOB_COLUMNS = ("job", "outer", "kind", "lane", "step", "micro_batch", "compute_start_ns", "compute_ns")

CAUSE_COLUMNS = tuple(f"{cause}_ns" for cause in CAUSES)
POSITION_COLUMNS = tuple(f"{name.replace('-', '_')}_bubble_ns" for name in POSITION.categories)

LANE_STEPS = build_schema(
    {  # one row per lane and step; by step, lane
        "lane": pl.UInt32,
        "stage": pl.Int64,  # null where unknown
        "step": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "is_stepless": pl.Boolean,  # a whole capture, where other lanes have steps: not comparable with them
        # The capture cuts no lane in this step; all true if every step is cut. False where stepless.
        "is_complete": pl.Boolean,
        # complete, and the capture does not cut it on this lane: its sums can be compared
        "is_whole": pl.Boolean,
        "span_ns": pl.Int64,  # the sum of the causes below
        **dict.fromkeys(CAUSE_COLUMNS, pl.Int64),
        # Span without compute and pauses: the sum of the positions below, unless the step has no forwards and
        # backwards, and therefore no positions.
        "bubble_ns": pl.Int64,
        **dict.fromkeys(POSITION_COLUMNS, pl.Int64),
        "ideal_span_ns": pl.Int64,  # length of the step on all lanes in `IDEAL`; null where `IDEAL` lacks it
        "ideal_bubble_ns": pl.Int64,  # part of it outside of jobs of the lane
    },
    name="LANE_STEPS",
)


def select_whole_steps(training: Training) -> pl.DataFrame:
    """Select the lane steps that a table averages.

    Returns:
        `LANE_STEPS` that are whole, and captures of lanes without steps; all where the capture cuts every
        step on every lane, so that such captures have results, too.
    """
    steps = sum_lane_steps(training)
    return steps.filter(pl.col("is_whole") | pl.col("is_stepless")) if steps["is_whole"].any() else steps


def sum_lane_steps(training: Training) -> pl.DataFrame:
    """Sum the lane states of every lane and step by cause and by position.

    Returns:
        `LANE_STEPS`. If every step is cut on some lane, all steps count as complete, but only lanes that are
        not cut there are whole.
    """
    duration = pl.col("end_ns") - pl.col("start_ns")
    whole_ns = (pl.col("end_ns").max() - pl.col("start_ns").min()).over("step")
    ideal = (
        training.ideal.with_columns(ideal_span_ns=whole_ns)
        .group_by("lane", "step")
        .agg(pl.col("ideal_span_ns").first(), busy_ns=duration.sum())
        .with_columns(ideal_bubble_ns=pl.col("ideal_span_ns") - pl.col("busy_ns"))
    )
    sums = (
        training.lane_states.group_by("lane", "step", "cause", "position")
        .agg(total_ns=duration.sum())
        .group_by("lane", "step")
        .agg(
            *(pl.col("total_ns").filter(cause=cause).sum().alias(f"{cause}_ns") for cause in CAUSES),
            *(
                pl.col("total_ns")
                .filter(pl.col("cause").is_in(BUBBLE_CAUSES), position=position)
                .sum()
                .alias(column)
                for position, column in zip(POSITION.categories, POSITION_COLUMNS, strict=True)
            ),
        )
    )
    return (
        training.steps.join(training.lanes.select("lane", "stage"), on="lane", how="left")
        .join(sums, on=["lane", "step"], how="left")
        .join(
            training.cover.select("lane", "step", "pause_ns"),
            on=["lane", "step"],
            how="left",
            suffix="_inside",
        )
        .join(ideal, on=["lane", "step"], how="left")
        .with_columns(
            pl.col(*CAUSE_COLUMNS, *POSITION_COLUMNS, "pause_ns_inside").fill_null(0),
            span_ns=duration,
            is_cut=(pl.col("is_partial") & ~IS_STEPLESS).any().over("step"),
            is_stepless=IS_STEPLESS,
        )
        .with_columns(
            compute_ns=pl.col("compute_ns") - pl.col("pause_ns_inside"),
            pause_ns=pl.col("pause_ns") + pl.col("pause_ns_inside"),
        )
        .with_columns(
            is_complete=(~pl.col("is_cut") | (pl.col("is_cut") | pl.col("is_stepless")).all())
            & ~pl.col("is_stepless"),
            bubble_ns=pl.sum_horizontal(f"{cause}_ns" for cause in BUBBLE_CAUSES),
        )
        .with_columns(is_whole=pl.col("is_complete") & ~pl.col("is_partial"))
        .sort("step", "lane")
        .pipe(conform, LANE_STEPS)
    )


def sum_coverage(training: Training) -> pl.DataFrame:
    """Sum `COVERAGE` over all lanes.

    Returns:
        part, time_ns (mean of the lanes), time_fraction, compute_fraction and busy_fraction (compute of the
        time of the part); by part. Fractions are null without time or compute.
    """
    return (
        training.coverage.group_by("part")
        .agg(pl.col("time_ns", "compute_ns").sum())
        .sort("part")
        .select(
            "part",
            time_ns=pl.col("time_ns") / max(training.lanes.height, 1),
            time_fraction=(pl.col("time_ns") / pl.col("time_ns").sum()).fill_nan(None),
            compute_fraction=(pl.col("compute_ns") / pl.col("compute_ns").sum()).fill_nan(None),
            busy_fraction=(pl.col("compute_ns") / pl.col("time_ns")).fill_nan(None),
        )
    )


def select_outermost(jobs: pl.DataFrame, kinds: Collection[str]) -> pl.DataFrame:
    """Select the jobs of these kinds that compute; only the outer one of nested jobs."""
    chosen = jobs.filter(pl.col("kind").is_in(kinds), pl.col("compute_start_ns").is_not_null())
    if chosen["outer"].null_count() == len(chosen):
        return chosen
    return chosen.join(chosen.select(outer="job"), on="outer", how="anti")


class Stragglers(Struct, frozen=True, kw_only=True):
    """Ranks with a known stage, ranks without one, and stages, compared with their peers.

    A stage counts by its fastest lane: one slow rank does not make a slow stage.
    """

    ranks: Compared
    guesses: Compared
    stages: Compared


# Share of the compute in steps, below which a verdict is not about them.
LEAST_COVERED = 0.8
# Steps, or lanes, of which the median shows what is usual.
FEWEST = 3


def classify_training(training: Training) -> pl.DataFrame:
    """Return the kernels of a training (`Training.kernels`) with the columns of `KERNEL_FAMILIES`.

    Each name is classified once.
    """
    return classify_operations(training.kernels.with_columns(name=pl.coalesce("full_name", "name")))


class Evidence:
    """A training, and quantities derived from it, each computed once.

    Args:
        training: The training.
        explanations: Data of reports, read on first use.
    """

    def __init__(self, training: Training, explanations: Explanations = NONE) -> None:
        self.training = training
        self.whatif = WhatIf(training)
        self._explanations = explanations
        self._read_hosts = cache(explanations.read_hosts)

    @cached_property
    def all_steps(self) -> pl.DataFrame:
        """`LANE_STEPS` of all steps."""
        return sum_lane_steps(self.training)

    @cached_property
    def lane_steps(self) -> pl.DataFrame:
        """`LANE_STEPS` of complete steps."""
        return self.all_steps.filter("is_complete")

    @cached_property
    def whole_steps(self) -> pl.DataFrame:
        """`LANE_STEPS` whose length and causes can be compared.

        Where the capture cuts every step, of the lanes that it does not cut there.
        """
        return self.lane_steps.filter("is_whole")

    @cached_property
    def spans(self) -> pl.DataFrame:
        """Length of each complete step: step, span_ns (median of its lanes, as clocks may differ).

        By step.
        """
        return self.lane_steps.group_by("step").agg(pl.col("span_ns").median()).sort("step")

    @cached_property
    def step_count(self) -> int:
        """Number of complete steps."""
        return self.spans.height

    @cached_property
    def step_ns(self) -> float:
        """Mean length of the complete steps, of which a gain is a share; 0 without any."""
        return to_float(self.spans["span_ns"].mean())

    @cached_property
    def has_passes(self) -> bool:
        """Whether forwards or backwards are known."""
        return bool(self.training.jobs["kind"].is_in(SCHEDULED_KINDS).any())

    @cached_property
    def has_steps(self) -> bool:
        """Whether a step is more than the whole capture."""
        return bool((self.training.steps["source"] != "capture").any())

    @cached_property
    def is_inferred(self) -> bool:
        """Whether steps are inferred from repetition."""
        return bool((self.training.steps["source"] == "inferred").any())

    @cached_property
    def coverage(self) -> pl.DataFrame:
        """What steps hold, over all lanes: part, time_fraction, compute_fraction, busy_fraction; by part."""
        return sum_coverage(self.training)

    @cached_property
    def covers_compute(self) -> bool:
        """Whether steps hold most of the compute, if there is any; else the verdict is about the capture."""
        held = self.coverage.drop_nulls("compute_fraction")
        return held.is_empty() or self.cover_of("compute_fraction", "steps") >= LEAST_COVERED

    def cover_of(self, column: str, *parts: str) -> float:
        """Return the sum of a column of `coverage` over some parts."""
        return to_float(self.coverage.filter(pl.col("part").is_in(parts))[column].sum())

    @cached_property
    def labels(self) -> dict[int, str]:
        """Names of lanes."""
        return dict(self.training.lanes.select("lane", "label").iter_rows())

    @cached_property
    def own_compute(self) -> pl.DataFrame:
        """Own compute of each lane in complete steps, waiting not counted.

        lane, stage, step, micro_batch, value_ns, has_peers (false where a pipeline has no known stages: its
        ranks do different work): one row per micro-batch; -1 is work without a number. Of steps that the
        capture cuts on the lane, only micro-batches with all their jobs: the others would be compared with
        more or less work of others. Without forwards and backwards, all compute of a step that it does not
        cut is one row.
        """
        if self.has_passes:
            is_numbered = pl.col("micro_batch") >= 0
            has_all_jobs = is_numbered & (
                pl.col("job_count") == pl.col("job_count").filter(is_numbered).max()
            )
            own = (
                select_outermost(self.training.jobs.select(_JOB_COLUMNS), MICRO_BATCH_KINDS)
                .join(self.lane_steps, on=["lane", "step"], how="semi")
                .group_by("lane", "step", pl.col("micro_batch").fill_null(-1))
                .agg(value_ns=pl.col("compute_ns").sum(), job_count=pl.len())
                .join(self.whole_steps.select("lane", "step", "is_whole"), on=["lane", "step"], how="left")
                .filter(pl.col("is_whole").fill_null(value=False) | has_all_jobs)
            )
        else:
            own = self.whole_steps.with_columns(micro_batch=pl.lit(-1, pl.Int64), value_ns="compute_ns")
        has_messages = self.training.lane_states["cause"].cast(pl.String).str.starts_with("message").any()
        return (
            own.filter(pl.col("value_ns") > 0)
            .select("lane", "step", "micro_batch", pl.col("value_ns").cast(pl.Float64))
            .join(
                self.training.lanes.select(
                    "lane", "stage", has_peers=pl.col("stage").is_not_null() | (not has_messages)
                ),
                on="lane",
            )
        )

    @cached_property
    def stragglers(self) -> Stragglers:
        """Own compute of ranks and stages, compared with that of their peers."""
        staged, unknown, fastest = self._divided_compute
        return Stragglers(
            ranks=compare_members(staged, member="lane", group=["stage"], least=LEAST_RANK_EXCESS),
            guesses=compare_members(unknown, member="lane", group=[], least=LEAST_UNKNOWN_EXCESS),
            stages=compare_members(
                fastest, member="stage", group=[], least=LEAST_STAGE_EXCESS, spread_values=staged
            ),
        )

    @cached_property
    def _divided_compute(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Own compute of lanes with a stage, of those without one, and of the fastest lane of each stage."""
        own = self.own_compute
        staged = own.filter(pl.col("stage").is_not_null())
        fastest = staged.group_by("stage", "step", "micro_batch").agg(pl.col("value_ns").min())
        return staged, own.filter(pl.col("stage").is_null(), "has_peers"), fastest

    def find_excesses(self) -> pl.DataFrame:
        """Find the relative excess of the own compute of each lane in each step over that of its peers.

        These are the other ranks of its stage; of a rank that is alone on its stage, the other stages; of
        ranks without a known stage, the other such ranks, unless messages show that they are of several
        stages.

        Returns:
            lane, step, excess_fraction; lanes without peers are left out.
        """
        staged, unknown, fastest = self._divided_compute
        _, ranks = relate_to_peers(staged, "lane", ["stage"])
        _, guesses = relate_to_peers(unknown, "lane", [])
        _, stages = relate_to_peers(fastest, "stage", [])
        alone = staged.select("lane", "stage", "step").unique().join(ranks, on=["lane", "step"], how="anti")
        lanes = [ranks, guesses, alone.join(stages, on=["stage", "step"]).drop("stage")]
        return pl.concat(lanes).rename({"step_excess": "excess_fraction"})

    @cached_property
    def families(self) -> pl.DataFrame:
        """Computing kernels with their families: `Training.kernels` with the columns of `KERNEL_FAMILIES`."""
        return classify_training(self.training).filter(
            ~pl.col("is_communication"), pl.col("family") != "communication"
        )

    @cached_property
    def clocks(self) -> pl.DataFrame:
        """Clock of the SMs during the kernels of each lane in complete steps: lane, step, clock_mhz.

        Empty unless recorded.
        """
        return (
            self._explanations.read_clocks()
            .drop_nulls("step")
            .group_by("lane", "step")
            .agg(pl.col("integral", "time_ns").sum())
            .select("lane", "step", clock_mhz=pl.col("integral") / pl.col("time_ns"))
            .join(self.lane_steps.select("lane", "step"), on=["lane", "step"], how="semi")
        )

    def read_hosts(self, lanes: Sequence[int]) -> pl.DataFrame:
        """Read the activities of the hosts of some lanes in bubbles (`HOST_TIMES`), once.

        Empty unless recorded.
        """
        return self._read_hosts(tuple(sorted(lanes)))

    @cached_property
    def missing_ranks(self) -> list[int]:
        """Ranks of the run without a lane; none where a rank is unknown."""
        lanes = self.training.lanes
        return [] if lanes["rank"].null_count() else list_missing_ranks(lanes)

    def measure_excess(self) -> pl.DataFrame:
        """Measure the length of each step beyond the shorter one of its neighbours: step, longer_ns, span_ns.

        Neighbours, as a rank that becomes slow makes all later steps longer.
        """
        span = pl.col("span_ns")
        shorter = pl.min_horizontal(span.shift(1), span.shift(-1))
        return self.spans.select("step", "span_ns", longer_ns=(span - shorter).clip(lower_bound=0.0))

    def share(self, time_ns: float) -> float:
        """Return a time as a share of the mean step."""
        return time_ns / self.step_ns if self.step_ns else 0.0
