"""Findings about hosts: stalls, waits for requests or data, idle GPUs, overhead of nsys, missing data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import polars as pl
from msgspec import Struct

from nsys_pp.frames.clock import describe_groups, number_comparable
from nsys_pp.frames.roster import GIVEN_LAYOUT
from nsys_pp.frames.training import (
    BUBBLE_CAUSES,
    CAUSE_WORDS,
    HOST_ACTIVITIES,
    HOST_ACTIVITY_COLUMNS,
    HOST_CAUSES,
    SCHEDULED_KINDS,
    Training,
)
from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.analysis import FEWEST, Evidence
from nsys_pp.tables.noise import MOST, noise_of, to_float
from nsys_pp.tables.words import (
    cut_name,
    describe_steps,
    format_share,
    format_time,
    join_names,
    join_ranks,
    name_lane,
    predict_gain,
)
from nsys_pp.training.lanes import find_stages_of_warm_ups
from nsys_pp.training.whatif import MOST_UNKNOWN, Change, WhatIf, Work
from nsys_pp.units import format_count

# Least share of a single step, and of a step in a cause of all steps.
LEAST_SHARE = 0.05
# Least share of a time that is named: of idle time, of a call, or of a stack.
LEAST_PART = 0.1
_MOST_NAMED = 2  # calls, or causes
_MOST_FUNCTIONS, _MOST_LANES = 3, 4
_CALLER = " < "


def describe_hosts(
    evidence: Evidence,
    lanes: Sequence[int],
    causes: Collection[str],
    steps: Collection[int],
    *,
    when: str = "meanwhile",
    known: Activity | None = None,
) -> str:
    """Describe the activities of the launching threads of lanes in bubbles of some causes.

    "" where nothing is recorded, or nothing clear.

    Args:
        evidence: The run.
        lanes: The lanes; of many, those with most such time count.
        causes: "host", "data".
        steps: The steps.
        when: Words for the time of the bubbles.
        known: Activity that the sentence has named: of a call only the stack is described, of a range the
            calls.
    """
    late = (
        evidence.lane_steps.filter(pl.col("lane").is_in(list(lanes)))
        .group_by("lane")
        .agg(late_ns=pl.sum_horizontal(*(pl.col(f"{cause}_ns").sum() for cause in causes)))
    )
    chosen = late.sort("late_ns", "lane", descending=[True, False]).head(_MOST_LANES)["lane"].to_list()
    rows = evidence.read_hosts(chosen).filter(
        pl.col("cause").cast(pl.String).is_in(list(causes)), pl.col("step").is_in(list(steps))
    )
    whole = to_float(rows.filter(pl.col("activity").is_null())["time_ns"].sum())
    if not whole:
        return ""
    stack = ""
    stacks = _sum_names(rows, "stack")
    samples = _sum_names(rows, "sample", "count")
    count = to_float(samples["count"].sum())
    if to_float(stacks["time_ns"].max()) >= LEAST_PART * whole:
        named = [one for one in stacks["name"][0].split(_CALLER)[1:] if not one.startswith(("[", "0x"))]
        caller = cut_name(_CALLER.join(named[:_MOST_FUNCTIONS]))
        stack = f", called from `{caller}`" if caller else ""
    elif count * LEAST_PART >= 1 and samples["count"][0] >= LEAST_PART * count:  # fewer samples show no share
        share = samples["count"][0] / count
        stack = f", with {format_share(share)} of samples in `{cut_name(samples['name'][0])}`"
    if known is not None and known.is_call:
        return stack
    words = [
        f"{format_share(time_ns / whole)} in range `{cut_name(name)}`"
        for name, time_ns in _sum_names(rows, "range").select("name", "time_ns").head(1).iter_rows()
        if time_ns >= MOST * whole and (known is None or known.name is None)
    ]
    stack = "" if words else stack  # a range says enough
    words += [f"{format_share(share)} in {name}" for share, name in _list_calls(rows, whole)]
    running = to_float(_sum_names(rows, "state").filter(name="running")["time_ns"].sum()) / whole
    if not words and running >= MOST:
        words = [f"{format_share(running)} running on a processor"]
    if not words and not stack:
        return ""
    who, verb = ("the launching thread", "was") if len(lanes) == 1 else ("launching threads", "were")
    return f"; {when} {who}{f' {verb} ' if words else ''}{' and '.join(words)}{stack}"


def _list_calls(rows: pl.DataFrame, whole: float) -> list[tuple[float, str]]:
    """List the calls with the largest shares; kinds overlap, so all of them have at most the whole time."""
    found = [
        (time_ns / whole, f"`{cut_name(name)}{'()' if kind == 'OS call' else ''}`")
        for kind in ("OS call", "call")
        for name, time_ns in _sum_names(rows, kind).select("name", "time_ns").head(_MOST_NAMED).iter_rows()
    ]
    listed: list[tuple[float, str]] = []
    for call in sorted(found, reverse=True):
        if call[0] >= LEAST_PART and sum(share for share, _ in listed) + call[0] <= 1.005:
            listed.append(call)
    return listed[:_MOST_NAMED]


def _sum_names(rows: pl.DataFrame, activity: str, value: str = "time_ns") -> pl.DataFrame:
    """Sum the activities of a kind by name, the longest first: name, and the value."""
    return _sum_by_name(rows.filter(pl.col("activity") == activity), value)


def _sum_by_name(rows: pl.DataFrame, value: str) -> pl.DataFrame:
    return rows.group_by("name").agg(pl.col(value).sum()).sort(value, "name", descending=[True, False])


_UNKNOWN_WORK = ("waiting_ns", "other_ns")  # activities of a host that may only wait for requests


def list_gaps(evidence: Evidence) -> pl.DataFrame:
    """List the gaps before batches.

    Returns:
        lane, start_ns, end_ns, idle_ns (the part that may be a wait for requests), and
        `HOST_ACTIVITY_COLUMNS` without this part.
    """
    batches = evidence.training.batches.drop_nulls(["start_ns", "end_ns"]).sort("lane", "start_ns")
    is_in_flight = pl.col("kind").cast(pl.String).is_in(["decode", "mixed"]).fill_null(value=False)
    in_flight = is_in_flight.shift(-1).over("lane").fill_null(value=False)
    return (
        batches.with_columns(in_flight=in_flight)
        .drop_nulls("gap_ns")
        .select(
            "lane",
            start_ns="end_ns",
            end_ns=pl.col("end_ns") + pl.col("gap_ns"),
            idle_ns=pl.when("in_flight").then(0).otherwise(pl.sum_horizontal(*_UNKNOWN_WORK)),
            **{
                name: pl.when("in_flight").then(name).otherwise(0) if name in _UNKNOWN_WORK else pl.col(name)
                for name in HOST_ACTIVITY_COLUMNS
            },
        )
    )


def may_wait_for_requests(evidence: Evidence, lane: int, start_ns: int, end_ns: int) -> bool:
    """Return whether the GPU of a lane may have had no request in most of an interval."""
    gaps = list_gaps(evidence).filter(
        pl.col("lane") == lane, pl.col("start_ns") < end_ns, pl.col("end_ns") > start_ns
    )
    inside = pl.min_horizontal("end_ns", pl.lit(end_ns)) - pl.max_horizontal("start_ns", pl.lit(start_ns))
    # of a gap that reaches out of the interval, the same share
    idle = gaps.select((pl.col("idle_ns") * inside / (pl.col("end_ns") - pl.col("start_ns"))).sum()).item()
    return to_float(idle) >= MOST * (end_ns - start_ns)


def describe_waits_for_requests(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe the time in which servers may have waited for requests; other runs have none."""
    batches = evidence.training.batches.drop_nulls(["start_ns", "end_ns"])
    gaps = list_gaps(evidence)
    whole = to_float((batches["end_ns"] - batches["start_ns"]).sum()) + to_float(batches["gap_ns"].sum())
    idle = to_float(gaps["idle_ns"].sum())
    if idle / max(whole, 1) < LEAST_PART:
        return []
    longest = to_float(gaps["idle_ns"].max())
    return [
        Finding(
            kind="requests",
            text=f"GPUs had no batch {format_share(idle / whole)} of the time before new requests, up to "
            f"{format_time(longest)}, while hosts"
            " waited or did nothing that is recorded: there may have been no request, as nsys does not "
            "record how many are queued",
            confidence="guess",
            subject="run",
            value_ns=idle / gaps.height,
            sample_count=gaps.height,
        )
    ]


_WAITS = {  # causes that keep a GPU waiting for its host, and what it waits for
    "host": "launches",
    "data": "data",
    "loading": "the loading of kernels (first use)",
    "profiler": "threads that nsys itself holds",
}
_MOST_SINGLE = 3  # stalls that are named one by one


class _Stall(Struct, frozen=True, kw_only=True):
    lane: int
    step: int
    cause: str
    excess_ns: float
    usual_ns: float
    longer_ns: float  # of the step, or the excess where no other step shows it
    gain_ns: float
    longest_ns: int
    start_ns: int
    end_ns: int

    @property
    def is_of_nsys(self) -> bool:
        """Whether nsys caused it, and not the program."""
        return self.cause == "profiler"

    @property
    def is_single(self) -> bool:
        """Whether one interval is most of it."""
        return self.longest_ns >= MOST * self.excess_ns


class Activity(Struct, frozen=True, kw_only=True):
    """Activity of a host; without any, it is unknown.

    Attributes:
        name: Name of the call or range; None: unknown.
        words: The name with its kind, for the end of a sentence.
        is_call: It is a call, not a range.
    """

    name: str | None = None
    words: str = ""
    is_call: bool = False


def find_host_stalls(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find hosts that launch late or load data.

    Ranks with the same steps are one finding, and so are many stalls.
    """
    if not evidence.has_steps:
        return []
    stalls = _list_stalls(evidence)
    if not evidence.training.batches.is_empty():
        stalls = [s for s in stalls if not may_wait_for_requests(evidence, s.lane, s.start_ns, s.end_ns)]
    groups: dict[tuple[str, tuple[int, ...]], dict[int, list[_Stall]]] = {}
    for lane, is_of_nsys in sorted({(stall.lane, stall.is_of_nsys) for stall in stalls}):
        of_lane = [stall for stall in stalls if (stall.lane, stall.is_of_nsys) == (lane, is_of_nsys)]
        steps = tuple(sorted({stall.step for stall in of_lane}))
        groups.setdefault((of_lane[0].cause, steps), {})[lane] = of_lane
    if len(groups) > _MOST_SINGLE:
        return [_describe_stalls(evidence, stalls)]
    return [
        _describe_stalls(evidence, [stall for of_lane in by_lane.values() for stall in of_lane])
        for by_lane in groups.values()
    ]


def _list_stalls(evidence: Evidence) -> list[_Stall]:
    if evidence.step_count < FEWEST and evidence.training.lanes.height < FEWEST:
        return []
    length, count = pl.col("end_ns") - pl.col("start_ns"), evidence.step_count
    # what is usual is the median of the steps of a rank, or of the ranks in one of a few steps
    usual = pl.col("value").median().over("lane" if count >= FEWEST else "step")
    found = []
    for cause in _WAITS:
        times = evidence.lane_steps.select("lane", "step", value=pl.col(f"{cause}_ns").cast(pl.Float64))
        times = times.with_columns(usual_ns=usual, excess_ns=pl.col("value") - usual)
        least = pl.max_horizontal(pl.lit(noise_of(times["excess_ns"])), LEAST_SHARE * pl.col("span_ns"))
        longest = (
            evidence.training.lane_states.filter(pl.col("cause") == cause)
            .sort(length, descending=True)
            .unique(["lane", "step"], keep="first", maintain_order=True)
            .select("lane", "step", "start_ns", "end_ns", longest_ns=length)
        )
        rows = (
            times.join(evidence.measure_excess(), on="step")
            .filter(pl.col("excess_ns") > least)
            .join(longest, on=["lane", "step"])
            .with_columns(
                cause=pl.lit(cause),
                longer_ns=pl.coalesce("longer_ns", "excess_ns"),
                gain_ns=pl.min_horizontal("excess_ns", "longer_ns") / count,
            )
            .sort("lane", "step")
        )
        found += [_Stall(**row) for row in rows.select(_Stall.__struct_fields__).iter_rows(named=True)]
    return sorted(found, key=lambda stall: (-stall.gain_ns, stall.lane))


def _describe_stalls(evidence: Evidence, stalls: Sequence[_Stall]) -> Finding:
    by_step = {stall.step: stall for stall in sorted(stalls, key=lambda stall: stall.gain_ns)}  # the largest
    lanes = sorted({stall.lane for stall in stalls})
    worst = max(stalls, key=lambda stall: stall.excess_ns)
    when, limits = describe_steps(evidence, sorted(by_step))
    gain_ns = sum(stall.gain_ns for stall in by_step.values())
    is_one, is_all = len(lanes) == 1, 1 < len(lanes) == evidence.training.lanes.height
    label = join_names([evidence.labels[lane] for lane in lanes])
    names = name_lane(evidence, worst.lane) if is_one else "all ranks" if is_all else label
    host, gpus = ("the host", "the GPU") if is_one else ("hosts", "GPUs")
    length = format_time(worst.longest_ns if worst.is_single else worst.excess_ns)
    length = f"up to {length}" if len(stalls) > 1 else length
    calls = {
        name_activity(evidence.training, stall.lane, stall.start_ns, stall.end_ns)
        for stall in stalls
        if stall.is_single
    }
    call = calls.pop() if len(calls) == 1 else Activity()
    if worst.cause != "host":
        text = f"{names} waited {length} for {_WAITS[worst.cause]} {when}"
    elif worst.is_single:
        text = f"{host} of {names} stalled {length} {when}"
    else:
        text = f"{host} of {names} launched late {when}: {gpus} waited {length}"
    text += call.words
    text += describe_hosts(evidence, lanes, {stall.cause for stall in stalls}, by_step, known=call)
    overheads = evidence.training.overheads
    is_beside = any(
        to_float(overheads.filter(lane=stall.lane, step=stall.step)["beside_ns"].sum())
        >= MOST * stall.excess_ns
        for stall in stalls
    )
    if worst.is_of_nsys:
        text += _name_overhead(evidence, lanes, [*by_step])
    if is_beside:
        text += "; nsys flushed its buffers on another thread meanwhile, which may have held it"
    return Finding(
        kind="profiler" if worst.is_of_nsys else "host",
        text=f"{text} ({_describe_cost(evidence, [*by_step.values()])})",
        confidence="guess" if is_beside else "certain",
        subject="rank" if is_one else "run",
        gain_ns=gain_ns,
        gain_fraction=evidence.share(gain_ns),
        label=None if is_all else label,
        lane=worst.lane,
        stage=evidence.training.lanes.filter(lane=worst.lane)["stage"].item() if is_one else None,
        **limits,
        value_ns=worst.usual_ns + worst.excess_ns,
        usual_ns=worst.usual_ns,
        sample_count=len(stalls),
        call=call.name,
    )


def _describe_cost(evidence: Evidence, stalls: Sequence[_Stall]) -> str:
    if len({stall.step for stall in stalls}) == 1:
        return f"the step is {format_time(stalls[0].longer_ns)} longer"
    lost = sum(stall.gain_ns for stall in stalls)
    steps = {stall.step for stall in stalls}
    least = "at least " * any(step + 1 in steps for step in steps)  # a gain is beyond the steps beside it
    return (
        f"{least}{format_time(lost * evidence.step_count)} in all, {format_share(lost / evidence.step_ns)} of"
        " the steps"
    )


def _name_overhead(evidence: Evidence, lanes: Sequence[int], steps: Sequence[int]) -> str:
    """Name the longest overhead of nsys on some lanes; "" where it has no name."""
    named = _sum_by_name(
        evidence.training.overheads.filter(
            "is_of_profiler",
            pl.col("name").is_not_null(),
            pl.col("lane").is_in(lanes),
            pl.col("step").is_in(steps),
        ),
        "time_ns",
    )
    return f", most in `{cut_name(named['name'][0])}`" if named["time_ns"].sum() else ""


def name_activity(training: Training, lane: int, start_ns: int, end_ns: int) -> Activity:
    """Name the call, or else the range.

    In which the launching thread was during most of an interval without kernels.
    """
    least = MOST * (end_ns - start_ns)
    rows = training.gaps.filter(
        pl.col("lane") == lane,
        pl.col("start_ns") < end_ns,
        pl.col("end_ns") > start_ns,
        pl.col("time_ns") >= least,
        pl.col("name") != "",
    ).sort("time_ns", descending=True)
    for activity, form in (("os_call", "`{}()`"), ("call", "`{}`"), ("range", "range `{}`")):
        names = rows.filter(pl.col("activity") == activity)["name"].cast(pl.String)
        if len(names):
            words = f", in {form.format(cut_name(names[0]))}"
            return Activity(name=names[0], words=words, is_call=activity != "range")
    return Activity()


_LEAST_CAUSE = 0.02
_LONG_GAP = 0.25  # of the idle time


def find_idle_time(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find idle time of GPUs."""
    if evidence.has_passes and evidence.covers_compute:
        return [*_find_host_bound(evidence), *_find_ends(evidence)]
    if len(evidence.training.batches):
        return _find_gaps_of_batches(evidence)
    return _find_idle(evidence)


def _find_host_bound(evidence: Evidence) -> list[Finding]:
    """Find late launches and waits for data in all steps; stalls have their own finding.

    Of all ranks, or of those in which they are that much longer than in the others.
    """
    lanes, found = evidence.training.lanes, []
    for cause, words in _WAITS.items():
        # single stalls raise the mean, and short steps between long ones the median
        time = pl.col(f"{cause}_ns")
        shortest = pl.min_horizontal(time.mean(), time.median())
        times = evidence.lane_steps.group_by("lane").agg(time_ns=shortest).sort("lane")
        usual_ns, mean_ns = to_float(times["time_ns"].median()), to_float(times["time_ns"].mean())
        if evidence.share(usual_ns) >= LEAST_SHARE:
            subject = "GPUs wait" if lanes.height > 1 else "the GPU waits"
            slow, value_ns = times, mean_ns
        else:
            slow = times.filter(pl.col("time_ns") - usual_ns >= LEAST_SHARE * evidence.step_ns)
            value_ns = to_float(slow["time_ns"].max()) - usual_ns
            names = [name_lane(evidence, lane) for lane in slow["lane"]]
            subject = f"{join_names(names)} wait{'s' * (len(names) == 1)}" if names else ""
        if evidence.share(value_ns) < LEAST_SHARE or slow.is_empty():
            continue
        members = slow["lane"].to_list()
        others = times.filter(~pl.col("lane").is_in(members))["lane"].to_list()
        gain = predict_gain(evidence, partial(_hasten, members, others, cause), value_ns)
        limit = ": the hosts are the limit" if cause == "host" and slow.height == lanes.height else ""
        hosts = describe_hosts(evidence, members, [cause], evidence.spans["step"].to_list())
        shorter = f"; without it a step is {gain.describe()} shorter" if others else ""
        one = lanes.filter(lane=members[0]).row(0, named=True) if len(members) == 1 < lanes.height else None
        found.append(
            Finding(
                kind="idle",
                text=f"{subject} for {words} {format_share(evidence.share(value_ns))} of a step"
                f"{', longer than the others' * bool(others)}{limit}"
                f" ({format_time(value_ns)} of {format_time(evidence.step_ns)}{shorter}){hosts}",
                confidence="certain",
                subject="run" if one is None else "rank",
                **gain.facts,
                label=None if one is None else one["label"],
                lane=None if one is None else one["lane"],
                stage=None if one is None else one["stage"],
                value_ns=value_ns,
                sample_count=evidence.lane_steps.height,
            )
        )
    return found


def _hasten(lanes: Sequence[int], others: Sequence[int], cause: str, run: WhatIf) -> Change:
    """Let lanes wait as long for their host as the others do; not at all, without others."""
    work: Work = "data" if cause == "data" else "host"
    return (
        run.heal_time(lanes, others, work=work) if others else run.scale(dict.fromkeys(lanes, 0.0), work=work)
    )


def _find_ends(evidence: Evidence) -> list[Finding]:
    """Find the time in which steps go on, and no GPU has work left: of a usual step, as for other causes."""
    ends = evidence.training.steps.select("lane", "step", "end_ns")
    last_ns = pl.col("end_ns") - pl.col("idle_ns")
    times = (
        evidence.lane_steps.join(ends, on=["lane", "step"])
        .group_by("step")
        .agg(time_ns=(pl.col("end_ns").min() - last_ns.max()).clip(0))["time_ns"]
    )
    lanes, value_ns = evidence.training.lanes, min(to_float(times.mean()), to_float(times.median()))
    if evidence.share(value_ns) < LEAST_SHARE or number_comparable(lanes).n_unique() > 1:
        return []
    subject, their = ("the GPU has", "its") if lanes.height == 1 else ("GPUs have", "their")
    others = ", or ranks without a report," if describe_missing(evidence, ()) else ""
    text = (
        f"{subject} no work left {format_share(evidence.share(value_ns))} of a step, from {their} last"
        f" operation to the end of the step: the hosts{others} are the limit"
        f" ({format_time(value_ns)} of {format_time(evidence.step_ns)})"
    )
    return [
        Finding(
            kind="idle",
            text=text,
            confidence="certain",
            subject="run",
            gain_ns=value_ns,
            gain_fraction=evidence.share(value_ns),
            value_ns=value_ns,
            sample_count=evidence.lane_steps.height,
        )
    ]


def _find_gaps_of_batches(evidence: Evidence) -> list[Finding]:
    """Find the gaps between iterations of inference, with the activities of the host."""
    batches = evidence.training.batches.drop_nulls(["start_ns", "gap_ns"])
    time = to_float((batches["end_ns"] - batches["start_ns"]).sum())
    gaps = to_float(batches["gap_ns"].sum())
    of_hosts = list_gaps(evidence)  # waits for requests are no fault of a host
    idle = to_float(of_hosts["idle_ns"].sum())
    share = (gaps - idle) / max(time + gaps, 1)
    if share < LEAST_PART:
        return []
    texts = _name_largest(
        [
            (to_float(of_hosts[column].sum()) / (time + gaps), name)
            for name, column in zip(HOST_ACTIVITIES, HOST_ACTIVITY_COLUMNS, strict=True)
        ]
    )
    gain_ns = (gaps - idle) / batches.height
    period_ns = (time + gaps) / batches.height
    return [
        Finding(
            kind="idle",
            text=f"GPUs are idle between iterations {format_share(share)} of the time{texts and f': {texts}'}"
            f" ({format_time(gain_ns)} of {format_time(period_ns)} per iteration)",
            confidence="certain",
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=share,
            value_ns=gain_ns,
            sample_count=batches.height,
        )
    ]


def _find_idle(evidence: Evidence) -> list[Finding]:
    """Find the time without compute of a report without a training, with its main causes and longest gap.

    Where steps miss much of the compute it is that of the capture, and its causes are not known.
    """
    steps, is_of_steps = evidence.lane_steps, evidence.covers_compute
    rows = steps if is_of_steps else evidence.training.coverage.rename({"time_ns": "span_ns"})
    span = to_float(rows["span_ns"].sum())
    times = {cause: to_float(steps[f"{cause}_ns"].sum()) for cause in BUBBLE_CAUSES if is_of_steps}
    idle = sum(times.values()) if is_of_steps else span - to_float(rows["compute_ns"].sum())
    if idle / max(span, 1) < LEAST_PART:
        return []
    merged: dict[str, float] = {}
    for cause, time_ns in times.items():
        words = CAUSE_WORDS[cause.removesuffix("_transfer")]
        merged[words] = merged.get(words, 0.0) + time_ns / span
    texts = _name_largest([(share, words) for words, share in merged.items()])
    lanes = evidence.training.lanes["lane"].to_list()
    value_ns = idle / max(steps.height if is_of_steps else len(lanes), 1)
    has_gain = evidence.has_steps and is_of_steps  # a capture may hold what occurs once, as a program's start
    whole = "a step" if has_gain else f"the capture, {describe_window(evidence)}"
    name = "the GPU is" if len(lanes) == 1 else "GPUs are"
    late = [cause for cause in HOST_CAUSES if times.get(cause, 0.0) >= _LEAST_CAUSE * span]
    numbers = evidence.spans["step"].to_list()
    hosts = describe_hosts(evidence, lanes, late, numbers, when="in late launches") if late else ""
    return [
        Finding(
            kind="idle",
            text=f"{name} without compute {format_share(idle / span)} of {whole}{texts and f': {texts}'}"
            f"{_describe_longest(evidence, idle)}{hosts}",
            confidence="certain",
            subject="run",
            gain_ns=has_gain * value_ns,
            gain_fraction=has_gain * idle / span,
            value_ns=value_ns,
            sample_count=rows.height,
        )
    ]


def describe_window(evidence: Evidence) -> str:
    """Describe the time that a sentence about the capture is of: of each GPU, or of each of several."""
    of_lane = evidence.training.coverage.group_by("lane").agg(pl.col("time_ns").sum())["time_ns"]
    times = dict.fromkeys(format_time(to_float(time)) for time in (of_lane.min(), of_lane.max()))
    each = " on each GPU" if len(of_lane) > 1 else ""
    return f"{' to '.join(times)} from the first to the last GPU operation{each}"


def _describe_longest(evidence: Evidence, idle_ns: float) -> str:
    """Describe the longest gap, as far as it is in a step, if it is much of the idle time; else ""."""
    gaps = evidence.training.gaps
    if evidence.covers_compute:
        gaps = gaps.join(
            evidence.training.steps.select("lane", "step", since="start_ns"), on=["lane", "step"]
        ).with_columns(start_ns=pl.max_horizontal("start_ns", "since"))
    length = pl.col("end_ns") - pl.col("start_ns")
    gaps = gaps.filter(length >= _LONG_GAP * idle_ns)
    if gaps.is_empty():
        return ""
    lane, start, end = gaps.sort(-length, "start_ns", "lane").select("lane", "start_ns", "end_ns").row(0)
    activity = name_activity(evidence.training, lane, start, end)
    at = format_time(start - evidence.training.zero_ns)
    return f"; the longest gap is {format_time(end - start)}, at {at}{activity.words}"


def _name_largest(shares: Sequence[tuple[float, str]]) -> str:
    largest = sorted((item for item in shares if item[0] >= _LEAST_CAUSE), reverse=True)[:_MOST_NAMED]
    return ", ".join(f"{words} {format_share(share)}" for share, words in largest)


def describe_clocks(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe the agreement of clocks; runs with a single clock have no such finding."""
    lanes = evidence.training.lanes
    if lanes["clock"].n_unique() < 2:
        return []
    if groups := describe_groups(lanes["clock_group"]):
        return [
            Finding(
                kind="clocks",
                text=f"{groups}: waits and transfers between them are unknown",
                confidence="certain",
                subject="clocks",
                sample_count=lanes["clock_group"].n_unique(),
            )
        ]
    unknown = lanes.filter(lanes["bound_ns"].is_null())["clock"].n_unique()
    bounds = lanes["bound_ns"].drop_nulls()
    if bounds.is_empty():
        text = "the error of the clocks is unknown: waits and transfers between them are unknown"
        return [Finding(kind="clocks", text=text, confidence="certain", subject="clocks")]
    bound_ns = to_float(bounds.max())
    text = f"clocks agree within {format_time(bound_ns)}"
    if unknown:
        text += f", except {unknown:,} of unknown error"
    elif evidence.share(bound_ns) > MOST_UNKNOWN:
        text += ": waits and transfers between them are uncertain"
    return [
        Finding(
            kind="clocks",
            text=text,
            confidence="certain",
            subject="clocks",
            bound_ns=int(bound_ns),
            sample_count=lanes["clock"].n_unique(),
        )
    ]


_MOST_OUTSIDE = 0.1  # of the capture, that lies outside the steps


_FEW_KERNELS = 10  # of which no pattern shows


def describe_coverage(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe what steps miss of the capture, or a capture of few kernels; others have no such finding."""
    kernels = int(evidence.training.kernels["count"].sum())
    if not evidence.has_steps and 0 < kernels < _FEW_KERNELS:
        only = format_count(kernels, "kernel")
        return [
            Finding(
                kind="coverage",
                text=f"only {only} ran in the capture: too few to conclude from; record more, after the"
                " warm-up",
                confidence="certain",
                subject="run",
                sample_count=kernels,
            )
        ]
    parts = {row["part"]: row for row in evidence.coverage.iter_rows(named=True)}
    if not evidence.has_steps or "steps" not in parts:
        return []
    held, time = (to_float(parts["steps"][name]) for name in ("compute_fraction", "time_fraction"))
    if evidence.covers_compute and 1 - time < _MOST_OUTSIDE:
        return []
    rest = [
        f"{format_share(parts[part]['time_fraction'])} {place}, of it"
        f" {format_share(to_float(parts[part]['busy_fraction']))} compute"
        for part, place in (
            ("between", "between them"),
            ("before", "before the first one"),
            ("after", "after the last one"),
            ("unknown", "on GPUs without known steps"),
        )
        if part in parts and parts[part]["time_fraction"] >= LEAST_SHARE
    ]
    absent = evidence.training.coverage.filter(part="absent").sort(
        "time_ns", "lane", descending=[True, False]
    )
    if len(absent) and to_float(parts["absent"]["time_fraction"]) >= LEAST_SHARE:
        lane, time_ns = absent.select("lane", "time_ns").row(0)
        rest.append(
            f"{evidence.labels[lane]} has no work for {format_time(time_ns)} in which others have some"
        )
    more = f" ({'; '.join(rest)})" if rest else ""
    count = evidence.training.step_count
    steps = format_count(count, "inferred step" if evidence.is_inferred else "step")
    return [
        Finding(
            kind="coverage",
            text=f"{steps} hold {format_share(held)} of the compute and {format_share(time)} of the"
            f" capture{more}",
            confidence="certain",
            subject="run",
            value_ns=time * to_float(evidence.coverage["time_ns"].sum()),
            sample_count=count,
        )
    ]


def find_time_between(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find the time between steps, in which no step is counted: evaluations, checkpoints.

    Of all lanes, or of some with all steps: the others wait for them inside their steps.
    """
    lanes = (
        evidence.training.coverage.with_columns(
            share=pl.col("time_ns") / pl.col("time_ns").sum().over("lane")
        )
        .filter(part="between")
        .sort("share", descending=True)
    )
    if not evidence.has_steps:
        return []
    is_common = evidence.cover_of("time_fraction", "between") >= LEAST_SHARE
    counts = evidence.training.steps.group_by("lane").len()
    complete = counts.filter(len=evidence.training.step_count)["lane"].implode()
    rows = (
        lanes if is_common else lanes.filter(pl.col("share") >= LEAST_SHARE, pl.col("lane").is_in(complete))
    )
    if rows.is_empty():
        return []
    count = evidence.training.lanes.height if is_common else rows.height
    share, time_ns = (to_float(rows[name].sum()) / count for name in ("share", "time_ns"))
    lane, start_ns, end_ns = max(
        rows.select("lane", "longest_start_ns", "longest_end_ns").iter_rows(),
        key=lambda stretch: stretch[2] - stretch[1],
    )
    busy = to_float(rows["compute_ns"].sum()) / to_float(rows["time_ns"].sum())
    activity = name_activity(evidence.training, lane, start_ns, end_ns)
    gain_ns = time_ns / max(evidence.training.step_count, 1)
    whose = "a mean lane" if is_common else join_names([evidence.labels[one] for one in rows["lane"]])
    return [
        Finding(
            kind="between",
            text=f"{format_share(share)} of the capture lies between steps"
            f" ({format_time(time_ns)} on {whose}, of it {format_share(busy)} compute; the longest is"
            f" {format_time(end_ns - start_ns)}{activity.words})",
            confidence="certain",
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=share,
            value_ns=time_ns,
            sample_count=rows.height,
            call=activity.name,
        )
    ]


def describe_losses(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe the reports with lost events; runs without any have no such finding."""
    lanes = evidence.training.lanes
    losses = evidence.training.losses
    reports = sorted({loss.report for loss in losses})
    labels = lanes.filter(pl.col("report").is_in(reports))["label"].to_list()
    if not labels:  # reports without a GPU have no results here
        return []
    texts = list(dict.fromkeys(loss.text.rstrip(".") for loss in losses))
    more = f" and {format_count(len(texts) - 1, 'more message')}" if len(texts) > 1 else ""
    is_all = len(labels) == lanes.height and len(labels) > 1
    its = "its" if len(labels) == 1 else "their"
    return [
        Finding(
            kind="losses",
            text=f"events of {'all ranks' if is_all else join_names(labels)} are missing"
            f" (`{cut_name(texts[0])}`{more}): {its} gaps and sums may be wrong",
            confidence="certain",
            subject="run",
            label=None if is_all else join_names(labels),
            sample_count=len(reports),
        )
    ]


def describe_layout(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe a `--layout` that the jobs contradict, which leaves all about stages and peers doubtful."""
    training = evidence.training
    given = training.lanes.filter(stage_source=GIVEN_LAYOUT)
    if given.is_empty() or evidence.missing_ranks:
        return []
    jobs = training.jobs.filter(pl.col("kind").is_in(SCHEDULED_KINDS))
    found = find_stages_of_warm_ups(jobs, training.steps, by=["lane"])
    other = given.join(found, on="lane", suffix="_found").filter(pl.col("stage") != pl.col("stage_found"))
    if other.is_empty():
        return []
    row = other.row(0, named=True)
    return [
        Finding(
            kind="stages",
            text=f"`--layout` contradicts the jobs: by the forwards before the first backward there are "
            f"{row['stage_count_found']} stages, and {row['label']} is of stage {row['stage_found']}, not "
            f"{row['stage']}",
            confidence="likely",
            subject="run",
            sample_count=len(other),
        )
    ]


def describe_missing(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe the missing ranks; runs without any, or with lanes of unknown rank, have no such finding."""
    missing = evidence.missing_ranks
    training = evidence.training
    is_alone = training.lanes.height == 1 and training.lanes["run_size"].item() != 1
    if not missing and is_alone and training.kernels["is_communication"].any():
        return [
            Finding(
                kind="missing",
                text="there are other ranks, which have no report here: waits for them are unknown",
                confidence="likely",
                subject="run",
                sample_count=1,
            )
        ]
    if not missing:
        return []
    present = evidence.training.lanes["rank"].n_unique()
    is_are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
    return [
        Finding(
            kind="missing",
            text=f"{present:,} of {format_count(present + len(missing), 'rank')}: {join_ranks(missing)} "
            f"{is_are} missing,"
            f" and waits for {them} are unknown",
            confidence="certain",
            subject="run",
            sample_count=present,
        )
    ]
