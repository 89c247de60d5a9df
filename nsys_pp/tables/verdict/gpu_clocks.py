"""Clocks of the SMs as a cause of slow ranks and steps, where nsys recorded them (`--gpu-metrics-devices`).

The clock of a rank in its slow steps is compared with that of its peers in the same steps, and with its own in its other
steps: a clock that is as low where the rank is not slow is no cause. A kernel that computes takes longer by the ratio of the
clocks, and one that waits for memory by less, so an excess of about that ratio is explained; with any other excess the two
are only correlated, and the clock is a guess. nsys does not record why a clock is low.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.verdict.evidence import Evidence, to_float
from nsys_pp.tables.verdict.wording import describe_steps, format_share, format_time

_LOW = 0.95  # of the usual clock; clocks of a GPU under load vary by some steps of 15 MHz
_LEAST_OF_RATIO, _MOST_OF_RATIO = (
    0.7,
    1.15,
)  # excess that a ratio of clocks explains, of the excess of the ratio
_LEAST_EXCESS = 0.05  # of slow steps of all ranks
_LEAST_STEPS = 4
_GUESS = "; a guess at why: "


def describe_low_clock(
    evidence: Evidence, lanes: Sequence[int], peers: Sequence[int], steps: Sequence[int], excess: float
) -> str:
    """Describe a low clock of slow lanes; "" where it is not recorded, not low, or as low where they are not slow.

    Args:
        evidence: The run.
        lanes: Slow lanes.
        peers: Lanes that they are compared with.
        steps: Steps in which they are slow.
        excess: Relative excess of their compute.
    """
    is_slow, is_own = pl.col("step").is_in(list(steps)), pl.col("lane").is_in(list(lanes))
    clocks = evidence.clocks
    own, usual = _median(clocks, is_own, is_slow), _median(clocks, pl.col("lane").is_in(list(peers)), is_slow)
    if not own or not usual or own >= _LOW * usual:
        return ""
    other_steps = _median(clocks, is_own, ~is_slow)
    if other_steps and own >= _LOW * other_steps:
        return ""
    fall = usual / own - 1
    is_explained = _LEAST_OF_RATIO * fall <= excess <= _MOST_OF_RATIO * fall
    its = "its SM clock was" if len(lanes) == 1 else "their SM clocks were"
    where = "in these steps" if len(steps) > 1 else "in this step"
    return f"{', as ' if is_explained else _GUESS}{its} {own:,.0f} of {usual:,.0f} MHz {where}"


def describe_fall(evidence: Evidence, lane: int, step: int, others: Sequence[int]) -> str:
    """Describe a clock of a lane that fell in a step, compared with other steps; "" where it did not, or is not recorded."""
    is_own = pl.col("lane") == lane
    own = _median(evidence.clocks, is_own, pl.col("step") == step)
    usual = _median(
        evidence.clocks, is_own, pl.col("step").is_in([other for other in others if other != step])
    )
    if not own or not usual or own >= _LOW * usual:
        return ""
    return f"; its SM clock was {own:,.0f} of {usual:,.0f} MHz in this step"


def find_falling_clocks(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find steps in which all ranks compute longer while the clocks of their GPUs fell; slow ranks have their own findings."""
    if (
        evidence.step_count < _LEAST_STEPS
        or not evidence.has_steps
        or not evidence.training.batches.is_empty()
    ):
        return []
    computes = evidence.lane_steps.select("lane", "step", value=pl.col("compute_ns").cast(pl.Float64))
    per_step = computes.group_by("step").agg(pl.col("value").median()).sort("step")
    lowest = to_float(per_step["value"].quantile(0.25, "nearest"))
    slow = per_step.filter(pl.col("value") > (1 + _LEAST_EXCESS) * lowest)["step"].to_list()
    if not lowest or not slow or len(slow) == evidence.step_count:
        return []
    is_slow = pl.col("step").is_in(slow)
    per_lane = evidence.clocks.group_by("lane").agg(
        slow_mhz=pl.col("clock_mhz").filter(is_slow).median(),
        usual_mhz=pl.col("clock_mhz").filter(~is_slow).median(),
    )
    fallen = per_lane.filter(pl.col("slow_mhz") < _LOW * pl.col("usual_mhz"))
    lane_count = evidence.training.lanes.height
    if fallen.height <= lane_count / 2:
        return []
    slow_mhz, usual_mhz = (to_float(fallen[name].median()) for name in ("slow_mhz", "usual_mhz"))
    excess = to_float(per_step.filter(is_slow)["value"].median()) / to_float(
        per_step.filter(~is_slow)["value"].median()
    )
    _, longer_ns = evidence.compare_steps(slow)
    gain_ns = min(longer_ns, (excess - 1) * lowest) * len(slow) / evidence.step_count
    when, since = describe_steps(slow, evidence.spans["step"].to_list())
    fall = usual_mhz / slow_mhz - 1
    is_explained = _LEAST_OF_RATIO * fall <= excess - 1 <= _MOST_OF_RATIO * fall
    many = "the GPU computes" if lane_count == 1 else f"{fallen.height:,} of {lane_count:,} GPUs compute"
    return [
        Finding(
            kind="gpu_clock",
            text=f"{many} {format_share(excess - 1)} longer {when},"
            f" {'as' if is_explained else 'perhaps because'} SM clocks fell from {usual_mhz:,.0f} to {slow_mhz:,.0f} MHz"
            f" (about {format_time(gain_ns)} per step on average)",
            confidence="likely" if is_explained else "guess",
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=evidence.share(gain_ns),
            since_step=since,
            step=slow[0] if len(slow) == 1 else None,
            excess_fraction=excess - 1,
            sample_count=len(slow),
        )
    ]


def _median(clocks: pl.DataFrame, *conditions: pl.Expr) -> float:
    """Return the median clock of some lanes and steps; 0 without any."""
    return to_float(clocks.filter(*conditions)["clock_mhz"].median())
