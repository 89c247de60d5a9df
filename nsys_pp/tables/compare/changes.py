"""Changes of members, such as ranks and links, from run A to run B: their size, whether they exceed noise, and their first step.

The value of a member in A is its median over steps. The relative differences of B to it are the series of the member. Their
standard deviation is estimated from differences of consecutive steps, and from the residuals of A, robustly and pooled over all
members, as each has few steps; the one of a member counts if it is larger. Where all members vary together, they count as one.
A change exceeds noise if the median of the series, or of its end from one step on, exceeds the least change and the limit of
`errors_for` for the number of members, and three of four of its values have its sign. A change begins inside B if its end
differs from its beginning by more than noise, and twice as much from A.

Lengths of steps vary with their data, for all ranks alike. With peers, members are therefore also compared relative to the
median of the others in the same step. This finds changes of some members, a third of them at most, that shared variation hides.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.tables.verdict.evidence import FALSE_RATE, errors_for

CHANGES = build_schema(
    {  # one row per member of either run; those of both runs first
        "stage": pl.Int64,
        "subject": pl.String,
        "metric": pl.String,
        "a": pl.Float64,  # median over steps; null: only in B
        "b": pl.Float64,  # median over steps from `since_step` on; null: only in A
        "change_fraction": pl.Float64,  # from a to b, or that of the member relative to its peers; null unless in both
        "noise_fraction": pl.Float64,  # relative; null: unknown, as there are too few steps
        "least_fraction": pl.Float64,  # relative; smaller changes do not count
        "since_step": pl.Int64,  # first step of B with the change; null: all steps
        "is_among_peers": pl.Boolean,  # the change is relative to the other members
        "is_change": pl.Boolean,  # null: the noise is unknown, or the member is in one run only
        "a_step_count": pl.Int64,
        "b_step_count": pl.Int64,
    },
    name="CHANGES",
)
_MEMBER = ("stage", "subject", "metric")
_MAD, _PER_MEDIAN, _EFFICIENCY = 1.4826, 1.2533, 0.37  # as in `nsys_pp.tables.verdict.comparison`
_FEW = 8  # differences, below which their root mean square is used, too
_EFFICIENCY_OF_MEAN = 0.67  # consecutive differences depend on each other
_LEAST_OWN = 6  # differences from which the deviation of a single member is an estimate
_LEAST_AGREEING, _LEAST_STEPS = 0.75, 2
_MOST_ENDS = 64  # first steps that are tried
_LEAST_PEERS, _MOST_APART = 4, 32  # members; more than the last one have a common median

Values = npt.NDArray[np.float64]


def find_changes(a: pl.DataFrame, b: pl.DataFrame, *, are_peers: bool = False) -> pl.DataFrame:
    """Find the changes of members from A to B.

    Args:
        a: `SAMPLE` of run A, of times.
        b: `SAMPLE` of run B.
        are_peers: Members vary together, so they are also compared relative to each other.

    Returns:
        `CHANGES`, in the order of the samples.
    """
    members = pl.concat([a.select(_MEMBER), b.select(_MEMBER)]).unique(maintain_order=True)
    sides = [_summarise(side, name) for side, name in ((a, "a"), (b, "b"))]
    table = members
    for side in sides:
        table = table.join(side, on=_MEMBER, how="left", nulls_equal=True, maintain_order="left")
    both = table.filter(pl.col("a") > 0, pl.col("b").is_not_null())
    found = _test_members(both, a, b, are_peers=are_peers) if len(both) else _no_tests()
    return (
        table.join(found, on=_MEMBER, how="left", nulls_equal=True, maintain_order="left", suffix="_since")
        .with_columns(pl.coalesce("b_since", "b").alias("b"))
        .with_columns(
            pl.col("a_step_count", "b_step_count").fill_null(0),
            change_fraction=pl.when("is_among_peers")
            .then("change_fraction")
            .otherwise(pl.when(pl.col("a") > 0).then(pl.col("b") / pl.col("a") - 1)),
        )
        .pipe(conform, CHANGES)
    )


def _test_members(
    members: pl.DataFrame, a: pl.DataFrame, b: pl.DataFrame, *, are_peers: bool
) -> pl.DataFrame:
    """Test the members of both runs, by themselves and, if a few of them changed, relative to their peers."""
    (values_a, _), (values_b, steps) = _spread(members, a), _spread(members, b)
    level = members["a"].to_numpy()[:, None]
    least = members["least_fraction"].to_numpy()
    found = _test(values_a / level, values_b / level, least)
    among = np.zeros(len(members), np.bool_)
    if are_peers and len(members) >= _LEAST_PEERS:
        relative = _test(_relate(values_a / level), _relate(values_b / level), least)
        changed = relative.is_change & ~found.is_change
        if np.sum(relative.is_change) <= len(members) / 3:
            among = changed & (np.sign(relative.change) == np.sign(found.change))
            found = found.replaced(relative, among)
    in_change = np.arange(len(steps)) >= found.since[:, None]
    is_late = found.since > 0
    return members.select(_MEMBER).with_columns(
        b=pl.Series(_median_of(np.where(in_change, values_b, np.nan), axis=1)),
        change_fraction=pl.Series(found.change),
        noise_fraction=pl.Series(found.noise, dtype=pl.Float64).fill_nan(None),
        since_step=pl.Series(steps[found.since]).set(pl.Series(~is_late), None),
        is_among_peers=pl.Series(among),
        is_change=pl.Series(found.is_change).set(pl.Series(np.isnan(found.noise)), None),
    )


def _no_tests() -> pl.DataFrame:
    tested = ("b", "change_fraction", "noise_fraction", "since_step", "is_among_peers", "is_change")
    return CHANGES.to_frame().select(*_MEMBER, *tested)


def _relate(values: Values) -> Values:
    """Divide values by the median of the other members in the same step; of many members, by the median of all."""
    if len(values) > _MOST_APART:
        return values / _median_of(values, axis=0)
    others = [_median_of(np.delete(values, row, axis=0), axis=0) for row in range(len(values))]
    return values / np.stack(others)


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


class _Tested(NamedTuple):
    """Results of a test, one value per member: the change, the first step with it, the noise, and whether it exceeds that."""

    change: Values
    since: npt.NDArray[np.int64]
    noise: Values
    is_change: npt.NDArray[np.bool_]

    def replaced(self, other: _Tested, where: npt.NDArray[np.bool_]) -> _Tested:
        """Return these results, replaced for some members by another test."""
        return _Tested(*(np.where(where, theirs, own) for own, theirs in zip(self, other, strict=True)))


def _test(values_a: Values, values_b: Values, least: Values) -> _Tested:
    """Test the changes from A to B of members (rows) over steps (columns)."""
    level = _median_of(values_a, axis=1)[:, None]
    series_a, series_b = values_a / level - 1, values_b / level - 1
    limit = _build_limit(series_a, series_b, np.sum(np.isfinite(series_a), axis=1))
    change, since = _find_ends(series_b, least, limit)
    used = np.where(np.arange(series_b.shape[1]) >= since[:, None], series_b, np.nan)
    counts = np.sum(np.isfinite(used), axis=1)
    noise = limit(counts)
    agreeing = np.sum(used * np.sign(change)[:, None] > 0, axis=1) / np.maximum(counts, 1)
    is_change = (np.abs(change) > np.maximum(noise, least)) & (agreeing >= _LEAST_AGREEING)
    return _Tested(change, since, noise, is_change)


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
    efficiency = _EFFICIENCY
    known = differences[np.isfinite(differences)]
    if len(known) < _FEW:  # too few for a robust estimate
        spread = np.maximum(spread, math.sqrt(np.mean(known**2) / 2) if len(known) else 0.0)
        efficiency = _EFFICIENCY_OF_MEAN
    degrees = max(1.0, efficiency * step_count * (1 + (member_count - 1) * apart))
    errors = _errors_for(member_count * min(max(series_b.shape[1], 1), 4), degrees)
    is_known = min(series_a.shape[1], series_b.shape[1]) > 1

    def limit(counts: npt.NDArray[np.int64]) -> Values:
        error = np.sqrt(1 / np.maximum(counts_a, 1) + 1 / np.maximum(counts, 1))
        return errors * _PER_MEDIAN * spread * error if is_known else np.full(member_count, np.nan)

    return limit


def _errors_for(comparison_count: int, degrees: float) -> float:
    """Return the limit of `errors_for`, also for less than three degrees of freedom, where its series is too small.

    Student's t has closed quantiles for one and two degrees; between these, logarithms are interpolated.

    >>> [round(_errors_for(1, degrees), 1) for degrees in (1, 1.5, 2, 20)]
    [159.2, 50.1, 15.8, 3.3]
    """
    if degrees >= 3:
        return errors_for(comparison_count, degrees)
    share = 1 - FALSE_RATE / comparison_count
    exact = [
        math.tan(math.pi * (share - 0.5)),
        (2 * share - 1) / math.sqrt(2 * share * (1 - share)),
        errors_for(comparison_count, 3),
    ]
    return math.exp(np.interp(degrees, [1, 2, 3], np.log(exact)))


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
