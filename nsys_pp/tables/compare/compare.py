"""Two runs of a training side by side: what got slower or faster, and by more than noise.

The steps of a run are samples of it. A value of a run is the median over its complete steps; two of them
differ if they do by more than three errors of their difference, as the steps of both runs scatter
(`nsys_pp.tables.compare.noise`; for the longest steps, as all the others do), and by enough to matter: 1 % of a time, 0.5 % of a step for parts of its bubble.
That floor is there because steps of one run have much in common that two runs of the same program have not.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import Training
from nsys_pp.tables.compare.noise import (
    leave_out_largest,
    noise_of_difference,
    noise_of_extremes,
    summarise_samples,
)
from nsys_pp.tables.compare.samples import KEYS, LONGEST_STEP, SAMPLES, UNIT, sample_steps

VERDICT = pl.Enum(["slower", "faster", "same", "unknown", "new", "gone"])

COMPARISON = build_schema(
    {
        "stage": pl.Int64,  # null: of all stages
        "subject": pl.String,  # "step", "bubble", a cause, a kind of job, the name of a kernel
        "metric": pl.String,  # what of it, in words
        "unit": UNIT,  # of a and b: nanoseconds, or a share of the step
        "a": pl.Float64,  # median over the complete steps of the run; null where it has none
        "b": pl.Float64,
        "a_step_count": pl.Int64,
        "b_step_count": pl.Int64,
        # From a to b: relative for times, the plain difference for shares. Null without a, and from 0.
        "change_fraction": pl.Float64,
        "noise_fraction": pl.Float64,  # changes up to this are noise; null where a run has a single step
        "verdict": VERDICT,  # "slower": b has more; "new", "gone": only b, only a has it; "unknown": noise is unknown
    }
)


def compare_trainings(a: Training, b: Training) -> dict[str, pl.DataFrame]:
    """Compare two runs by steps, bubbles, stages, kinds of job and kernels.

    Returns:
        `COMPARISON` by name: "steps" (span of a step, and of the longest one, which medians do not see;
        kernels in a step), "bubbles" (the whole and each cause), "stages" (bubble and own compute of each),
        "kinds" (compute of a job, by kind, and by stage and kind) and "kernels" (total per step and lane,
        and mean of one; the largest difference first). Stages, kinds and kernels are matched by name.
    """
    compared = {name: _compare(make(a), make(b)) for name, make in SAMPLES.items()}
    size = (pl.col("b").fill_null(0) - pl.col("a").fill_null(0)).abs().max().over("subject")
    kernels = compared["kernels"].sort(size, descending=True, maintain_order=True)
    spans = [sample_steps(training).filter(subject="step") for training in (a, b)]
    longest = _compare(*spans, is_of_longest=True).with_columns(
        subject=pl.lit(LONGEST_STEP), metric=pl.lit("span on all lanes, most")
    )
    return {**compared, "steps": pl.concat([compared["steps"], longest]), "kernels": kernels}


def _compare(a: pl.DataFrame, b: pl.DataFrame, *, is_of_longest: bool = False) -> pl.DataFrame:
    """Compare `SAMPLE` of two runs by their medians, or by the largest ones; in the order of the samples."""
    value = "largest" if is_of_longest else "median"
    sides = [
        _summarise(samples).select(
            *KEYS,
            "least",
            "deviation",
            "deviation_of_others",
            pl.col(value).alias(side),
            pl.col("sample_count").alias(f"{side}_step_count"),
        )
        for side, samples in (("a", a), ("b", b))
    ]
    deviation, of_others = (
        pl.col(name) + pl.col(f"{name}_b") for name in ("deviation", "deviation_of_others")
    )
    counts = pl.col("a_step_count"), pl.col("b_step_count")
    noise = (
        noise_of_extremes(deviation, of_others, *counts)
        if is_of_longest
        else noise_of_difference(deviation, *counts)
    )
    difference = pl.col("b") - pl.col("a")
    scale = pl.when(unit="fraction").then(1.0).when(pl.col("a") > 0).then("a")
    order = pl.concat([a.select(KEYS), b.select(KEYS)]).unique(maintain_order=True).with_row_index("order")
    return (
        sides[0]
        .join(sides[1], on=KEYS, how="full", coalesce=True, nulls_equal=True, suffix="_b")
        .with_columns(noise=noise)
        .with_columns(
            pl.col("a_step_count", "b_step_count").fill_null(0),
            change_fraction=pl.when(difference == 0).then(0.0).otherwise(difference / scale),
            noise_fraction=pl.col("noise") / scale,
            verdict=_verdict(difference),
        )
        .join(order, on=KEYS, how="left", nulls_equal=True)
        .sort("order")
        .pipe(conform, COMPARISON)
    )


def _summarise(samples: pl.DataFrame) -> pl.DataFrame:
    """Summarise `SAMPLE` by its keys, with `least`, and the deviation of all samples but the largest."""
    others = leave_out_largest(samples, by=KEYS, value="value")
    of_others = summarise_samples(others, by=KEYS, value="value").select(
        *KEYS, deviation_of_others="deviation"
    )
    return (
        summarise_samples(samples, by=KEYS, value="value")
        .join(samples.group_by(KEYS).agg(pl.col("least").median()), on=KEYS, nulls_equal=True)
        .join(of_others, on=KEYS, how="left", nulls_equal=True)
    )


def _verdict(difference: pl.Expr) -> pl.Expr:
    is_change = difference.abs() > pl.max_horizontal("noise", "least")
    return (
        pl.when(pl.col("a").is_null())
        .then(pl.lit("new"))
        .when(pl.col("b").is_null())
        .then(pl.lit("gone"))
        .when(pl.col("noise").is_null())
        .then(pl.lit("unknown"))
        .when(~is_change)
        .then(pl.lit("same"))
        .when(difference > 0)
        .then(pl.lit("slower"))
        .otherwise(pl.lit("faster"))
    )
