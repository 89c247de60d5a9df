"""Tables that compare two runs of a training: changes in steps, bubbles, jobs and kernels, and whether they exceed noise.

The steps of a run are its samples; the value of a run is the median over its complete steps. Two runs differ if the
difference of their values exceeds both the noise and a floor. The noise is three standard errors, estimated from the
steps of both runs (`nsys_pp.tables.noise`; for the longest step, from all other steps). The floor is 1 % of a
time, and 0.5 % of a step for parts of its bubble: the steps of one run vary less than runs of the same program do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import polars as pl

from nsys_pp.frames.aggregates import KEYS, UNIT
from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema, index_tables
from nsys_pp.frames.training import Training
from nsys_pp.tables.compare.changes import find_changes
from nsys_pp.tables.compare.samples import KERNEL_MEAN, LONGEST_STEP
from nsys_pp.tables.compare.sums import sample_training
from nsys_pp.tables.noise import leave_out_largest, noise_of_difference, noise_of_extremes, summarise_samples
from nsys_pp.units import NS_PER_MS

VERDICT = pl.Enum(["slower", "faster", "same", "unknown", "new", "gone"])

_COLUMNS = (
    Column("stage", pl.Int64, "pipeline stage; null: all stages"),
    Column(
        "subject",
        pl.String,
        "step, bubble, a cause, a rank, a link, a kind of job, or a kernel",
        is_symbol=True,
    ),
    Column("metric", pl.String, "measured quantity, in words"),
    Column("unit", UNIT, "unit of a and b: nanoseconds, or share of the step"),
    Column("a", pl.Float64, "median over the complete steps of run A; null if it has none"),
    Column("b", pl.Float64, "median over the complete steps of run B; null if it has none"),
    Column("a_step_count", pl.Int64, "complete steps of run A"),
    Column("b_step_count", pl.Int64, "complete steps of run B"),
    Column(
        "change_fraction",
        pl.Float64,
        "change from a to b: relative for times, difference for shares; of a rank also that relative to the other ranks, if all vary together; null without a, and from 0",
        decimals=1,
    ),
    Column(
        "noise_fraction",
        pl.Float64,
        "changes up to this are noise; null if a run has a single step",
        decimals=1,
        priority=4,
    ),
    Column(
        "verdict",
        VERDICT,
        "slower: b is larger; new, gone: only in b, only in a; unknown: the noise is unknown",
    ),
    Column(
        "since_step",
        pl.Int64,
        "of steps, ranks and links: first step of run B with the change, from which on b is the median; null: all steps",
        priority=4,
    ),
)
COMPARISON = build_table_schema(_COLUMNS)
_SHOWN = (
    Column("shown_a", pl.Float64, "a in the unit shown", heading="A", decimals=3),
    Column("shown_b", pl.Float64, "b in the unit shown", heading="B", decimals=3),
    Column("shown_unit", pl.String, "ms, ms each, or %", heading="Unit"),
    *("change_fraction", "noise_fraction", "verdict", "since_step", "stage", "metric", "subject"),
)
_CAPTION = (
    "A, B: medians over complete steps; change: relative for times, in percentage points for shares of a step;"
    " same: the change does not exceed noise"
)
_EMPTY = "nothing to compare: neither run has any in a complete step"
_NO_LINKS = (
    "nothing to compare: in no complete step has a link two messages whose transfer is timed for certain;"
    " those that are paired with doubt, buffered, or sent without a known receiver are left out"
)
_IS_CHANGE = pl.col("verdict") != "same"


Samples = Mapping[str, pl.DataFrame]
"""`SAMPLE` of a run by name: `nsys_pp.frames.aggregates.SAMPLED`."""


def compare_trainings(a: Training, b: Training) -> dict[str, pl.DataFrame]:
    """Compare two trainings; as `compare_samples`."""
    return compare_samples(sample_training(a), sample_training(b))


def compare_samples(a: Samples, b: Samples) -> dict[str, pl.DataFrame]:
    """Compare two runs by steps, bubbles, stages, ranks, links, kinds of job and kernels.

    Returns:
        `COMPARISON` of all `TABLES`, by name.
    """
    return {name: table.build(a, b) for name, table in TABLES.items()}


def _compare_steps(a: Samples, b: Samples) -> pl.DataFrame:
    """Compare spans of steps, kernels per step, and the longest steps: medians do not reflect those."""
    samples = [run["steps"] for run in (a, b)]
    return pl.concat([_mark_late(_compare(*samples), find_changes(*samples)), compare_longest_steps(a, b)])


def compare_longest_steps(a: Samples, b: Samples) -> pl.DataFrame:
    """Compare the longest steps of two runs.

    Returns:
        `COMPARISON`: one row, with the longest step of each run; none without steps.
    """
    spans = [run["steps"].filter(subject="step") for run in (a, b)]
    return _compare(*spans, is_of_longest=True).with_columns(
        subject=pl.lit(LONGEST_STEP), metric=pl.concat_str("metric", pl.lit(", most"))
    )


def find_span_noise(a: Samples, b: Samples) -> float | None:
    """Return the noise of the length of steps in the table of steps, relative to A; None if it is unknown."""
    spans = [run["steps"].filter(subject="step") for run in (a, b)]
    noise = _compare(*spans)["noise_fraction"]
    return float(noise[0]) if len(noise) and noise[0] is not None else None


def _mark_late(table: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    """Replace the values of times that changed inside B by those since their change."""
    keys = ["subject", "metric"]
    late = changes.filter(pl.col("is_change"), pl.col("since_step").is_not_null())
    late = late.select(*keys, "b", "change_fraction", "noise_fraction", "since_step").with_columns(
        verdict=pl.when(pl.col("change_fraction") > 0)
        .then(pl.lit("slower"))
        .otherwise(pl.lit("faster"))
        .cast(VERDICT)
    )
    return table.update(late, on=keys, how="left").pipe(conform, COMPARISON)


def _compare_kernels(a: Samples, b: Samples) -> pl.DataFrame:
    """Compare kernels by name, the largest difference first."""
    size = (pl.col("b").fill_null(0) - pl.col("a").fill_null(0)).abs().max().over("subject")
    return _compare(a["kernels"], b["kernels"]).sort(size, descending=True, maintain_order=True)


def _compare_named(a: Samples, b: Samples, *, name: str) -> pl.DataFrame:
    return _compare(a[name], b[name])


def _compare_members(a: Samples, b: Samples, *, name: str) -> pl.DataFrame:
    """Compare ranks or links with themselves, the largest change first."""
    changes = find_changes(a[name], b[name], are_peers=name == "ranks")
    size = (pl.col("b") - pl.col("a")).abs()
    is_beyond = pl.col("is_change").fill_null(True)
    return (
        changes.with_columns(
            unit=pl.lit("ns"),
            verdict=pl.when(pl.col("a").is_null())
            .then(pl.lit("new"))
            .when(pl.col("b").is_null())
            .then(pl.lit("gone"))
            .when(pl.col("is_change").is_null())
            .then(pl.lit("unknown"))
            .when(~pl.col("is_change"))
            .then(pl.lit("same"))
            .when(pl.col("change_fraction") > 0)
            .then(pl.lit("slower"))
            .otherwise(pl.lit("faster")),
        )
        .sort(is_beyond, size, descending=True, nulls_last=True, maintain_order=True)
        .pipe(conform, COMPARISON)
    )


def _compare(a: pl.DataFrame, b: pl.DataFrame, *, is_of_longest: bool = False) -> pl.DataFrame:
    """Compare the `SAMPLE` frames of two runs by medians, or by the largest samples; in the order of the samples."""
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
        .with_columns(since_step=pl.lit(None, pl.Int64))
        .pipe(conform, COMPARISON)
    )


def _summarise(samples: pl.DataFrame) -> pl.DataFrame:
    """Summarise a `SAMPLE` frame by its keys, with `least`, and the deviation of all samples but the largest."""
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


def _add_units(table: pl.DataFrame) -> pl.DataFrame:
    """Add a and b in milliseconds or percent, and that unit; a mean of single kernels is in milliseconds each."""
    is_share = pl.col("unit") == "fraction"
    is_each = pl.col("metric").str.starts_with(KERNEL_MEAN)
    scale = pl.when(is_share).then(100.0).otherwise(1 / NS_PER_MS)
    return table.with_columns(
        shown_a=pl.col("a") * scale,
        shown_b=pl.col("b") * scale,
        shown_unit=pl.when(is_share)
        .then(pl.lit("%"))
        .otherwise(pl.when(is_each).then(pl.lit("ms each")).otherwise(pl.lit("ms"))),
    )


def _table(
    name: str,
    title: str,
    build: Callable[[Samples, Samples], pl.DataFrame],
    *,
    is_whole: bool = False,
    empty: str = _EMPTY,
    hidden: str = "{} are the same within noise",
) -> Table[[Samples, Samples]]:
    """Define a table of a comparison: all have the same columns."""
    return Table(
        name=name,
        title=title,
        columns=_COLUMNS,
        caption=_CAPTION,
        empty=empty,
        build=build,
        view=View(
            columns=_SHOWN,
            derive=_add_units,
            only=None if is_whole else _IS_CHANGE,
            hidden=hidden,
        ),
    )


TABLES: Mapping[str, Table[[Samples, Samples]]] = index_tables(
    _table("steps", "Steps", _compare_steps, is_whole=True),
    _table("bubbles", "Bubbles", partial(_compare_named, name="bubbles")),
    _table("stages", "Stages", partial(_compare_named, name="stages")),
    _table("ranks", "Ranks", partial(_compare_members, name="ranks"), hidden="{} ranks are within noise"),
    _table(
        "links",
        "Links",
        partial(_compare_members, name="links"),
        empty=_NO_LINKS,
        hidden="{} links are within noise",
    ),
    _table("kinds", "Jobs by kind", partial(_compare_named, name="kinds")),
    _table("families", "Families of kernels", partial(_compare_named, name="families")),
    _table("kernels", "Kernels", _compare_kernels),
)
"""Tables by name, in the order in which they are written."""
