"""Verdict of a run: findings about ranks, stages, links, steps and the pipeline, the largest gain first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl
from msgspec.structs import replace

from nsys_pp.arrays.search import group_pairs
from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import CAUSE_WORDS, MICRO_BATCH_KINDS, NONE, Explanations, Training
from nsys_pp.frames.verdict import MOST_LINES, Confidence, Finding, Subject, Verdict
from nsys_pp.tables import host_findings
from nsys_pp.tables.analysis import LEAST_STAGE_EXCESS, Evidence
from nsys_pp.tables.host_findings import LEAST_SHARE, describe_window
from nsys_pp.tables.noise import MOST, SlowMember, noise_of, to_float
from nsys_pp.tables.training import (
    FEW_MESSAGES,
    LOW_CLOCK,
    build_link_table,
    ideal_bubble_fraction,
    link_noise_ns,
    list_decodes,
)
from nsys_pp.tables.words import (
    cut_name,
    describe_steps,
    format_excess,
    format_percent,
    format_share,
    format_time,
    name_lane,
    name_machine,
    name_stage,
    place_link,
    predict_gain,
)
from nsys_pp.training.whatif import LEAST_GAIN
from nsys_pp.units import format_count

_MORE_KERNELS = 0.02  # of a rank or stage that has more work
_ALIKE = 0.15  # difference of the shares of families in an excess from those in all time


def describe_families(
    evidence: Evidence, members: Sequence[int], peers: Sequence[int], steps: Sequence[int]
) -> str:
    """Describe the families of kernels in which lanes take longer than their peers.

    "" where it is not known or not clear.
    """
    families = _compare_families(evidence, members, peers, steps)
    if _is_mostly_of_graphs(families):
        return ", in CUDA graphs traced as a whole, which may hold waits for other ranks"
    usual, excess = to_float(families["usual_ns"].sum()), to_float(families["excess_ns"].sum())
    counts, usual_counts = to_float(families["count"].sum()), to_float(families["usual_count"].sum())
    if not usual or excess <= 0:
        return ""
    more = counts / usual_counts - 1
    if abs(more) > _MORE_KERNELS:
        return f", with {format_percent(more)} more kernels" if more > 0 else ""
    if to_float(families.filter(family="unknown")["usual_ns"].sum()) > MOST * usual:
        return ""
    apart = (families["excess_ns"] / excess - families["usual_ns"] / usual).abs().sum() / 2
    if families.height > 1 and apart <= _ALIKE:
        return ", in all kernel families alike"
    top = families.sort(-pl.col("excess_ns"), "family").row(0, named=True)
    if top["excess_ns"] <= MOST * excess:
        return ""
    return f", mostly in {top['family']} (+{format_percent(top['excess_ns'] / max(top['usual_ns'], 1))})"


def may_be_waiting(
    evidence: Evidence, members: Sequence[int], peers: Sequence[int], steps: Sequence[int]
) -> bool:
    """Return whether half of the excess or more is in CUDA graphs that were traced as a whole."""
    if not (evidence.training.kernels["kind"] == "graph").any():
        return False
    return _is_mostly_of_graphs(_compare_families(evidence, members, peers, steps))


def _is_mostly_of_graphs(families: pl.DataFrame) -> bool:
    of_graphs = to_float(families.filter(family="graph")["excess_ns"].sum())
    return of_graphs > 0 and of_graphs >= MOST * to_float(families["excess_ns"].sum())


def _compare_families(
    evidence: Evidence, members: Sequence[int], peers: Sequence[int], steps: Sequence[int]
) -> pl.DataFrame:
    """Compare kernels of lanes and their peers: family, total_ns, count, usual_ns, usual_count, excess_ns."""
    kernels = evidence.families.filter(pl.col("step").is_in(list(steps)))
    if evidence.has_passes:
        kernels = kernels.filter(pl.col("job_kind").is_in(MICRO_BATCH_KINDS))
    sums = kernels.group_by("lane", "family").agg(pl.col("total_ns", "count").sum())
    is_member, is_peer = (pl.col("lane").is_in(list(lanes)) for lanes in (members, peers))
    present = pl.DataFrame({"lane": [*members, *peers]}, schema={"lane": pl.UInt32})
    time, count = (pl.col(name).fill_null(0) for name in ("total_ns", "count"))
    return (
        present.join(sums.select("family").unique(), how="cross")
        .join(sums, on=["lane", "family"], how="left")
        .group_by("family")
        .agg(
            total_ns=time.filter(is_member).median(),
            count=count.filter(is_member).median(),
            usual_ns=time.filter(is_peer).median(),
            usual_count=count.filter(is_peer).median(),
        )
        .with_columns(excess_ns=pl.col("total_ns") - pl.col("usual_ns"))
    )


def describe_low_clock(
    evidence: Evidence, lanes: Sequence[int], peers: Sequence[int], steps: Sequence[int]
) -> str:
    """Describe a low clock of slow lanes.

    "" where it is not recorded, not low, or as low where they are not slow.

    Args:
        evidence: The run.
        lanes: Slow lanes.
        peers: Lanes that they are compared with.
        steps: Steps in which they are slow.
    """
    is_slow, is_own = pl.col("step").is_in(list(steps)), pl.col("lane").is_in(list(lanes))
    clocks = evidence.clocks
    own, usual = _median(clocks, is_own, is_slow), _median(clocks, pl.col("lane").is_in(list(peers)), is_slow)
    if not own or not usual or own >= LOW_CLOCK * usual:
        return ""
    other_steps = _median(clocks, is_own, ~is_slow)
    if other_steps and own >= LOW_CLOCK * other_steps:
        return ""
    its = "its SM clock was" if len(lanes) == 1 else "their SM clocks were"
    where = "in these steps" if len(steps) > 1 else "in this step"
    return f"; {its} {own:,.0f} of {usual:,.0f} MHz {where}"


def describe_fall(evidence: Evidence, lane: int, step: int, others: Sequence[int]) -> str:
    """Describe a clock of a lane that fell in a step, compared with other steps.

    "" where it did not, or is not recorded.
    """
    is_own = pl.col("lane") == lane
    own = _median(evidence.clocks, is_own, pl.col("step") == step)
    usual = _median(
        evidence.clocks, is_own, pl.col("step").is_in([other for other in others if other != step])
    )
    if not own or not usual or own >= LOW_CLOCK * usual:
        return ""
    return f"; its SM clock was {own:,.0f} of {usual:,.0f} MHz in this step"


def find_falling_clocks(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find steps in which the clocks of most GPUs were low, and all ranks computed longer beyond noise.

    Slow ranks have their own findings.
    """
    if not evidence.has_steps or evidence.clocks.is_empty() or not evidence.training.batches.is_empty():
        return []
    usual_mhz = pl.col("clock_mhz").max().over("lane")
    clocks = evidence.clocks.with_columns(
        usual_mhz=usual_mhz, is_low=pl.col("clock_mhz") < LOW_CLOCK * usual_mhz
    )
    lane_count = evidence.training.lanes.height
    per_step = (
        clocks.group_by("step")
        .agg(pl.col("clock_mhz", "usual_mhz").median(), low_count=pl.col("is_low").sum())
        .join(evidence.lane_steps.group_by("step").agg(pl.col("compute_ns").median()), on="step")
        .sort("step")
    )
    fallen = per_step.filter(2 * pl.col("low_count") > lane_count)
    others = per_step.filter(2 * pl.col("low_count") <= lane_count)["compute_ns"]
    if fallen.is_empty() or others.is_empty():
        return []
    usual = to_float(others.median())
    excess = to_float(fallen["compute_ns"].median()) / usual - 1 if usual else 0.0
    if excess <= max(LEAST_STAGE_EXCESS, noise_of(others) / max(usual, 1)):
        return []
    slow = fallen["step"].to_list()
    factors = dict.fromkeys(evidence.training.lanes["lane"], 1 / (1 + excess))
    most_ns = excess * usual * len(slow) / evidence.step_count
    gain = predict_gain(evidence, lambda run: run.scale(factors, steps=slow), most_ns)
    when, limits = describe_steps(evidence, slow)
    clock, usual_clock = (to_float(fallen[name].median()) for name in ("clock_mhz", "usual_mhz"))
    low_count = int(to_float(fallen["low_count"].median()))
    many = "the GPU computes" if lane_count == 1 else f"{low_count:,} of {lane_count:,} GPUs compute"
    return [
        Finding(
            kind="gpu_clock",
            text=f"{many} {format_percent(excess)} longer {when}; SM clocks were {clock:,.0f} of"
            f" {usual_clock:,.0f} MHz ({gain.describe()} per step on average)",
            confidence="likely",
            subject="run",
            **gain.facts,
            **limits,
            excess_fraction=excess,
            sample_count=len(slow),
        )
    ]


def _median(clocks: pl.DataFrame, *conditions: pl.Expr) -> float:
    """Return the median clock of some lanes and steps; 0 without any."""
    return to_float(clocks.filter(*conditions)["clock_mhz"].median())


_KINDS = {"collectives": "collective", "messages": "message"}
_MOST_UNKNOWN_COMMUNICATION = 0.2  # share of time that may be waiting, in a measured finding


def find_exposed_communication(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find exposed collectives and messages, as one finding."""
    if not evidence.has_steps:
        return []
    # the excess of a slow link has its own finding
    slow_ns = sum(finding.gain_ns for finding in earlier if finding.kind == "link")
    lane_steps = evidence.lane_steps
    known, unknown = (
        {words: to_float(lane_steps[f"{name}{part}_ns"].mean()) for words, name in _KINDS.items()}
        for part in ("_transfer", "")
    )
    total = sum(known.values()) + sum(unknown.values())
    if evidence.share(total - slow_ns) < LEAST_SHARE:
        return []
    # what may be waiting for a late rank is no gain of communication
    most_ns = MOST * max(0.0, sum(known.values()) - slow_ns)
    half = predict_gain(evidence, lambda run: run.scale_communication(MOST), most_ns)
    half, gain = half.reduce(MOST * slow_ns), ""
    if half.facts["gain_fraction"] >= LEAST_GAIN:
        gain = f"; with transfers half as long a step is {half.describe()} shorter"
    parts = [
        f"{words} {format_time(known[words] + unknown[words])}"
        for words in _KINDS
        if known[words] + unknown[words] > 0  # they add up to the total
    ]
    is_known = sum(unknown.values()) <= _MOST_UNKNOWN_COMMUNICATION * total
    waits = "" if is_known else ", waits for other ranks included"
    return [
        Finding(
            kind="communication",
            text=f"communication without compute is {format_share(evidence.share(total))} of a step"
            f" ({', '.join(parts)} of {format_time(evidence.step_ns)}{waits}){gain}",
            confidence="certain" if is_known else "likely",
            subject="run",
            **half.facts,
            value_ns=total,
            sample_count=lane_steps.height,
        )
    ]


def find_slow_links(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find the slow links with the largest gain, at most two."""
    slow = build_link_table(evidence.training).filter("is_slow").with_columns(noise_ns=link_noise_ns())
    findings = [_describe(evidence, row) for row in slow.iter_rows(named=True)]
    return sorted(findings, key=lambda finding: -finding.gain_ns)[:2]


def _describe(evidence: Evidence, row: dict[str, Any]) -> Finding:
    excess, usual = to_float(row["excess_fraction"]), to_float(row["usual_transfer_ns"])
    value, count = to_float(row["median_transfer_ns"]), int(to_float(row["timed_count"]))
    noise = to_float(row["noise_ns"]) / usual if usual else 0.0
    bound = to_float(row["bound_ns"])
    most_ns = excess * usual * to_float(row["message_count"]) / max(evidence.step_count, 1)
    gain = predict_gain(evidence, lambda run: run.heal_link(row["sender"], row["receiver"]), most_ns)
    where = place_link(evidence.training.lanes, row["sender"], row["receiver"])
    is_certain = count >= FEW_MESSAGES and excess * usual >= 2 * (noise * usual + bound)
    return Finding(
        kind="link",
        text=f"messages {row['link']}{where} need {format_excess(excess, 'on other links of their kind')}:"
        f" {format_time(value)} instead of {format_time(usual)} ({gain.describe()} of a step of"
        f" {format_time(evidence.step_ns)})",
        confidence="certain" if is_certain else "likely",
        subject="link",
        **gain.facts,
        label=str(row["link"]),
        lane=row["sender"],
        stage=row["sender_stage"],
        value_ns=value,
        usual_ns=usual,
        excess_fraction=excess,
        noise_fraction=noise,
        bound_ns=int(bound),
        sample_count=count,
    )


_NAMES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "interleaved 1F1B",
    "zb-h1": "ZB-H1",
    "dualpipev": "DualPipeV",
}


def compare_bubble(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe the bubble of a run with forwards and backwards; other runs have none."""
    if not evidence.has_passes or not evidence.step_ns:
        return []
    schedule = evidence.training.schedule
    # sums over all steps and lanes, as in the tables
    bubble, ideal_share, bubble_ns, ideal_ns, beyond_ns = evidence.lane_steps.select(
        bubble=pl.col("bubble_ns").sum() / pl.col("span_ns").sum(),
        ideal=(pl.col("ideal_bubble_ns").sum() / pl.col("ideal_span_ns").sum()).fill_nan(None),
        bubble_ns=pl.col("bubble_ns").mean(),
        ideal_ns=pl.col("ideal_bubble_ns").mean(),
        beyond_ns=(pl.col("bubble_ns") - pl.col("ideal_bubble_ns")).mean(),
    ).row(0)
    name, share = "ideal", ideal_share
    if share is None:  # no step has all of its jobs
        name, share = "by formula", ideal_bubble_fraction(schedule)[1]
    schedule_name = ""
    if schedule.name != "unknown" and schedule.micro_batch_count:
        batches = format_count(schedule.micro_batch_count, "micro-batch").replace("batchs", "batches")
        stages = format_count(schedule.stage_count, "stage")
        schedule_name = f"for {_NAMES.get(schedule.name, schedule.name)} with {stages} and {batches} "
    text = f"bubble {format_share(bubble)}"
    if share is not None:
        text += f", {name} {schedule_name}{format_share(to_float(share))}"
    elif schedule.source == "uncertain":
        text += "; the ideal is unknown, as much compute belongs to no job"
    # null where no step has an ideal
    explained = sum(
        to_float(finding.value_ns) if finding.kind == "communication" else finding.gain_ns
        for finding in earlier
    )
    gain_ns = max(0.0, to_float(beyond_ns) - explained)
    if min(gain_ns, explained) >= LEAST_GAIN * evidence.step_ns:
        text += (
            f"; {format_time(gain_ns)} of its {format_time(bubble_ns)} are"
            f"{f' neither ideal ({format_time(ideal_ns)}) nor' if ideal_ns else ' not'} in another line"
        )
    kernels = evidence.training.kernels
    if is_unnamed := not kernels.filter(pl.col("name").is_null(), kind="kernel").is_empty():
        text += "; kernels without names count as compute, and may be communication"
    return [
        Finding(
            kind="bubble",
            text=text,
            confidence="guess" if is_unnamed else "certain",
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=evidence.share(gain_ns),
            value_ns=bubble_ns,
            usual_ns=ideal_ns,
            sample_count=evidence.step_count,
        )
    ]


def find_layout_conversions(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find conversions between layouts of tensors that are much of the compute."""
    kernels = evidence.families.join(evidence.lane_steps, on=["lane", "step"], how="semi")
    by_name = kernels.filter(family="layout").group_by("folded_name").agg(pl.col("total_ns").sum())
    time_ns, compute_ns = (to_float(rows["total_ns"].sum()) for rows in (by_name, kernels))
    if time_ns < LEAST_SHARE * compute_ns or not time_ns:
        return []
    most = by_name.sort("total_ns", "folded_name", descending=[True, False])["folded_name"][0]
    gain_ns = time_ns / evidence.lane_steps.height
    whole = "a step" if evidence.has_steps else "the capture"
    return [
        Finding(
            kind="layout",
            text=f"conversions of layout, most in `{cut_name(most)}`, are"
            f" {format_share(time_ns / compute_ns)} of compute"
            f" ({format_time(gain_ns)} of {whole} of {format_time(evidence.step_ns)})",
            confidence="certain",
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=evidence.share(gain_ns),
            value_ns=gain_ns,
            sample_count=evidence.lane_steps.height,
        )
    ]


_LEAST_STEPS, _MOST_LONG = 4, 0.25  # steps that show what is usual, and share of long ones
# causes of the time that a step takes longer; waits are their effects
_ROOTS = (
    *("compute", "host", "loading", "profiler", "data", "copy"),
    *("message_transfer", "collective_transfer"),
)
_LEAST_CAUSE = 0.3  # of the excess


def find_long_steps(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find long steps, the longest first."""
    is_serving = not evidence.training.batches.is_empty()
    spans = evidence.whole_steps.group_by("step").agg(pl.col("span_ns").median()).sort("step")
    if is_serving:
        spans = spans.join(list_decodes(evidence.training), on="step", how="semi", maintain_order="left")
    if spans.height < _LEAST_STEPS or not evidence.has_steps:
        return []
    usual = to_float(spans["span_ns"].median())
    limit = usual + max(noise_of(spans["span_ns"]), LEAST_SHARE * usual)
    rows = spans.filter(pl.col("span_ns") > limit).sort(-pl.col("span_ns"))
    if rows.is_empty() or rows.height > max(1, _MOST_LONG * spans.height):
        return []
    usual = to_float(spans.filter(pl.col("span_ns") <= limit)["span_ns"].median())
    findings = []
    for step, span_ns in rows.iter_rows():
        growth = _list_growth(evidence, step, spans["step"])
        known = growth.filter(pl.col("growth_ns") >= _LEAST_CAUSE * (span_ns - usual))
        if is_serving and (known.is_empty() or known["cause"][0] == "compute"):
            continue  # a server may wait for requests, and batches differ
        among = "other decodes" if is_serving else "the others"
        findings.append(_describe_long_steps(evidence, step, span_ns, usual, growth, among=among))
    explained = [other for other in earlier if other.kind in ("host", "profiler", "straggler")]
    return [
        finding
        for finding in findings
        if sum(other.gain_ns for other in explained if other.step in (finding.step, None))
        < MOST * finding.gain_ns
    ]


def _describe_long_steps(
    evidence: Evidence, step: int, span_ns: float, usual_ns: float, growth: pl.DataFrame, *, among: str
) -> Finding:
    excess = span_ns / usual_ns - 1
    gain_ns = (span_ns - usual_ns) / evidence.step_count
    cause, label, lane = _name_cause(evidence, growth, least_ns=_LEAST_CAUSE * (span_ns - usual_ns))
    if cause.startswith(" (compute"):
        fall = describe_fall(evidence, growth["lane"][0], step, evidence.spans["step"].to_list())
        cause = f"{cause[:-1]}{fall})"
    first = ", the first one (warm-up)," if step == evidence.spans["step"][0] else ""
    return Finding(
        kind="step",
        text=f"step {step}{first} is {format_excess(excess, among)}: {format_time(span_ns)} "
        f"instead of {format_time(usual_ns)}, {format_share(evidence.share(gain_ns))} of the run{cause}",
        confidence="certain",
        subject="step",
        gain_ns=gain_ns,
        gain_fraction=evidence.share(gain_ns),
        label=label,
        lane=lane,
        step=step,
        value_ns=span_ns,
        usual_ns=usual_ns,
        excess_fraction=excess,
        sample_count=evidence.step_count,
    )


def _list_growth(evidence: Evidence, step: int, others: pl.Series) -> pl.DataFrame:
    """List how much each cause other than waiting grew on each lane, the largest first.

    Lane, cause, growth_ns.

    Args:
        evidence: The run.
        step: The long step.
        others: Steps that it is compared with; itself is left out.
    """
    columns = [f"{cause}_ns" for cause in _ROOTS]
    lanes = evidence.whole_steps.select("lane", "step", *columns)
    compared = lanes.filter(pl.col("step") != step, pl.col("step").is_in(others.implode()))
    usual = compared.group_by("lane").agg(pl.col(columns).median())
    return (
        lanes.filter(step=step)
        .join(usual, on="lane", suffix="_usual")
        .select("lane", *(pl.col(column) - pl.col(f"{column}_usual") for column in columns))
        .unpivot(index="lane", variable_name="cause", value_name="growth_ns")
        .with_columns(pl.col("cause").str.strip_suffix("_ns"))
        .filter(pl.col("growth_ns") > 0)
        .sort(-pl.col("growth_ns"), "lane", "cause")
    )


def _name_cause(
    evidence: Evidence, growth: pl.DataFrame, *, least_ns: float
) -> tuple[str, str | None, int | None]:
    if growth.is_empty() or growth["growth_ns"][0] < max(least_ns, 1):
        return "", None, None
    lane, cause, largest = growth.row(0)
    words = CAUSE_WORDS[cause]
    shared = growth.filter(pl.col("cause") == cause, pl.col("growth_ns") >= MOST * largest).height
    time = format_time(largest)
    if shared > 1 and shared >= MOST * evidence.training.lanes.height:
        return f" ({words}: {time} more on most ranks)", None, None
    if evidence.training.lanes.height == 1:
        return f" ({words}: {time} more)", None, None
    return f" ({words} of {evidence.labels[lane]}: {time} more)", evidence.labels[lane], lane


_STRAGGLER_COLUMNS = (
    Column(
        "what",
        pl.Enum(["stage", "rank", "link"]),
        "stage, rank (compared with the ranks of its stage), or link",
        heading="Kind",
    ),
    Column("label", pl.String, "name of the stage, rank or link", heading="Straggler"),
    Column("stage", pl.Int64, "the stage, or that of the rank, or of the sender of a link"),
    Column("lane", pl.UInt32, "lane of a rank, or of the sender of a link"),
    Column("receiver", pl.UInt32, "lane of the receiver of a link"),
    Column(
        "value_ns",
        pl.Float64,
        "own compute per micro-batch (per step without jobs), or transfer of a message; median",
        heading="Own",
        display_unit="ms",
    ),
    Column("usual_ns", pl.Float64, "the same for its peers; median", heading="Peers", display_unit="ms"),
    Column(
        "excess_fraction",
        pl.Float64,
        "relative excess over its peers; median",
        heading="Longer",
        decimals=1,
    ),
    Column(
        "noise_fraction",
        pl.Float64,
        "excess that noise explains; null with a single sample",
        decimals=1,
        priority=4,
    ),
    Column(
        "bound_ns",
        pl.Int64,
        "error of the value from the alignment of clocks: 0 within a lane; null: unknown",
        heading="Clock error",
        display_unit="us",
        priority=4,
    ),
    Column(
        "sample_count",
        pl.Int64,
        "complete steps, micro-batches of a single or of cut steps, or messages",
        priority=3,
    ),
    Column(
        "is_slow",
        pl.Boolean,
        "slower than its peers, beyond noise and bound",
        heading="Slow",
        is_optional=True,
        priority=4,
    ),
)


def find_slow_members(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find slow ranks and stages; all slow ranks of a machine are one finding."""
    compared = evidence.stragglers
    findings = [
        *_describe_ranks(evidence, compared.ranks.slow, is_guess=False),
        *_describe_ranks(evidence, compared.guesses.slow, is_guess=True),
    ]
    staged = evidence.training.lanes.drop_nulls("stage")
    for slow in compared.stages.slow:
        lanes = staged.filter(stage=slow.member)["lane"].to_list()
        found = _describe_slow(
            evidence,
            dict.fromkeys(lanes, slow),
            f"{name_stage(evidence, slow.member)} computes",
            others=staged.filter(pl.col("stage") != slow.member)["lane"].to_list(),
            peers="the other stages",
            more=_count_more_kernels(evidence, slow),
            label=f"stage {slow.member}",
            subject="stage",
        )
        findings.append(replace(found, stage=slow.member, lane=lanes[0] if len(lanes) == 1 else None))
    return findings


def find_stragglers(training: Training) -> pl.DataFrame:
    """Compare every stage, rank and link with its peers, as the verdict does.

    Returns:
        Rows of `STRAGGLER_TABLE`, one per stage, rank and link with peers; slow ones first, then by kind and
        the largest excess.
    """
    evidence = Evidence(training)
    schema = build_table_schema(_STRAGGLER_COLUMNS)
    links = (
        build_link_table(training)
        .drop_nulls("usual_transfer_ns")
        .with_columns(
            what=pl.lit("link"),
            label="link",
            stage="sender_stage",
            lane="sender",
            value_ns="median_transfer_ns",
            usual_ns="usual_transfer_ns",
            noise_fraction=pl.when(pl.col("timed_count") > 1).then(
                link_noise_ns() / pl.col("usual_transfer_ns")
            ),
            sample_count="timed_count",
        )
    )
    of = evidence.stragglers
    stages = of.stages.all.with_columns(what=pl.lit("stage"), label=pl.format("stage {}", "stage"))
    ranks = pl.concat([of.ranks.all, of.guesses.all]).join(
        training.lanes.select("lane", "label", "stage"), on="lane", how="left"
    )
    absent = {name: pl.lit(None, schema[name]) for name in ("lane", "receiver")}
    compared = (
        links,
        stages.with_columns(bound_ns=pl.lit(0, pl.Int64), **absent),
        ranks.with_columns(what=pl.lit("rank"), bound_ns=pl.lit(0, pl.Int64), receiver=absent["receiver"]),
    )
    return pl.concat(rows.pipe(conform, schema) for rows in compared).sort(
        "is_slow", "what", "excess_fraction", "label", descending=[True, False, True, False]
    )


STRAGGLER_TABLE = Table(
    name="stragglers",
    title="Stragglers: stages, ranks and links compared with their peers",
    columns=_STRAGGLER_COLUMNS,
    caption=(
        "own compute per micro-batch (per step without jobs), or transfer of a message, compared with the"
        " median of the peers; waiting time is not counted; medians over the complete steps in which a slow"
        " one is slow, and over all complete steps for the others; one that costs a step little is no finding"
    ),
    rows=find_stragglers,
    empty="no rank, stage or link has peers to be compared with",
    view=View(
        columns=(
            *(
                "what",
                "value_ns",
                "usual_ns",
                "excess_fraction",
                "noise_fraction",
                "bound_ns",
                "sample_count",
            ),
            *("is_slow", "label"),
        ),
        only=pl.col("is_slow"),
        hidden="{} within noise of their peers",
    ),
)


def _describe_ranks(evidence: Evidence, ranks: Sequence[SlowMember], *, is_guess: bool) -> list[Finding]:
    """Describe slow ranks; two or more that are all compared ranks of a machine together."""
    lanes = evidence.training.lanes
    machines, stages = (dict(lanes.select("lane", name).iter_rows()) for name in ("machine", "stage"))
    groups = group_pairs(
        (machines[slow.member], slow)
        for slow in ranks
        if evidence.training.batches.is_empty()
        or not may_be_waiting(evidence, [slow.member], _list_peers(evidence, [slow.member]), slow.steps)
    )
    their, its = ("the other ranks", "the other ranks") if is_guess else ("their peers", "its peers")
    describe = partial(_describe_slow, evidence, is_guess=is_guess)
    findings = []
    for machine, members in groups.items():
        size = sum(machines[lane] == machine for lane, stage in stages.items() if is_guess == (stage is None))
        if 1 < len(members) == size and len(groups) < len({*machines.values()}):
            slow_ones = {slow.member: slow for slow in members}
            findings.append(
                describe(
                    slow_ones,
                    f"{name_machine(evidence, machine, [*slow_ones])} compute",
                    others=_list_peers(evidence, [*slow_ones]),
                    peers=their,
                    waiting=_describe_waiting(evidence, [*slow_ones]),
                    label=machine,
                    subject="machine",
                )
            )
            continue
        for slow in members:
            found = describe(
                {slow.member: slow},
                f"{name_lane(evidence, slow.member)} computes",
                others=_list_peers(evidence, [slow.member]),
                peers=its,
                waiting=_describe_waiting(evidence, [slow.member]),
                label=evidence.labels[slow.member],
                subject="rank",
            )
            findings.append(replace(found, lane=slow.member, stage=stages[slow.member]))
    return findings


def _describe_slow(
    evidence: Evidence,
    slow: Mapping[int, SlowMember],
    words: str,
    *,
    peers: str,
    label: str,
    subject: Subject,
    others: list[int],
    more: float = 0.0,
    waiting: str = "",
    is_guess: bool = False,
) -> Finding:
    """Describe a slow rank, all ranks of a slow machine, or a slow stage.

    Args:
        evidence: The run.
        slow: The slow ones by lane, the slowest first: ranks, or a stage on all of its lanes.
        words: Their name and verb.
        peers: Words for what they are compared with.
        label: Name of the object.
        subject: Its kind.
        others: Lanes that they are compared with.
        more: Relative excess of the number of kernels of a stage.
        waiting: Words for those that wait for them.
        is_guess: Stages are unknown.
    """
    lanes, members = [*slow], [*dict.fromkeys(slow.values())]
    worst, steps = members[0], max((one.steps for one in members), key=len)
    when, limits = describe_steps(evidence, steps)
    share = len(steps) / max(evidence.step_count, 1)
    excess = worst.excess_fraction / (1 + worst.excess_fraction)
    slow_steps = evidence.lane_steps.filter(pl.col("lane").is_in(lanes), pl.col("step").is_in(steps))
    most_ns = share * excess * to_float(slow_steps["compute_ns"].max())
    if more >= _MORE_KERNELS:  # work that can be spread over all stages
        staged = evidence.training.lanes.drop_nulls("stage")
        balanced = 1 + worst.excess_fraction / staged["stage"].n_unique()
        factors = {lane: balanced * (1 - excess if lane in slow else 1.0) for lane in staged["lane"]}
        gain = predict_gain(evidence, lambda run: run.scale(factors, steps=steps), most_ns)
        why = f", with {format_percent(more)} more kernels"
    else:
        gain = predict_gain(evidence, lambda run: run.heal_work(lanes, others, steps=steps), most_ns)
        why = describe_families(evidence, lanes, others, steps)
        if gain.facts["gain_fraction"] >= LEAST_GAIN * share:
            why += describe_low_clock(evidence, lanes, others, steps)
    of_steps = f"of a step of {format_time(evidence.step_ns)}"
    if len(steps) < evidence.step_count:
        length_ns = to_float(evidence.spans.filter(pl.col("step").is_in(steps))["span_ns"].median())
        of_steps = f"of {'that step' if len(steps) == 1 else 'its steps'} of {format_time(length_ns)}"
    # inferred jobs and graphs that may hold waits leave a comparison doubtful
    jobs = evidence.training.jobs
    is_inferred = evidence.has_passes and jobs["range_id"].null_count() == len(jobs)
    confidence: Confidence = "certain" if all(one.is_certain for one in members) else "likely"
    if is_guess or is_inferred or may_be_waiting(evidence, lanes, others, steps):
        confidence = "guess"
    return Finding(
        kind="straggler",
        text=f"{words} {format_excess(worst.excess_fraction, peers)}, {when}{why} "
        f"({gain.describe(share)} {of_steps}{waiting})",
        confidence=confidence,
        subject=subject,
        **gain.facts,
        label=label,
        **limits,
        value_ns=worst.value_ns,
        usual_ns=worst.usual_ns,
        excess_fraction=worst.excess_fraction,
        noise_fraction=worst.noise_fraction,
        sample_count=sum(one.sample_count for one in members),
    )


def _list_peers(evidence: Evidence, members: Sequence[int]) -> list[int]:
    """List the other lanes of the stage of the first lane; all other lanes where it is unknown."""
    lanes = evidence.training.lanes
    stage = lanes.filter(lane=members[0])["stage"].item()
    return lanes.filter(pl.col("stage").eq_missing(stage), ~pl.col("lane").is_in(members))["lane"].to_list()


def _count_more_kernels(evidence: Evidence, slow: SlowMember) -> float:
    """Return the relative excess of the computing kernels of a stage over the median of the others."""
    counts = (
        evidence.training.kernels.filter(~pl.col("is_communication"), pl.col("step").is_in(slow.steps))
        .group_by("lane")
        .agg(pl.col("count").sum())
        .join(evidence.training.lanes.select("lane", "stage"), on="lane")
    )
    mine = to_float(counts.filter(stage=slow.member)["count"].median())
    others = to_float(counts.filter(pl.col("stage") != slow.member)["count"].median())
    return mine / others - 1 if others else 0.0


def _describe_waiting(evidence: Evidence, members: Sequence[int]) -> str:
    """Name the stages, or ranks, that wait longest for these lanes; "" if no wait is attributed to them."""
    waits = (
        evidence.training.lane_states.filter(
            pl.col("waits_for").is_in(members), ~pl.col("lane").is_in(members)
        )
        .group_by("lane")
        .agg(total_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
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
    return f"; {name} waits longest{' for it' * (len(members) == 1)}"


# Functions of the evidence and of the findings of those before, some of which explain later ones.
FINDERS: tuple[Callable[[Evidence, Sequence[Finding]], list[Finding]], ...] = (
    find_slow_members,
    host_findings.find_host_stalls,
    find_slow_links,
    find_exposed_communication,
    host_findings.find_idle_time,
    find_long_steps,
    find_falling_clocks,
    compare_bubble,
    find_layout_conversions,
    host_findings.find_time_between,
    host_findings.describe_waits_for_requests,
    host_findings.describe_layout,
    host_findings.describe_coverage,
    host_findings.describe_missing,
    host_findings.describe_losses,
    host_findings.describe_clocks,
)
# The same, where steps miss much of the compute.
OF_CAPTURE: tuple[Callable[[Evidence, Sequence[Finding]], list[Finding]], ...] = (
    host_findings.describe_coverage,
    host_findings.find_idle_time,
    host_findings.describe_missing,
    host_findings.describe_losses,
    host_findings.describe_clocks,
)
# Kinds that limit what the others say.
LIMITS = ("stages", "coverage", "missing", "losses", "clocks")
# Kinds that describe the run and name no object.
CONTEXT = frozenset({"bubble", "requests", *LIMITS})
_OF_ANY_GAIN = CONTEXT | {"communication", "idle"}  # their gain may be unknown


_COLUMNS = (
    Column("kind", pl.String, "kind of the finding: an entry of the registry of findings"),
    Column("confidence", pl.String, "certain, likely, or guess"),
    Column("gain_ns", pl.Float64, "time of a step that could be gained; the middle of a range; 0: unknown"),
    Column("gain_error_ns", pl.Float64, "by which it may be more or less, where clocks or peers are unknown"),
    Column("gain_fraction", pl.Float64, "the same as a share of the mean step"),
    Column("subject", pl.String, "kind of the object: rank, stage, link, machine, step, run, or clocks"),
    Column("label", pl.String, "name of the object"),
    Column("lane", pl.Int64, "lane of a rank, or of the sender of a link"),
    Column("stage", pl.Int64, "stage, or stage of the rank"),
    Column("step", pl.Int64, "step to which the finding is limited"),
    Column("since_step", pl.Int64, "first step of a finding that began inside the capture"),
    Column("value_ns", pl.Float64, "measured value"),
    Column("usual_ns", pl.Float64, "value of the peers, of other steps, or of the ideal"),
    Column("excess_fraction", pl.Float64, "relative excess of the value"),
    Column("noise_fraction", pl.Float64, "excess that noise explains"),
    Column("bound_ns", pl.Int64, "error of the clocks"),
    Column("sample_count", pl.Int64, "number of samples"),
    Column("call", pl.String, "call or range in which the host was"),
    Column("line", pl.String, "the finding as a sentence", heading="Finding"),
)


def build_verdict(training: Training, explanations: Explanations = NONE) -> Verdict:
    """Build the verdict of a training.

    Findings come by descending gain, then communication, then the bubble, then missing ranks and lost
    events; the clocks are last, or first if they exclude comparisons. Without findings, the first line is a
    sentence that nothing exceeds noise.

    Args:
        training: The training.
        explanations: Data of reports that findings need.

    Returns:
        At most `MOST_LINES` findings; none for a training without lanes.
    """
    if training.lanes.is_empty():
        return Verdict()
    evidence = Evidence(training, explanations)
    is_of_steps = evidence.covers_compute
    findings: list[Finding] = []
    for find in FINDERS if is_of_steps else OF_CAPTURE:
        findings += [finding for finding in find(evidence, findings) if _matters(evidence, finding)]
    wrong = [finding for finding in findings if finding.kind == "stages"]
    if wrong or (evidence.is_inferred and is_of_steps):
        findings = [
            finding if finding.kind in LIMITS else replace(finding, confidence="guess")
            for finding in findings
        ]
    elif training.losses:
        findings = [  # a rank may have more kernels than its peers as theirs are missing
            replace(finding, confidence="likely")
            if (finding.kind, finding.confidence) == ("straggler", "certain")
            else finding
            for finding in findings
        ]
    limits = [finding for finding in findings if finding.kind in LIMITS]
    clocks = [finding for finding in limits if finding.kind == "clocks"]
    others = [finding for finding in limits if finding.kind not in ("stages", "clocks")]
    ranked = [finding for finding in findings if finding.kind not in LIMITS]
    # what could be mended, then what half of the transfers would gain, then what describes the run
    ranked.sort(
        key=lambda finding: (finding.kind in CONTEXT, finding.kind == "communication", -finding.gain_ns)
    )
    if all(finding.kind in CONTEXT for finding in findings):
        within = format_count(evidence.step_count, "inferred step" if evidence.is_inferred else "step")
        if not (evidence.has_steps and is_of_steps):
            within = f"the capture, {describe_window(evidence)}"
        noise = " beyond noise" if evidence.step_count > 1 else ""
        ranked.insert(
            0,
            Finding(
                kind="none",
                text=f"no finding{noise} in {within}",
                confidence="guess" if evidence.is_inferred and is_of_steps else "certain",
                subject="run",
                sample_count=evidence.step_count,
            ),
        )
    ranked = [*ranked[: MOST_LINES - len(limits)], *others]
    # steps that miss much, and clocks of several groups, which have no bound, exclude statements
    if not is_of_steps:
        ranked = [*others, *(finding for finding in ranked if finding not in others)]
    is_first = any(finding.bound_ns is None and finding.sample_count is not None for finding in clocks)
    return Verdict(findings=tuple([*wrong, *clocks, *ranked] if is_first else [*wrong, *ranked, *clocks]))


def _matters(evidence: Evidence, finding: Finding) -> bool:
    """Return whether a finding gains a least share of the run; since a step, of the steps since."""
    steps = evidence.spans["step"]
    since = 1.0 if finding.since_step is None else to_float((steps >= finding.since_step).mean())
    is_of_run = finding.kind in _OF_ANY_GAIN and finding.lane is None
    return is_of_run or finding.gain_fraction >= LEAST_GAIN * since


def build_verdict_table(verdict: Verdict) -> pl.DataFrame:
    """Build the rows of `VERDICT_TABLE`, in order of the findings."""
    schema = build_table_schema(_COLUMNS)
    return pl.DataFrame([{name: row[name] for name in schema} for row in verdict.to_dicts()], schema=schema)


VERDICT_TABLE = Table(
    name="verdict",
    title="Verdict",
    columns=_COLUMNS,
    caption="",
    rows=lambda training: build_verdict_table(build_verdict(training)),
    is_fixed=True,
    empty="no GPU process was recorded",
    view=View(columns=("line",), lines=lambda table: table["line"].to_list()),
)
