"""Changes of members, such as ranks and links, from run A to run B: their size, whether they exceed noise, and their first step.

The value of a member in A is its median over steps. The relative differences of B to it are the series of the member. Their
standard deviation is estimated from differences of consecutive steps, and from the residuals of A, robustly and pooled over all
members, as each has few steps; the one of a member counts if it is larger. Where all members vary together, they count as one.
A change exceeds noise if the median of the series, or of its end from one step on, exceeds the least change and the limit of
`errors_for` for the number of members, and three of four of its values have its sign. A change begins inside B if its end
differs from its beginning by more than noise, and twice as much from A.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.tables.verdict.evidence import errors_for

CHANGES = build_schema(
    {  # one row per member of either run; those of both runs first
        "stage": pl.Int64,
        "subject": pl.String,
        "metric": pl.String,
        "a": pl.Float64,  # median over steps; null: only in B
        "b": pl.Float64,  # median over steps from `since_step` on; null: only in A
        "change_fraction": pl.Float64,  # relative; null unless in both
        "noise_fraction": pl.Float64,  # relative; null: unknown, as there are too few steps
        "least_fraction": pl.Float64,  # relative; smaller changes do not count
        "since_step": pl.Int64,  # first step of B with the change; null: all steps
        "is_change": pl.Boolean,  # null: the noise is unknown, or the member is in one run only
        "a_step_count": pl.Int64,
        "b_step_count": pl.Int64,
    },
    name="CHANGES",
)
_MEMBER = ("stage", "subject", "metric")
_MAD, _PER_MEDIAN, _EFFICIENCY = 1.4826, 1.2533, 0.37  # as in `nsys_pp.tables.verdict.comparison`
_LEAST_OWN = 6  # differences from which the deviation of a single member is an estimate
_LEAST_AGREEING, _LEAST_STEPS = 0.75, 2
_MOST_ENDS = 64  # first steps that are tried

Values = npt.NDArray[np.float64]


def find_changes(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Find the changes of members from A to B.

    Args:
        a: `SAMPLE` of run A, of times.
        b: `SAMPLE` of run B.

    Returns:
        `CHANGES`, in the order of the samples.
    """
    members = pl.concat([a.select(_MEMBER), b.select(_MEMBER)]).unique(maintain_order=True)
    sides = [_summarise(side, name) for side, name in ((a, "a"), (b, "b"))]
    table = members
    for side in sides:
        table = table.join(side, on=_MEMBER, how="left", nulls_equal=True, maintain_order="left")
    both = table.filter(pl.col("a") > 0, pl.col("b").is_not_null())
    found = _test(both, _spread(both, a)[0], *_spread(both, b)) if len(both) else _no_tests()
    return (
        table.join(found, on=_MEMBER, how="left", nulls_equal=True, maintain_order="left", suffix="_since")
        .with_columns(pl.coalesce("b_since", "b").alias("b"))
        .with_columns(
            pl.col("a_step_count", "b_step_count").fill_null(0),
            change_fraction=pl.when(pl.col("a") > 0).then(pl.col("b") / pl.col("a") - 1),
        )
        .pipe(conform, CHANGES)
    )


def _summarise(samples: pl.DataFrame, side: str) -> pl.DataFrame:
    """Return the median of each member, the least change (of A), and the number of steps."""
    return samples.group_by(_MEMBER).agg(
        pl.col("value").median().alias(side),
        pl.len().cast(pl.Int64).alias(f"{side}_step_count"),
        *([(pl.col("least") / pl.col("value")).median().alias("least_fraction")] if side == "a" else []),
    )


def _spread(members: pl.DataFrame, samples: pl.DataFrame) -> tuple[Values, npt.NDArray[np.int64]]:
    """Return values by member and step, NaN where there is none, and the steps."""
    steps = samples["step"].unique().sort()
    rows = members.select(_MEMBER).with_row_index("row")
    placed = samples.join(rows, on=_MEMBER, nulls_equal=True).join(
        steps.to_frame().with_row_index("at"), on="step"
    )
    values = np.full((len(members), len(steps)), np.nan)
    values[placed["row"].to_numpy(), placed["at"].to_numpy()] = placed["value"].to_numpy()
    return values, steps.to_numpy()


def _test(
    members: pl.DataFrame, values_a: Values, values_b: Values, steps: npt.NDArray[np.int64]
) -> pl.DataFrame:
    """Test the changes of the members of both runs: their keys, b_since, noise_fraction, since_step and is_change."""
    level_a = members["a"].to_numpy()[:, None]
    series_a, series_b = values_a / level_a - 1, values_b / level_a - 1
    counts_a = np.sum(np.isfinite(series_a), axis=1)
    least = members["least_fraction"].to_numpy()
    limit = _build_limit(series_a, series_b, counts_a)
    change, since = _find_ends(series_b, least, limit)
    in_change = np.arange(len(steps)) >= since[:, None]
    used = np.where(in_change, series_b, np.nan)
    noise = limit(np.sum(np.isfinite(used), axis=1))
    agreeing = np.sum(used * np.sign(change)[:, None] > 0, axis=1) / np.maximum(
        np.sum(np.isfinite(used), axis=1), 1
    )
    is_change = (np.abs(change) > np.maximum(noise, least)) & (agreeing >= _LEAST_AGREEING)
    is_late = since > 0
    return (
        members.select(_MEMBER)
        .with_columns(
            b_since=pl.Series((1 + change) * level_a[:, 0]),
            noise_fraction=pl.Series(noise, dtype=pl.Float64).fill_nan(None),
            since_step=pl.Series(np.where(is_late, steps[since], 0)).set(pl.Series(~is_late), None),
            is_change=pl.Series(is_change).set(pl.Series(np.isnan(noise)), None),
        )
        .rename({"b_since": "b"})
    )


def _no_tests() -> pl.DataFrame:
    columns = (*_MEMBER, "b", "noise_fraction", "since_step", "is_change")
    return CHANGES.to_frame().select(columns)


def _build_limit(
    series_a: Values, series_b: Values, counts_a: npt.NDArray[np.int64]
) -> Callable[[npt.NDArray[np.int64]], Values]:
    """Return the function from the number of steps of a change, by member, to the change that noise explains.

    The limit is NaN where a run has a single step.
    """
    differences = np.concatenate([np.diff(series_a, axis=1), np.diff(series_b, axis=1)], axis=1)
    member_count, step_count = differences.shape
    residuals = _level(series_a) * math.sqrt(_over_less_one(series_a.shape[1]))
    pooled = max(_deviation(differences) / math.sqrt(2), _deviation(residuals))
    own = _median_of(np.abs(differences), axis=1) * _MAD / math.sqrt(2)
    is_estimate = np.sum(np.isfinite(differences), axis=1) >= _LEAST_OWN
    spread = np.where(is_estimate, np.fmax(own, pooled), pooled)
    shared = _deviation(_median_of(differences, axis=0)) / math.sqrt(2)
    apart = 1 - min(1.0, (shared / pooled) ** 2) if pooled > 0 else 1.0
    degrees = max(1.0, _EFFICIENCY * step_count * (1 + (member_count - 1) * apart))
    errors = errors_for(member_count * min(max(series_b.shape[1], 1), 4), degrees)
    is_known = min(series_a.shape[1], series_b.shape[1]) > 1

    def limit(counts: npt.NDArray[np.int64]) -> Values:
        error = np.sqrt(1 / np.maximum(counts_a, 1) + 1 / np.maximum(counts, 1))
        return errors * _PER_MEDIAN * spread * error if is_known else np.full(member_count, np.nan)

    return limit


def _find_ends(
    series: Values, least: Values, limit: Callable[[npt.NDArray[np.int64]], Values]
) -> tuple[Values, npt.NDArray[np.int64]]:
    """Find the change of each member, and the index of its first step; 0: all steps."""
    whole = _median_of(series, axis=1)
    count = series.shape[1]
    best_cost = np.nansum(np.abs(series - whole[:, None]), axis=1)
    change, since = whole.copy(), np.zeros(len(series), np.int64)
    stride = max(1, count // _MOST_ENDS)
    for first in range(1, count - _LEAST_STEPS + 1, stride):
        before, after = _median_of(series[:, :first], axis=1), _median_of(series[:, first:], axis=1)
        levels = np.where(np.arange(count) < first, before[:, None], after[:, None])
        cost = np.nansum(np.abs(series - levels), axis=1)
        counts = np.sum(np.isfinite(series[:, first:]), axis=1)
        counts_before = np.sum(np.isfinite(series[:, :first]), axis=1)
        needed = np.maximum(limit(np.minimum(counts, counts_before)), least)
        is_end = (
            (np.abs(after - before) > needed)
            & (np.abs(after) > 2 * np.abs(before))
            & (counts >= _LEAST_STEPS)
            & (counts_before > 0)
            & (cost < best_cost)
        )
        change, since = np.where(is_end, after, change), np.where(is_end, first, since)
        best_cost = np.where(is_end, cost, best_cost)
    return change, since


def _level(series: Values) -> Values:
    """Return the residuals around the median of each member, or around two, if these halve the deviations.

    A member that changed inside A has no larger noise for that reason.
    """
    residuals = series - _median_of(series, axis=1)[:, None]
    least = np.nansum(np.abs(residuals), axis=1) / 2
    count = series.shape[1]
    for first in range(_LEAST_STEPS, count - _LEAST_STEPS + 1, max(1, count // _MOST_ENDS)):
        before, after = _median_of(series[:, :first], axis=1), _median_of(series[:, first:], axis=1)
        split = series - np.where(np.arange(count) < first, before[:, None], after[:, None])
        cost = np.nansum(np.abs(split), axis=1)
        residuals = np.where((cost < least)[:, None], split, residuals)
        least = np.minimum(cost, least)
    return residuals


def _over_less_one(count: int) -> float:
    return count / (count - 1) if count > 1 else 1.0


def _deviation(values: Values) -> float:
    """Estimate a standard deviation around 0, robustly; 0 without values."""
    known = np.abs(values[np.isfinite(values)])
    return _MAD * float(np.median(known)) if len(known) else 0.0


def _median_of(values: Values, *, axis: int) -> Values:
    """Return medians without NaN; NaN where there is nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows of NaN alone
        return np.asarray(np.nanmedian(values, axis=axis), dtype=np.float64)
