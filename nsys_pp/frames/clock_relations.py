"""Relations of the clocks of lanes: whether their times can be compared, and their error."""

from __future__ import annotations

import polars as pl

CLOCK = ("clock", "clock_group", "bound_ns")
"""Columns of a lane (`LANES`) that define its clock."""


def describe_groups(groups: pl.Series) -> str:
    """Describe several groups of clocks; "" for a single one.

    Args:
        groups: Group of each clock or lane.
    """
    count = groups.n_unique()
    return f"{count} groups of clocks, not comparable with each other" if count > 1 else ""


def is_same_clock(suffix: str) -> pl.Expr:
    """Return whether two lanes have the same clock: their times are exact relative to each other.

    Args:
        suffix: Of the columns `CLOCK` of the other lane.
    """
    return pl.col("clock") == pl.col(f"clock{suffix}")


def is_comparable(suffix: str) -> pl.Expr:
    """Return whether the times of two lanes can be compared: of one clock, or of one group with known bounds.

    Args:
        suffix: Of the columns `CLOCK` of the other lane.
    """
    is_same_group = pl.col("clock_group") == pl.col(f"clock_group{suffix}")
    return (is_same_clock(suffix) | (is_same_group & _sum_bounds(suffix).is_not_null())).fill_null(False)


def relative_bound(suffix: str) -> pl.Expr:
    """Return the error bound of the times of two lanes relative to each other; null: unknown.

    Args:
        suffix: Of the columns `CLOCK` of the other lane.
    """
    return pl.when(is_same_clock(suffix)).then(0).otherwise(_sum_bounds(suffix))


def keep_comparable(pairs: pl.DataFrame, lanes: pl.DataFrame, left: str, right: str) -> pl.DataFrame:
    """Keep the rows with two lanes whose times can be compared.

    Args:
        pairs: Rows with the columns `left` and `right`.
        lanes: `LANES`.
        left: Column of one lane.
        right: Column of the other lane.
    """
    clocks = lanes.select("lane", *CLOCK)
    both = pairs.select(left, right)
    for name in (left, right):
        both = both.join(
            clocks, left_on=name, right_on="lane", how="left", maintain_order="left", suffix="_of_other"
        )
    return pairs.filter(both.select(is_comparable("_of_other")).to_series())


def number_comparable(lanes: pl.DataFrame) -> pl.Series:
    """Number the sets of lanes whose times can all be compared, from 0; lanes of unknown bounds have only their clock.

    Args:
        lanes: `LANES`.

    Returns:
        The number of the set of each lane, in order (`clock_set`).
    """
    is_bounded = pl.col("bound_ns").is_not_null() & pl.col("clock_group").is_not_null()
    key = pl.struct(pl.when(is_bounded).then("clock_group"), clock=pl.when(~is_bounded).then("clock"))
    return lanes.select(clock_set=key.rank("dense") - 1).to_series()


def list_comparable_steps(steps: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """List the steps in which the times of all lanes can be compared: step.

    Args:
        steps: `RUN_STEPS`.
        lanes: `LANES`.
    """
    sets = lanes.select("lane", number_comparable(lanes))
    of_step = steps.join(sets, on="lane", how="left").group_by("step").agg(pl.col("clock_set").n_unique())
    return of_step.filter(clock_set=1).select("step").sort("step")


def _sum_bounds(suffix: str) -> pl.Expr:
    return pl.col("bound_ns") + pl.col(f"bound_ns{suffix}")
