"""The one test of noise: of members against their peers in a run, of members in two runs, and of odd values.

A value is beyond noise if it exceeds its standard error by a quantile of Student's t such that `FALSE_RATE`
of comparisons of normal samples exceed it, with all members counted. Deviations are estimated robustly:
single outliers do not hide others.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.search import number_rows
from nsys_pp.frames.aggregates import KEYS, UNIT
from nsys_pp.frames.conform import build_schema, conform

# Most of an excess, of an interval, or of all steps: what is larger has this cause, or is in this call.
MOST = 0.5
# Probability of a false finding of one kind in a run whose samples are normal.
FALSE_RATE = 0.002
_MAD = 1.4826  # from a median absolute deviation to the standard deviation of normal values
_PER_MEDIAN = 1.2533  # error of a median over that of a mean
_EFFICIENCY = 0.37  # of a median absolute deviation, relative to a standard deviation
_EFFICIENCY_OF_MEAN = 0.67  # consecutive differences depend on each other
_FEW = 8  # values, below which a median absolute deviation is no estimate
_LEAST_AGREEING = 0.75  # of the samples
CERTAIN_STEPS, _CERTAIN_SAMPLES = 3, 12


def to_float(value: Any) -> float:
    """Return a statistic of a column as a number; 0 for null."""
    return 0.0 if value is None else float(value)


def spread_of(residuals: pl.Series) -> float:
    """Estimate the standard deviation of residuals around medians, robustly."""
    return _MAD * to_float(residuals.abs().median())


def errors_for(comparison_count: int, degrees: float) -> float:
    """Return the limit in standard errors that some comparisons of normal values exceed with `FALSE_RATE`.

    The fewer the degrees of freedom of the estimated error, the larger the limit: the quantile of Student's
    t. It has closed forms for one and two degrees, and a series for more (Abramowitz and Stegun, "Handbook
    of Mathematical Functions", 26.7.5); between one and three degrees, logarithms are interpolated.

    >>> [round(errors_for(1, degrees), 2) for degrees in (1e9, 20, 4)]
    [2.88, 3.25, 5.81]
    >>> round(errors_for(100, 1e9), 2)
    4.11
    >>> [round(errors_for(1, degrees), 1) for degrees in (1, 1.5, 2)]
    [159.2, 50.1, 15.8]
    """
    share = 1 - FALSE_RATE / max(comparison_count, 1)
    z = NormalDist().inv_cdf(share)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    at = max(degrees, 3)
    series = z + first / at + second / at**2 + third / at**3
    if degrees >= 3:
        return series
    exact = [
        math.tan(math.pi * (share - 0.5)),
        (2 * share - 1) / math.sqrt(2 * share * (1 - share)),
        series,
    ]
    return math.exp(np.interp(degrees, [1, 2, 3], np.log(exact)))


def median_of_others(frame: pl.DataFrame, *, by: Sequence[str], value: str) -> pl.Series:
    """Return the median of `value` over the other rows of each row's group; null for a row without others.

    Args:
        frame: Any frame.
        by: Columns that identify a group, of integers, booleans or categories; at least one.
        value: Column of numbers.

    >>> frame = pl.DataFrame({"group": [0, 0, 0, 1], "value": [1, 5, 9, 2]})
    >>> median_of_others(frame, by=["group"], value="value").to_list()
    [7.0, 5.0, 3.0, None]
    """
    _, number = number_rows([frame[name] for name in by])  # a rank of rows takes ten times as long
    ordered = frame.select(
        pl.Series("group", number), value=pl.col(value).cast(pl.Float64), row=pl.int_range(pl.len())
    ).sort("group", "value")
    group, values = ordered["group"].to_numpy(), ordered["value"].to_numpy()
    rows = np.arange(len(values))
    first = np.searchsorted(group, group)
    count = np.searchsorted(group, group, side="right") - first
    position = rows - first
    # Without the row itself, the values behind it move up by one position.
    low, high = np.maximum(count - 2, 0) // 2, (count - 1) // 2
    low, high = (np.minimum(at + (at >= position), count - 1) + first for at in (low, high))
    medians = np.full(len(values), np.nan)
    medians[ordered["row"].to_numpy()] = np.where(count > 1, (values[low] + values[high]) / 2, np.nan)
    return pl.Series(value, medians, dtype=pl.Float64).fill_nan(None)


class SlowMember(Struct, frozen=True, kw_only=True):
    """A member that is slower than its peers, beyond noise.

    Attributes:
        member: Its number.
        steps: Steps in which it is slow.
        value_ns: Median of its values in these steps.
        usual_ns: Median of those of its peers.
        excess_fraction: Median relative excess.
        noise_fraction: Excess that noise explains.
        sample_count: Number of its samples in these steps.
        is_certain: The excess is twice the noise, in three steps and twelve samples or more.
    """

    member: int
    steps: tuple[int, ...]
    value_ns: float
    usual_ns: float
    excess_fraction: float
    noise_fraction: float
    sample_count: int
    is_certain: bool


class Compared(Struct, frozen=True, kw_only=True):
    """Members compared with the other members of their group.

    Attributes:
        slow: The slow ones, by descending excess.
        all: One row of each member: `member`, value_ns, usual_ns, excess_fraction, noise_fraction (null: a
        single
            sample), sample_count, is_slow. Medians over the steps in which a slow one is slow, else over all.
    """

    slow: list[SlowMember]
    all: pl.DataFrame


def compare_members(
    values: pl.DataFrame,
    *,
    member: str,
    group: list[str],
    least: float,
    spread_values: pl.DataFrame | None = None,
) -> Compared:
    """Compare members with the other members of their group.

    Args:
        values: One row per sample: `member`, `group`, step, micro_batch, value_ns.
        member: Column of the member.
        group: Columns within which members are peers, in addition to step and micro_batch.
        least: Least relative excess of a slow member.
        spread_values: Values of lanes, from which spreads are estimated where lanes are more than members; as
            `values`, with the column `lane`.

    Returns:
        All members with peers. Empty without peers.
    """
    samples, steps = relate_to_peers(values, member, group)
    comparisons = samples[member].n_unique() * min(max(steps["step"].n_unique(), 1), 4)
    spreads = _pool(samples, steps, member, comparisons)
    if spread_values is not None and spread_values["lane"].n_unique() > samples[member].n_unique():
        spreads = _pool(*relate_to_peers(spread_values, "lane", []), "lane", comparisons)
    own = samples.group_by(member).agg(
        own_spread=pl.when(pl.len() >= _FEW).then(_MAD * pl.col("residual").abs().median()).otherwise(0.0)
    )
    samples = samples.join(own, on=member, maintain_order="left")
    largest = pl.col("step_excess").max().over(member)
    in_slow = samples.filter(pl.col("step_excess") >= pl.max_horizontal(pl.lit(least), largest / 2))
    is_slow = (
        (pl.col("excess_fraction") > pl.max_horizontal(pl.lit(least), "noise_fraction"))
        & (pl.col("agreeing") >= _LEAST_AGREEING)
        & pl.col("noise_fraction").is_not_null()
    )
    slow = _measure(in_slow, member, spreads).filter(is_slow).with_columns(is_slow=pl.lit(value=True))
    others = _measure(samples, member, spreads).with_columns(is_slow=pl.lit(value=False))
    return Compared(
        slow=[
            SlowMember(**{**row, "steps": tuple(row["steps"])})
            for row in slow.sort(-pl.col("excess_fraction"), member)
            .rename({member: "member"})
            .select(SlowMember.__struct_fields__)
            .iter_rows(named=True)
        ],
        all=pl.concat([slow, others.join(slow, on=member, how="anti")]),
    )


def relate_to_peers(values: pl.DataFrame, member: str, group: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Relate values to the median of their peers; those without peers are left out.

    Returns:
        Samples: the columns of `values`, usual_ns, excess, step_excess, residual; and steps of members:
        `member`, step, step_excess (median).
    """
    usual = median_of_others(values, by=[*group, "step", "micro_batch"], value="value_ns").alias("usual_ns")
    samples = (
        values.with_columns(usual)
        .filter(pl.col("usual_ns") > 0)
        .with_columns(excess=pl.col("value_ns") / pl.col("usual_ns") - 1)
    )
    steps = samples.group_by(member, "step").agg(step_excess=pl.col("excess").median())
    related = samples.join(steps, on=[member, "step"], maintain_order="left")
    return related.with_columns(residual=pl.col("excess") - pl.col("step_excess")), steps


class _Spreads(NamedTuple):
    """Standard deviations of samples and of steps, with limits in errors."""

    sample: float
    sample_errors: float
    step: float
    step_errors: float


def _pool(samples: pl.DataFrame, steps: pl.DataFrame, member: str, comparisons: int) -> _Spreads:
    """Estimate the spread of micro-batches around their step, and of steps around their level.

    The level of a step is the median of its neighbours on its side of a change, so a member that becomes slow
    adds no spread: differences of consecutive steps are used, whose spread is larger by the square root of 2.
    """
    per_step = samples.group_by(member, "step").len()["len"]
    count = max(1.0, to_float(per_step.median()))
    differences = steps.sort(member, "step").select(
        pl.col("step_excess").diff().over(member).drop_nulls().alias("difference")
    )["difference"]
    step_spread = spread_of(differences) / math.sqrt(2)
    # excesses of two peers mirror each other
    independent = 1 - 1 / max(samples[member].n_unique(), 2)
    of_steps = errors_for(comparisons, max(1.0, _EFFICIENCY * independent * len(differences)))
    if count < 2:  # no spread within steps
        return _Spreads(step_spread, of_steps, step_spread, of_steps)
    degrees = max(1.0, _EFFICIENCY * independent * (len(samples) - len(per_step)))
    spread = spread_of(samples["residual"]) * math.sqrt(count / (count - 1))
    return _Spreads(spread, errors_for(comparisons, degrees), step_spread, of_steps)


def _measure(samples: pl.DataFrame, member: str, spreads: _Spreads) -> pl.DataFrame:
    """Measure the excess of each member, and the excess that noise explains; null: unknown."""
    spread = pl.max_horizontal(pl.lit(spreads.sample), pl.col("own_spread"))
    noise = _PER_MEDIAN * pl.max_horizontal(
        spreads.sample_errors * spread / pl.col("sample_count").sqrt(),
        spreads.step_errors * spreads.step / pl.col("steps").list.len().sqrt(),
    )
    is_known = (pl.col("sample_count") > 1) | pl.lit(spreads.sample + spreads.step > 0)
    return (
        samples.group_by(member)
        .agg(
            pl.col("value_ns", "usual_ns").median(),
            pl.col("own_spread").first(),
            excess_fraction=pl.col("excess").median(),
            agreeing=(pl.col("excess") > 0).mean(),
            sample_count=pl.len().cast(pl.Int64),
            steps=pl.col("step").unique().sort(),
        )
        .with_columns(noise_fraction=pl.when(is_known).then(noise))
        .with_columns(
            is_certain=(pl.col("excess_fraction") >= 2 * pl.col("noise_fraction"))
            & (pl.col("steps").list.len() >= CERTAIN_STEPS)
            & (pl.col("sample_count") >= _CERTAIN_SAMPLES)
        )
    )


def noise_of(values: pl.Series) -> float:
    """Return by how much one of some values may exceed their median by noise; odd values do not count.

    >>> round(noise_of(pl.Series([100, 101, 99, 100, 102, 98, 100, 101, 160])))
    22
    """
    count = len(values) - values.null_count()
    degrees = max(1.0, _EFFICIENCY * (count - 1))
    return errors_for(count, degrees) * spread_of(values - to_float(values.median()))


CHANGES = build_schema(
    {  # one row per member of either run, in the order of the samples
        "stage": pl.Int64,
        "subject": pl.String,
        "metric": pl.String,
        "unit": UNIT,
        "a": pl.Float64,  # median over steps; null: only in B
        "b": pl.Float64,  # median over steps from `since_step` on; null: only in A
        "b_of_all": pl.Float64,  # median over all steps; null: only in A
        # from a to b: relative for times (null from 0), the difference for shares; or that of the member
        # relative to its peers; null unless in both
        "change_fraction": pl.Float64,
        "noise_fraction": pl.Float64,  # in the same terms; null: unknown, as there are too few steps
        "least_fraction": pl.Float64,  # likewise; smaller changes do not count
        "since_step": pl.Int64,  # first step of B with the change; null: all steps
        "is_among_peers": pl.Boolean,  # the change is relative to the other members
        # null: the noise is unknown, the change is in too few steps, or the member is in one run only
        "is_change": pl.Boolean,
        "a_step_count": pl.Int64,
        "b_step_count": pl.Int64,  # from `since_step` on
    },
    name="CHANGES",
)
_LEAST_OWN = 6  # differences from which the deviation of a single member is an estimate
_LEAST_STEPS = 2
_MOST_ENDS = 64  # first steps that are tried
_LEAST_PEERS = 4  # members

Values = npt.NDArray[np.float64]


def find_changes(a: pl.DataFrame, b: pl.DataFrame, *, are_peers: bool = False) -> pl.DataFrame:
    """Find the changes of members from A to B; members of one metric have one noise.

    Args:
        a: `SAMPLE` of run A. With a column `run`, of several runs: a change then also exceeds the largest
        difference
            between the medians of two of them.
        b: `SAMPLE` of run B.
        are_peers: Members vary together, so they are also compared relative to each other.

    Returns:
        `CHANGES`, in the order of the samples.
    """
    sides = [
        samples.group_by(KEYS).agg(
            pl.col("value").median().alias(side),
            pl.col("least").median().alias(f"least_{side}"),
            pl.len().cast(pl.Int64).alias(f"{side}_step_count"),
        )
        for samples, side in ((a, "a"), (b, "b"))
    ]
    table = pl.concat([a.select(KEYS), b.select(KEYS)]).unique(maintain_order=True)
    for side in sides:
        table = table.join(side, on=KEYS, how="left", nulls_equal=True, maintain_order="left")
    least = pl.col("least_a", "least_b").replace(0.0, None)
    table = table.with_columns(
        least=pl.coalesce(least, pl.lit(1.0)),
        scale=pl.when(unit="fraction").then(1.0).when(pl.col("a") > 0).then("a"),
    )
    both = table.drop_nulls(["a", "b"]).partition_by("metric", "unit", maintain_order=True)
    tested = [_TESTED.to_frame(), *(_test_members(one, a, b, are_peers=are_peers) for one in both)]
    return (
        table.drop("b")
        .join(pl.concat(tested), on=KEYS, how="left", nulls_equal=True, maintain_order="left")
        .join(table.select(*KEYS, b_of_all="b"), on=KEYS, nulls_equal=True, maintain_order="left")
        .with_columns(
            pl.col("a_step_count").fill_null(0),
            b_step_count=pl.coalesce("used_step_count", "b_step_count", pl.lit(0)),
            b=pl.coalesce("b", "b_of_all"),
            least_fraction=pl.col("least") / pl.col("scale"),
            noise_fraction=pl.col("noise") / pl.col("scale"),
        )
        .with_columns(
            change_fraction=pl.when("is_among_peers")
            .then(pl.col("change") / pl.col("scale"))
            .when(pl.col("b") == pl.col("a"))
            .then(0.0)
            .otherwise((pl.col("b") - pl.col("a")) / pl.col("scale"))
        )
        .pipe(conform, CHANGES)
    )


_TESTED = build_schema(
    {
        **{name: CHANGES[name] for name in (*KEYS, "b", "since_step", "is_among_peers", "is_change")},
        "used_step_count": pl.Int64,
        "change": pl.Float64,  # in the unit of the samples
        "noise": pl.Float64,
    },
    name="_TESTED",
)


def _test_members(
    members: pl.DataFrame, a: pl.DataFrame, b: pl.DataFrame, *, are_peers: bool
) -> pl.DataFrame:
    """Test the members of both runs, by themselves and, if a few of them changed, relative to their peers."""
    (values_a, _), (values_b, steps) = _spread(members, a), _spread(members, b)
    least, level = (members[name].to_numpy()[:, None] for name in ("least", "a"))
    found = _test(values_a / least, values_b / least, _range_of_runs(members, a) / least[:, 0])
    among = np.zeros(len(members), np.bool_)
    if are_peers and len(members) >= _LEAST_PEERS:
        share = least / level
        relative = _test(_relate(values_a / level) / share, _relate(values_b / level) / share)
        if np.sum(relative.is_change) <= len(members) / 3:
            is_alike = np.sign(relative.change) == np.sign(found.change)
            among = relative.is_change & ~found.is_change & is_alike
            found = _Tested(*(np.where(among, *both) for both in zip(relative, found, strict=True)))
    used = np.where(np.arange(len(steps)) >= found.since[:, None], values_b, np.nan)
    return (
        members.select(KEYS)
        .with_columns(
            b=pl.Series(_median_of(used, axis=1)),
            used_step_count=pl.Series(np.sum(np.isfinite(used), axis=1)),
            change=pl.Series(found.change * least[:, 0]),
            noise=pl.Series(found.noise * least[:, 0], dtype=pl.Float64).fill_nan(None),
            since_step=pl.Series(steps[found.since]).set(pl.Series(found.since == 0), None),
            is_among_peers=pl.Series(among),
            is_change=pl.Series(found.is_change).set(
                pl.Series(np.isnan(found.noise) | (found.is_beyond & ~found.is_change)), None
            ),
        )
        .pipe(conform, _TESTED)
    )


def _range_of_runs(members: pl.DataFrame, samples: pl.DataFrame) -> Values:
    """Return the largest difference between the medians of two runs of A; 0 for a single run."""
    if "run" not in samples.columns:
        return np.zeros(len(members))
    medians = samples.group_by(*KEYS, "run").agg(pl.col("value").median())
    ranges = medians.group_by(KEYS).agg(range=pl.col("value").max() - pl.col("value").min())
    joined = members.select(KEYS).join(ranges, on=KEYS, nulls_equal=True, maintain_order="left")
    return np.asarray(joined["range"].to_numpy(), np.float64)


def _relate(values: Values) -> Values:
    row, step = np.nonzero(np.isfinite(values))
    known = pl.DataFrame({"step": step, "value": values[row, step]})
    related = np.full_like(values, np.nan)
    related[row, step] = known["value"] / median_of_others(known, by=["step"], value="value")
    return related


def _spread(members: pl.DataFrame, samples: pl.DataFrame) -> tuple[Values, npt.NDArray[np.int64]]:
    """Return values by member and step, NaN where there is none, and the steps."""
    steps = samples["step"].unique().sort()
    rows = members.select(KEYS).with_row_index("row")
    placed = samples.join(rows, on=KEYS, nulls_equal=True).join(
        steps.to_frame().with_row_index("at"), on="step"
    )
    values = np.full((len(members), len(steps)), np.nan)
    values[placed["row"].to_numpy(), placed["at"].to_numpy()] = placed["value"].to_numpy()
    return values, steps.to_numpy()


class _Tested(NamedTuple):
    """Results by member, in least changes: change, its first step, noise, and whether it exceeds that."""

    change: Values
    since: npt.NDArray[np.int64]
    noise: Values
    is_change: npt.NDArray[np.bool_]
    is_beyond: npt.NDArray[np.bool_]  # it exceeds noise, perhaps in too few steps


def _test(values_a: Values, values_b: Values, apart: Values | float = 0.0) -> _Tested:
    """Test the changes from A to B of members (rows) over steps (columns), in units of their least change.

    `apart`: changes that do not count for another reason.
    """
    level = _median_of(values_a, axis=1)[:, None]
    series_a, series_b = values_a - level, values_b - level
    limit = _build_limit(series_a, series_b)
    change, since = _find_ends(series_b, limit)
    used = np.where(np.arange(series_b.shape[1]) >= since[:, None], series_b, np.nan)
    counts = np.sum(np.isfinite(used), axis=1)
    noise = np.maximum(limit(counts), apart)
    agreeing = np.sum(used * np.sign(change)[:, None] > 0, axis=1) / np.maximum(counts, 1)
    is_beyond = np.abs(change) > np.maximum(noise, 1.0)
    return _Tested(change, since, noise, is_beyond & (agreeing >= _LEAST_AGREEING), is_beyond)


def _build_limit(series_a: Values, series_b: Values) -> Callable[[npt.NDArray[np.int64]], Values]:
    """Return the function from the number of steps of a change, by member, to the change that noise explains.

    The limit is NaN where a run has a single step.
    """
    differences = np.concatenate([np.diff(series_a, axis=1), np.diff(series_b, axis=1)], axis=1)
    member_count, step_count = differences.shape
    count_a, count_b = series_a.shape[1], series_b.shape[1]
    residuals = _level(series_a) * math.sqrt(count_a / max(count_a - 1, 1))
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
    errors = errors_for(member_count * min(max(count_b, 1), 4), degrees)
    counts_a = np.maximum(np.sum(np.isfinite(series_a), axis=1), 1)
    scale = errors * _PER_MEDIAN * spread if min(count_a, count_b) > 1 else np.full(member_count, np.nan)
    return lambda counts: scale * np.sqrt(1 / counts_a + 1 / np.maximum(counts, 1))


def _find_ends(
    series: Values, limit: Callable[[npt.NDArray[np.int64]], Values]
) -> tuple[Values, npt.NDArray[np.int64]]:
    """Find the change of each member, and the index of its first step; 0: all steps.

    A change begins inside B if the steps before are as in A, it has most of the steps, and all together
    changed.
    """

    def least(counts: npt.NDArray[np.int64]) -> Values:
        return np.maximum(limit(counts), 1.0)

    change = whole = _median_of(series, axis=1)
    best_cost = np.nansum(np.abs(series - change[:, None]), axis=1)
    since = np.zeros(len(series), np.int64)
    for first, before, after, split in _split(series, 1):
        cost = np.nansum(np.abs(split), axis=1)
        counts, counts_before = (
            np.sum(np.isfinite(part), axis=1) for part in (series[:, first:], series[:, :first])
        )
        is_end = (
            (np.abs(after - before) > least(np.minimum(counts, counts_before)))
            & (np.abs(before) <= least(counts_before))  # else all steps changed
            & (counts >= _LEAST_STEPS)
            & (counts_before > 0)
            & (cost < best_cost)
        )
        change, since = np.where(is_end, after, change), np.where(is_end, first, since)
        best_cost = np.where(is_end, cost, best_cost)
    # the median of fewer steps shows odd ones; and a run has the same ends as itself
    is_most = series.shape[1] - since >= np.maximum(since + 1, CERTAIN_STEPS)
    is_most &= np.abs(whole) > least(np.sum(np.isfinite(series), axis=1))
    return np.where(is_most, change, whole), np.where(is_most, since, 0)


def _level(series: Values) -> Values:
    """Return the residuals around the median of each member, or around two, if these halve the deviations.

    A member that changed inside A has no larger noise for that reason.
    """
    residuals = series - _median_of(series, axis=1)[:, None]
    least = np.nansum(np.abs(residuals), axis=1) / 2
    for _, _, _, split in _split(series, _LEAST_STEPS):
        cost = np.nansum(np.abs(split), axis=1)
        residuals = np.where((cost < least)[:, None], split, residuals)
        least = np.minimum(cost, least)
    return residuals


def _split(series: Values, least_before: int) -> Iterator[tuple[int, Values, Values, Values]]:
    """Split the steps in two: first step of the second part, medians of both parts, residuals."""
    count = series.shape[1]
    for first in range(least_before, count - _LEAST_STEPS + 1, max(1, count // _MOST_ENDS)):
        before, after = _median_of(series[:, :first], axis=1), _median_of(series[:, first:], axis=1)
        levels = np.where(np.arange(count) < first, before[:, None], after[:, None])
        yield first, before, after, series - levels


def _deviation(values: Values) -> float:
    """Estimate a standard deviation around 0, robustly; 0 without values."""
    known = np.abs(values[np.isfinite(values)])
    return _MAD * float(np.median(known)) if len(known) else 0.0


def _median_of(values: Values, *, axis: int) -> Values:
    """Return medians without NaN; NaN where there is nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows of NaN alone
        return np.asarray(np.nanmedian(values, axis=axis), dtype=np.float64)
