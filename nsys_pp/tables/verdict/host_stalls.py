"""Findings on hosts that launch late, or load data, in few steps or on few ranks.

The bubbles with the causes `host` and `data` of each rank and step are compared with the median of the rank's other steps or,
of runs with fewer than three steps, of the other ranks. An excess is named if it is at least 5 % of its step and 8 times the
spread of all excesses. It is one stall if one interval is most of it; then the call in which the launching thread was is
named, if the report has it. The gain is the excess, but not more than the step is longer than a step next to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec import Struct

from nsys_pp.frames.training import HOST_CAUSES, Training
from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.verdict.evidence import Evidence, spread_of
from nsys_pp.tables.verdict.hosts import describe_hosts, describe_others, describe_stack
from nsys_pp.tables.verdict.names import name_host
from nsys_pp.tables.verdict.profiler import has_flush_beside
from nsys_pp.tables.verdict.requests import may_wait_for_requests
from nsys_pp.tables.verdict.wording import cut_name, describe_steps, format_share, format_time, join_names

LEAST_SHARE = 0.05
"""Least share of its step."""
_SPREADS = 8
_LEAST_PART = 0.5  # of the excess in one interval, and of the interval in one call
_MOST_SINGLE = 3  # stalls that are named one by one


class _Stall(Struct, frozen=True, kw_only=True):
    """Late launches of a rank in a step."""

    lane: int
    step: int
    cause: str
    excess_ns: float
    usual_ns: float
    gain_ns: float
    longest_ns: int
    start_ns: int
    end_ns: int

    @property
    def is_single(self) -> bool:
        """Whether one interval is most of it."""
        return self.longest_ns >= _LEAST_PART * self.excess_ns


class Activity(Struct, frozen=True, kw_only=True):
    """Activity of a host.

    Attributes:
        name: Name of the call or range.
        words: The name with its kind, for a sentence.
        is_call: It is a call, not a range.
    """

    name: str
    words: str
    is_call: bool


def find_host_stalls(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find hosts that launch late or load data; ranks with the same steps are one finding, and so are many stalls."""
    if not evidence.has_steps or not evidence.step_ns:
        return []
    stalls = _list_stalls(evidence)
    if not evidence.training.batches.is_empty():
        stalls = [s for s in stalls if not may_wait_for_requests(evidence, s.lane, s.start_ns, s.end_ns)]
    if not stalls:
        return []
    groups: dict[tuple[str, tuple[int, ...]], dict[int, list[_Stall]]] = {}
    for lane in sorted({stall.lane for stall in stalls}):
        of_lane = [stall for stall in stalls if stall.lane == lane]
        steps = tuple(sorted({stall.step for stall in of_lane}))
        groups.setdefault((of_lane[0].cause, steps), {})[lane] = of_lane
    if len(groups) > _MOST_SINGLE:
        return [_describe_many(evidence, stalls)]
    return [
        _describe_lane(evidence, *by_lane.values())
        if len(by_lane) == 1
        else _describe_many(evidence, [stall for of_lane in by_lane.values() for stall in of_lane])
        for by_lane in groups.values()
    ]


def _list_stalls(evidence: Evidence) -> list[_Stall]:
    """List the ranks and steps with late launches, by descending gain."""
    found = []
    for cause in HOST_CAUSES:
        column = f"{cause}_ns"
        times = evidence.lane_steps.select("lane", "step", value=pl.col(column).cast(pl.Float64))
        over = "lane" if evidence.step_count >= 3 else "step"
        usual = pl.col("value").median().over(over)
        if evidence.step_count < 3 and evidence.training.lanes.height < 3:
            return []
        times = times.with_columns(usual=usual).with_columns(excess=pl.col("value") - pl.col("usual"))
        spread = spread_of(times["excess"])
        times = times.join(evidence.measure_excess(), on="step").filter(
            pl.col("excess") > pl.max_horizontal(_SPREADS * spread, LEAST_SHARE * pl.col("span_ns"))
        )
        if times.is_empty():
            continue
        longest = _find_longest(evidence.training, cause)
        rows = times.join(longest, on=["lane", "step"]).sort("lane", "step")
        for row in rows.iter_rows(named=True):
            lost = row["excess"] if row["longer_ns"] is None else min(row["excess"], row["longer_ns"])
            found.append(
                _Stall(
                    lane=row["lane"],
                    step=row["step"],
                    cause=cause,
                    excess_ns=row["excess"],
                    usual_ns=row["usual"],
                    gain_ns=lost / evidence.step_count,
                    longest_ns=row["end_ns"] - row["start_ns"],
                    start_ns=row["start_ns"],
                    end_ns=row["end_ns"],
                )
            )
    least_ns = LEAST_SHARE * evidence.step_ns / 2 / evidence.step_count  # the step did not wait for the rest
    return sorted((s for s in found if s.gain_ns >= least_ns), key=lambda stall: (-stall.gain_ns, stall.lane))


def _find_longest(training: Training, cause: str) -> pl.DataFrame:
    """Find the longest interval with a cause, of each lane and step: lane, step, start_ns, end_ns."""
    length = pl.col("end_ns") - pl.col("start_ns")
    return (
        training.lane_states.select("lane", "step", "start_ns", "end_ns", "cause")
        .filter(pl.col("cause") == cause)
        .drop("cause")
        .sort(length, descending=True)
        .unique(["lane", "step"], keep="first", maintain_order=True)
    )


def _describe_lane(evidence: Evidence, stalls: Sequence[_Stall]) -> Finding:
    """Describe the late launches of a rank."""
    worst = stalls[0]
    label, steps = evidence.labels[worst.lane], sorted({stall.step for stall in stalls})
    when, since = describe_steps(steps, evidence.spans["step"].to_list())
    gain_ns = sum(stall.gain_ns for stall in stalls)
    call = name_activity(evidence.training, worst.lane, worst.start_ns, worst.end_ns)
    call = call if worst.is_single else None
    length = format_time(worst.longest_ns if worst.is_single else worst.excess_ns)
    up_to = "up to " if len(stalls) > 1 else ""
    host = f"{label}'s host{name_host(evidence, worst.lane)}"
    if worst.cause == "data":
        text = f"{label} waited {up_to}{length} for data {when}"
    elif worst.is_single:
        text = f"{host} stalled {up_to}{length} {when}"
    else:
        text = f"{host} launched late {when}: the GPU waited {up_to}{length}"
    if call is not None:
        text += f", in {call.words}"
    text += _describe_activity(evidence, stalls, call)
    is_beside = any(has_flush_beside(evidence, stall.lane, stall.step, stall.excess_ns) for stall in stalls)
    if is_beside:
        text += "; nsys flushed its buffers on another thread meanwhile, which may have held it"
    return Finding(
        kind="host",
        text=f"{text} ({_describe_cost(evidence, stalls)})",
        confidence="guess" if is_beside else "certain",
        subject="rank",
        gain_ns=gain_ns,
        gain_fraction=evidence.share(gain_ns),
        label=label,
        lane=worst.lane,
        stage=evidence.training.lanes.filter(lane=worst.lane)["stage"].item(),
        step=steps[0] if len(steps) == 1 else None,
        since_step=since,
        value_ns=worst.usual_ns + worst.excess_ns,
        usual_ns=worst.usual_ns,
        sample_count=len(stalls),
        call=call.name if call is not None else None,
    )


def _describe_activity(evidence: Evidence, stalls: Sequence[_Stall], call: Activity | None) -> str:
    """Describe the activities of the host in the steps of stalls; with a named call, only its stack, and other threads."""
    lanes, steps = sorted({stall.lane for stall in stalls}), {stall.step for stall in stalls}
    causes = {stall.cause for stall in stalls}
    if call is not None and call.is_call:
        stack = describe_stack(evidence, lanes, causes, steps)
        return f"{stack}{describe_others(evidence, lanes, causes, steps)}"
    return describe_hosts(evidence, lanes, causes, steps)


def _describe_cost(evidence: Evidence, stalls: Sequence[_Stall]) -> str:
    """Describe the time that steps are longer."""
    lost = sum(stall.gain_ns for stall in stalls) * evidence.step_count
    if len({stall.step for stall in stalls}) == 1:
        return f"the step is {format_time(lost)} longer"
    return f"{format_time(lost)} in all, {format_share(lost / evidence.step_count / evidence.step_ns)} of the steps"


def _describe_many(evidence: Evidence, stalls: Sequence[_Stall]) -> Finding:
    """Describe late launches of many ranks."""
    by_step: dict[int, _Stall] = {}
    for stall in stalls:
        if stall.step not in by_step or by_step[stall.step].gain_ns < stall.gain_ns:
            by_step[stall.step] = stall
    gain_ns = sum(stall.gain_ns for stall in by_step.values())
    lanes = sorted({stall.lane for stall in stalls})
    when, since = describe_steps(sorted(by_step), evidence.spans["step"].to_list())
    is_all = len(lanes) == evidence.training.lanes.height
    names = "all ranks" if is_all else join_names([evidence.labels[lane] for lane in lanes])
    worst = max(stalls, key=lambda stall: stall.excess_ns)
    verb, longest = "launched late", worst.excess_ns
    if worst.cause == "data":
        verb = "waited for data"
    elif all(stall.is_single for stall in stalls):
        verb = "stalled"
    calls = {name_activity(evidence.training, each.lane, each.start_ns, each.end_ns) for each in stalls}
    call = calls.pop() if len(calls) == 1 else None
    return Finding(
        kind="host",
        text=f"hosts of {names} {verb} up to {format_time(longest)} {when}"
        f"{f', in {call.words}' if call is not None else ''}{_describe_activity(evidence, stalls, call)} ({_describe_cost(evidence, [*by_step.values()])})",
        confidence="certain",
        subject="run",
        gain_ns=gain_ns,
        gain_fraction=evidence.share(gain_ns),
        since_step=since,
        step=next(iter(by_step)) if len(by_step) == 1 else None,
        value_ns=longest,
        sample_count=len(stalls),
        call=call.name if call is not None else None,
        label=join_names([evidence.labels[lane] for lane in lanes]) if not is_all else None,
        lane=worst.lane,
    )


def name_activity(training: Training, lane: int, start_ns: int, end_ns: int) -> Activity | None:
    """Name the call, or else the range, in which the launching thread was during most of an interval without kernels."""
    least = _LEAST_PART * (end_ns - start_ns)
    rows = training.gaps.filter(
        pl.col("lane") == lane,
        pl.col("start_ns") < end_ns,
        pl.col("end_ns") > start_ns,
        pl.col("time_ns") >= least,
    )
    for activity, form in (("os_call", "`{}()`"), ("call", "`{}`"), ("range", "range `{}`")):
        names = rows.filter(pl.col("activity") == activity).sort("time_ns", descending=True)["name"]
        if len(names) and names[0]:
            return Activity(
                name=str(names[0]), words=form.format(cut_name(str(names[0]))), is_call=activity != "range"
            )
    return None
