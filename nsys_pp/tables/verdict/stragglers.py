"""Findings on ranks and stages that compute longer than their peers.

Peers of a rank are the other ranks of its stage; peers of a stage are the other stages, each by its fastest rank, so
that a slow rank does not make a slow stage. Ranks of unknown stages are compared with all others, as a guess. The gain is
the difference of a step with the compute of the peers (`pipeline_time`), for the share of the steps that are slow, but not
more than the excess on the critical path, nor than the slow steps are longer than the others of the run. Work of a slow stage that runs more kernels than others can only be moved: its
gain is the difference to balanced stages. An excess in CUDA graphs that were traced as a whole is a guess; batches of inference,
whose tensor-parallel ranks wait for each other in such graphs, are not compared by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from nsys_pp.frames.verdict import Confidence, Finding
from nsys_pp.tables.training.critical_path import find_critical_path
from nsys_pp.tables.verdict.comparison import SlowMember, find_slow
from nsys_pp.tables.verdict.evidence import LARGE_BOUND, Evidence, to_float
from nsys_pp.tables.verdict.families import describe_families, may_be_waiting
from nsys_pp.tables.verdict.gpu_clocks import describe_low_clock
from nsys_pp.tables.verdict.names import name_lane, name_machine, name_stage
from nsys_pp.tables.verdict.pipeline_time import StepModel
from nsys_pp.tables.verdict.wording import (
    describe_steps,
    format_excess,
    format_share,
    format_time,
)

LEAST_RANK_EXCESS, LEAST_STAGE_EXCESS, LEAST_UNKNOWN_EXCESS = 0.03, 0.05, 0.1
LEAST_GAIN = 0.01
"""Least share of the step: a smaller gain is no finding. If all steps since one are slow, it counts in a slow step."""
_LEAST_MORE_KERNELS = 0.02  # kernels of a stage that has more work


def find_slow_members(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find slow ranks and stages; all slow ranks of a machine are one finding."""
    own = evidence.own_compute
    if own.is_empty():
        return []
    model = StepModel(evidence)
    staged = own.filter(pl.col("stage").is_not_null())
    unknown = own.filter(pl.col("stage").is_null())
    ranks = find_slow(staged, member="lane", group=["stage"], least=LEAST_RANK_EXCESS)
    guesses = find_slow(unknown, member="lane", group=[], least=LEAST_UNKNOWN_EXCESS)
    fastest = staged.group_by("stage", "step", "micro_batch").agg(pl.col("value_ns").min())
    stages = find_slow(fastest, member="stage", group=[], least=LEAST_STAGE_EXCESS, spread_values=staged)
    if not evidence.training.batches.is_empty():
        ranks, guesses = (
            [slow for slow in found if not _may_be_waiting(evidence, [slow])] for found in (ranks, guesses)
        )
    findings = [
        *_describe_ranks(evidence, model, ranks, is_guess=False),
        *_describe_ranks(evidence, model, guesses, is_guess=True),
        *(_describe_stage(evidence, model, slow) for slow in stages),
    ]
    return [finding for finding in findings if _is_worth(evidence, finding)]


def _is_worth(evidence: Evidence, finding: Finding) -> bool:
    """Return whether the gain is worth a line."""
    share = 1.0
    if finding.since_step is not None and evidence.step_count:
        share = evidence.spans.filter(pl.col("step") >= finding.since_step).height / evidence.step_count
    return finding.gain_fraction >= LEAST_GAIN * share


def _describe_ranks(
    evidence: Evidence, model: StepModel, ranks: Sequence[SlowMember], *, is_guess: bool
) -> list[Finding]:
    """Describe slow ranks; two or more that are all compared ranks of a machine together."""
    lanes = evidence.training.lanes
    machines = dict(lanes.select("lane", "machine").iter_rows())
    peers = {lane for lane, stage in lanes.select("lane", "stage").iter_rows() if is_guess == (stage is None)}
    groups: dict[str, list[SlowMember]] = {}
    for slow in ranks:
        groups.setdefault(machines[slow.member], []).append(slow)
    findings = []
    for machine, members in groups.items():
        size = sum(machines[lane] == machine for lane in peers)
        if 1 < len(members) == size and len(groups) < len({*machines.values()}):
            findings.append(_describe_group(evidence, model, members, machine, is_guess=is_guess))
        else:
            findings += [
                _describe_group(evidence, model, [slow], None, is_guess=is_guess) for slow in members
            ]
    return findings


def _describe_group(
    evidence: Evidence,
    model: StepModel,
    members: Sequence[SlowMember],
    machine: str | None,
    *,
    is_guess: bool,
) -> Finding:
    """Describe a slow rank, or all ranks of a slow machine."""
    worst = members[0]
    slow_steps = max((slow.steps for slow in members), key=len)
    when, since = describe_steps(slow_steps, evidence.spans["step"].to_list())
    share = len(slow_steps) / max(evidence.step_count, 1)
    factors = {slow.member: 1 / (1 + slow.excess_fraction) for slow in members}
    gain_ns = _cap_gain(
        evidence,
        slow_steps,
        min(share * _dilute(model, factors, share), _limit_gain(evidence, members, factors)),
    )
    label = evidence.labels[worst.member] if machine is None else machine
    lanes = [slow.member for slow in members]
    subject = name_lane(evidence, lanes[0]) if machine is None else name_machine(evidence, machine, lanes)
    verb = "computes" if machine is None else "compute"
    peers = "the other ranks" if is_guess else "its peers" if machine is None else "their peers"
    waiting = _describe_waiting(evidence, lanes)
    others = _list_peers(evidence, lanes, worst.member)
    why = describe_families(evidence, lanes, others, slow_steps)
    if evidence.share(gain_ns) >= LEAST_GAIN * share:
        why += describe_low_clock(evidence, lanes, others, slow_steps, worst.excess_fraction)
    stage = evidence.training.lanes.filter(lane=worst.member)["stage"].item()
    return Finding(
        kind="straggler",
        text=f"{subject} {verb} {_compare(worst, peers)}, {when}{why} ({_describe_gain(evidence, slow_steps, gain_ns)}{waiting})",
        confidence=_rate(evidence, members, is_guess=is_guess or _may_be_waiting(evidence, members)),
        subject="rank" if machine is None else "machine",
        gain_ns=gain_ns,
        gain_fraction=evidence.share(gain_ns),
        label=label,
        lane=worst.member if machine is None else None,
        stage=stage if machine is None else None,
        since_step=since,
        step=slow_steps[0] if len(slow_steps) == 1 else None,
        value_ns=worst.value_ns,
        usual_ns=worst.usual_ns,
        excess_fraction=worst.excess_fraction,
        noise_fraction=worst.noise_fraction,
        sample_count=sum(slow.sample_count for slow in members),
    )


def _describe_stage(evidence: Evidence, model: StepModel, slow: SlowMember) -> Finding:
    """Describe a slow stage, named with its rank if it has only one."""
    lanes = evidence.training.lanes.filter(stage=slow.member)["lane"].to_list()
    when, since = describe_steps(slow.steps, evidence.spans["step"].to_list())
    share = len(slow.steps) / max(evidence.step_count, 1)
    more = _count_more_kernels(evidence, slow)
    factors = dict.fromkeys(lanes, 1 / (1 + slow.excess_fraction))
    if more >= _LEAST_MORE_KERNELS:
        factors = _balance(evidence, lanes, slow.excess_fraction)
    limit = dict.fromkeys(lanes, 1 / (1 + slow.excess_fraction))
    gain_ns = _cap_gain(
        evidence,
        slow.steps,
        min(share * _dilute(model, factors, share), _limit_gain(evidence, [slow], limit)),
    )
    subject = name_stage(evidence, slow.member)
    staged = evidence.training.lanes.drop_nulls("stage")
    others = staged.filter(pl.col("stage") != slow.member)["lane"].to_list()
    if more >= _LEAST_MORE_KERNELS:
        why = f", with {format_share(more)} more kernels"
    else:
        why = describe_families(evidence, lanes, others, slow.steps)
    if more < _LEAST_MORE_KERNELS and evidence.share(gain_ns) >= LEAST_GAIN * share:
        why += describe_low_clock(evidence, lanes, others, slow.steps, slow.excess_fraction)
    compared = _compare(slow, "the other stages")
    return Finding(
        kind="straggler",
        text=f"{subject} computes {compared}, {when}{why} ({_describe_gain(evidence, slow.steps, gain_ns)})",
        confidence=_rate(evidence, [slow], is_guess=may_be_waiting(evidence, lanes, others, slow.steps)),
        subject="stage",
        gain_ns=gain_ns,
        gain_fraction=evidence.share(gain_ns),
        label=f"stage {slow.member}",
        lane=lanes[0] if len(lanes) == 1 else None,
        stage=slow.member,
        since_step=since,
        step=slow.steps[0] if len(slow.steps) == 1 else None,
        value_ns=slow.value_ns,
        usual_ns=slow.usual_ns,
        excess_fraction=slow.excess_fraction,
        noise_fraction=slow.noise_fraction,
        sample_count=slow.sample_count,
    )


def _list_peers(evidence: Evidence, members: Sequence[int], member: int) -> list[int]:
    """List the other lanes of the stage of a lane, without slow ones; all other lanes where it is unknown."""
    lanes = evidence.training.lanes
    stage = lanes.filter(lane=member)["stage"].item()
    peers = lanes.filter(pl.col("stage").eq_missing(stage), ~pl.col("lane").is_in(list(members)))
    return [int(lane) for lane in peers["lane"]]


def _may_be_waiting(evidence: Evidence, ranks: Sequence[SlowMember]) -> bool:
    """Return whether slow ranks may only wait for others, in CUDA graphs."""
    lanes = [slow.member for slow in ranks]
    steps = max((slow.steps for slow in ranks), key=len)
    return may_be_waiting(evidence, lanes, _list_peers(evidence, lanes, lanes[0]), steps)


def _compare(slow: SlowMember, peers: str) -> str:
    """Format the excess over the peers."""
    word = "as" if slow.excess_fraction >= 1 else "than"
    return f"{format_excess(slow.excess_fraction)} {word} {peers}"


def _limit_gain(evidence: Evidence, members: Sequence[SlowMember], factors: dict[int, float]) -> float:
    """Compute the excess of slow lanes on the critical path of a mean step, in its waits of unknown cause too; infinite where clocks leave it unknown."""
    if evidence.share(to_float(evidence.training.lanes["bound_ns"].max())) > LARGE_BOUND:
        return math.inf
    steps = max((slow.steps for slow in members), key=len)
    training = evidence.training
    states = training.lane_states.filter(pl.col("step").is_in(steps))
    path = find_critical_path(
        replace(training, steps=training.steps.filter(pl.col("step").is_in(steps)), lane_states=states)
    )
    if path["step"].n_unique() < len(steps):
        return math.inf
    excess = 1 - pl.col("lane").replace_strict(factors, default=1.0, return_dtype=pl.Float64)
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    on_path = to_float(path.filter(cause="compute").select((length * excess).sum()).item())
    # a wait or a transfer, which uncertain clocks or missing ranks leave open, may be a wait for the slow lanes
    unknown = path.filter(pl.col("cause").is_in(["message", "collective"]))
    on_path += to_float(unknown.select(length.sum()).item()) * (1 - min(factors.values()))
    return on_path / max(evidence.step_count, 1)


def _cap_gain(evidence: Evidence, steps: Sequence[int], gain_ns: float) -> float:
    """Limit the gain of a mean step by the time that slow steps are longer than the others of the run."""
    _, longer_ns = evidence.compare_steps(steps)
    return min(gain_ns, longer_ns * len(steps) / max(evidence.step_count, 1))


def _dilute(model: StepModel, factors: dict[int, float], share: float) -> float:
    """Compute the gain of a slow step; the medians of the model are slow if most steps are."""
    if share > 0.5:
        return model.gain_ns(factors)
    own = model.own_ns()
    slow = {lane: own[lane] / factor for lane, factor in factors.items() if lane in own}
    return max(0.0, model.length_ns(slow) - model.length_ns())


def _balance(evidence: Evidence, lanes: Sequence[int], excess: float) -> dict[int, float]:
    """Return factors that spread the excess of a stage over all stages."""
    staged = evidence.training.lanes.drop_nulls("stage")
    more = 1 + excess / staged["stage"].n_unique()
    return {lane: more / (1 + excess) if lane in lanes else more for lane in staged["lane"]}


def _count_more_kernels(evidence: Evidence, slow: SlowMember) -> float:
    """Return the relative excess of the number of computing kernels of a stage over the median of the others."""
    counts = (
        evidence.training.kernels.filter(~pl.col("is_communication"), pl.col("step").is_in(slow.steps))
        .group_by("lane")
        .agg(pl.col("count").sum())
        .join(evidence.training.lanes.select("lane", "stage"), on="lane")
    )
    mine = to_float(counts.filter(stage=slow.member)["count"].median())
    others = to_float(counts.filter(pl.col("stage") != slow.member)["count"].median())
    return mine / others - 1 if others else 0.0


def _describe_gain(evidence: Evidence, steps: Sequence[int], gain_ns: float) -> str:
    """Describe the gain of a slow step, more than the gain of a mean step if not all steps are slow."""
    length_ns, _ = evidence.compare_steps(steps)
    gain = format_time(gain_ns * evidence.step_count / len(steps))
    if len(steps) == evidence.step_count:
        return f"about {gain} of a step of {format_time(evidence.step_ns)}"
    of_steps = "that step" if len(steps) == 1 else "its steps"
    return f"about {gain} of {of_steps} of {format_time(length_ns)}"


def _describe_waiting(evidence: Evidence, members: Sequence[int]) -> str:
    """Name the stages, or ranks, that wait longest for these lanes; "" if no wait is attributed to them."""
    duration = pl.col("end_ns") - pl.col("start_ns")
    waits = (
        evidence.training.lane_states.filter(
            pl.col("waits_for").is_in(members), ~pl.col("lane").is_in(members)
        )
        .group_by("lane")
        .agg(total_ns=duration.sum())
        .join(evidence.training.lanes.select("lane", "stage"), on="lane")
    )
    if waits.is_empty() or not waits["total_ns"].sum():
        return ""
    own_stages = evidence.training.lanes.filter(pl.col("lane").is_in(members))["stage"].to_list()
    if waits["stage"].null_count():
        name = evidence.labels[waits.sort(-pl.col("total_ns"), "lane")["lane"][0]]
    else:
        stages = waits.group_by("stage").agg(pl.col("total_ns").mean()).sort(-pl.col("total_ns"), "stage")
        if stages["stage"][0] in own_stages:
            return "; its peers wait for it" if len(members) == 1 else ""
        name = f"stage {stages['stage'][0]}"
    return f"; {name} waits for it" if len(members) == 1 else f"; {name} waits longest"


def _rate(evidence: Evidence, members: Sequence[SlowMember], *, is_guess: bool) -> Confidence:
    """Rate a comparison: as a guess if stages are unknown or jobs are inferred from messages."""
    jobs = evidence.training.jobs
    is_inferred = evidence.has_passes and jobs["range_id"].null_count() == len(jobs)
    if is_guess or is_inferred:
        return "guess"
    return "certain" if all(slow.is_certain for slow in members) else "likely"
