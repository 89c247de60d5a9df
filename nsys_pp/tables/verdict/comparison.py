"""Comparison of members with their peers over steps and micro-batches, and the test for excess beyond noise.

A sample is the own compute of a member (a rank, or a stage) for a micro-batch, relative to the median of its peers for the same
micro-batch: variation that all share cancels. A member is slow in the steps whose median excess is at least half of its
largest one, and at least the least excess. It is slower beyond noise if

* the median excess of its samples in these steps exceeds the least excess and `errors_for` standard errors, both from the
  spread of micro-batches and from the spread of steps;
* three of four of these samples exceed 0.

The spreads are robust and pooled over all members, as each has few samples; the one of a member counts if it is larger.
"""

from __future__ import annotations

import math

import polars as pl
from msgspec import Struct

from nsys_pp.tables.noise import median_of_others
from nsys_pp.tables.verdict.evidence import errors_for, spread_of, to_float

_PER_MEDIAN = 1.2533  # error of a median over that of a mean
_LEAST_AGREEING = 0.75
_EFFICIENCY = 0.37  # of a median absolute deviation, relative to a standard deviation
_LEAST_OWN = 8  # samples from which the spread of a single member is an estimate
_CERTAIN_FACTOR, _CERTAIN_STEPS, _CERTAIN_SAMPLES = 2.0, 3, 12


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


def find_slow(
    values: pl.DataFrame,
    *,
    member: str,
    group: list[str],
    least: float,
    spread_values: pl.DataFrame | None = None,
) -> list[SlowMember]:
    """Compare members with the other members of their group.

    Args:
        values: One row per sample: `member`, `group`, step, micro_batch, value_ns.
        member: Column of the member.
        group: Columns within which members are peers, in addition to step and micro_batch.
        least: Least relative excess of a slow member.
        spread_values: Values of lanes, from which spreads are estimated where lanes are more than members; as `values`,
            with the column `lane`.

    Returns:
        The slow members, by descending excess. Empty without peers.
    """
    samples, steps = _relate(values, member, group)
    if samples.is_empty():
        return []
    is_slow = pl.col("step_excess") >= pl.max_horizontal(
        pl.lit(least), pl.col("step_excess").max().over(member) / 2
    )
    slow_steps = steps.with_columns(is_slow=is_slow).filter("is_slow").select(member, "step")
    comparisons = samples[member].n_unique() * min(max(steps["step"].n_unique(), 1), 4)
    spreads = _pool(samples, steps, member, comparisons)
    if spread_values is not None and spread_values["lane"].n_unique() > samples[member].n_unique():
        spreads = _pool(*_relate(spread_values, "lane", []), "lane", comparisons)
    found = []
    slow_samples = samples.join(slow_steps, on=[member, "step"], how="semi")
    for (number,), rows in slow_samples.group_by(member, maintain_order=True):
        own = samples.filter(pl.col(member) == number)["residual"]
        own_spread = spread_of(own) if len(own) >= _LEAST_OWN else 0.0
        slow = _test(int(str(number)), rows, spreads, own_spread=own_spread, least=least)
        if slow is not None:
            found.append(slow)
    return sorted(found, key=lambda slow: (-slow.excess_fraction, slow.member))


def _relate(values: pl.DataFrame, member: str, group: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Relate values to the median of their peers.

    Returns:
        Samples: the columns of `values`, usual_ns, excess, step_excess, residual; and steps of members: `member`, step,
        step_excess (median).
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


class _Spreads(Struct, frozen=True, kw_only=True):
    """Standard deviations of samples around their step, and of steps around their level, with limits in errors."""

    sample: float
    sample_errors: float
    step: float
    step_errors: float


def _pool(samples: pl.DataFrame, steps: pl.DataFrame, member: str, comparisons: int) -> _Spreads:
    """Estimate the spread of micro-batches around their step, and of steps around their level, over all members.

    The level of a step is the median of its neighbours on its side of a change, so a member that becomes slow adds no
    spread: differences of consecutive steps are used, whose spread is larger by the square root of 2.
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
        return _Spreads(sample=step_spread, sample_errors=of_steps, step=step_spread, step_errors=of_steps)
    degrees = max(1.0, _EFFICIENCY * independent * (len(samples) - len(per_step)))
    return _Spreads(
        sample=spread_of(samples["residual"]) * math.sqrt(count / (count - 1)),
        sample_errors=errors_for(comparisons, degrees),
        step=step_spread,
        step_errors=of_steps,
    )


def _test(
    member: int, rows: pl.DataFrame, spreads: _Spreads, *, own_spread: float, least: float
) -> SlowMember | None:
    """Test the samples of a member in its slow steps; None within noise."""
    count, step_count = rows.height, rows["step"].n_unique()
    spread = max(spreads.sample, own_spread)
    if spread == 0 and spreads.step == 0 and count < 2:  # a single sample without any spread
        return None
    noise = _PER_MEDIAN * max(
        spreads.sample_errors * spread / math.sqrt(count),
        spreads.step_errors * spreads.step / math.sqrt(step_count),
    )
    excess = to_float(rows["excess"].median())
    agreeing = to_float((rows["excess"] > 0).mean())
    if excess <= max(least, noise) or agreeing < _LEAST_AGREEING:
        return None
    is_certain = (
        excess >= _CERTAIN_FACTOR * noise and step_count >= _CERTAIN_STEPS and count >= _CERTAIN_SAMPLES
    )
    return SlowMember(
        member=member,
        steps=tuple(rows["step"].unique().sort().to_list()),
        value_ns=to_float(rows["value_ns"].median()),
        usual_ns=to_float(rows["usual_ns"].median()),
        excess_fraction=excess,
        noise_fraction=noise,
        sample_count=count,
        is_certain=is_certain,
    )
