"""Comparison of two runs: samples, sums, changes beyond noise, and gates."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import polars as pl
from msgspec import Struct

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.aggregates import SAMPLE, SAMPLED, UNIT, RunFacts
from nsys_pp.frames.clock import number_comparable
from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import ALL_ROWS, Column, Table, View, build_table_schema
from nsys_pp.frames.training import BUBBLE_CAUSES, JOB_KINDS, Training
from nsys_pp.tables.analysis import Evidence, classify_training
from nsys_pp.tables.noise import find_changes, to_float
from nsys_pp.tables.training import LEAST_LINK_EXCESS, list_decodes, time_transfers
from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US, format_duration

# Least change of a time, as a share of it, that counts as a change.
LEAST_CHANGE = 0.01
# Least change of a part of the step, as a share of the step, that counts as a change.
LEAST_SHARE = 0.005
# Least change of the compute of a rank, as a share of it: GPUs of one kind differ by about as much.
LEAST_RANK_CHANGE = 0.02
# Metrics of kernels that do not communicate.
KERNEL_TOTAL, KERNEL_MEAN = "total per lane", "mean of one"
_LEAST_TIMED = 2  # transfers of a link in a step
_FEW_STEPS = 2
_PER_LANE = pl.col("total_ns").sum() / pl.col("lane_count").first()


def _sample_steps(evidence: Evidence) -> pl.DataFrame:
    """Sample the length of a step, the median of its lanes, and its kernel time per lane.

    The span of a step on all lanes would contain the errors of clocks. Communication kernels are not counted:
    most of their time is waiting.
    """
    spans = evidence.whole_steps.group_by("step").agg(value=pl.col("span_ns").median())
    totals = (
        _whole_kernels(evidence, evidence.training.kernels)
        .filter(~pl.col("is_communication"))
        .group_by("step")
        .agg(value=_PER_LANE)
    )
    return pl.concat(
        [
            _times(spans, subject=pl.lit("step"), metric="on a lane, median"),
            _times(totals, subject=pl.lit("kernels"), metric=KERNEL_TOTAL),
        ]
    )


def _sample_stages(evidence: Evidence) -> pl.DataFrame:
    """Sample the bubble of each stage, and the compute time of its jobs per step and lane."""
    lanes = evidence.whole_steps.drop_nulls("stage")
    own = _sum_own(evidence).drop_nulls("stage") if evidence.has_passes else SAMPLE.to_frame()
    means = own.group_by("stage", "step").agg(pl.col("value").mean())
    return pl.concat(
        [
            _shares(lanes, ("bubble",)),
            _times(means, subject=pl.lit("compute"), metric="of jobs, per lane"),
        ]
    ).sort("stage", maintain_order=True)


def _sample_ranks(evidence: Evidence) -> pl.DataFrame:
    lanes = evidence.training.lanes.select("lane", "label")
    if len(lanes) == 1:  # its machine may be another one in each run
        lanes = lanes.with_columns(label=pl.lit("the GPU"))
    labelled = _sum_own(evidence).join(lanes, on="lane").sort("lane", "step")
    return _times(
        labelled, subject=pl.col("label"), metric="compute of jobs" if evidence.has_passes else "compute"
    ).with_columns(least=LEAST_RANK_CHANGE * pl.col("value"))


def _sum_own(evidence: Evidence) -> pl.DataFrame:
    """Sum the own compute of whole steps: lane, stage, step, value."""
    whole = evidence.whole_steps.select("lane", "step")
    return (
        evidence.own_compute.join(whole, on=["lane", "step"], how="semi")
        .group_by("lane", "stage", "step")
        .agg(value=pl.col("value_ns").sum())
    )


def _sample_links(evidence: Evidence) -> pl.DataFrame:
    """Sample the median transfer of each link; `least` contains the error of the clocks."""
    medians = (
        time_transfers(evidence.training.transfers)
        .drop_nulls(["timed_ns", "step"])
        .join(evidence.whole_steps, on="step", how="semi")
        .group_by("sender", "receiver", "step")
        .agg(value=pl.col("timed_ns").median(), count=pl.len(), bound=pl.col("bound_ns").max().fill_null(0))
        .filter(pl.col("count") >= _LEAST_TIMED)
    )
    for side in ("sender", "receiver"):
        lanes = evidence.training.lanes.select("lane", pl.col("label", "stage").name.suffix(f"_of_{side}"))
        medians = medians.join(lanes, left_on=side, right_on="lane", how="left")
    named = pl.format("{} -> {}", "label_of_sender", "label_of_receiver")
    medians = medians.sort("sender", "receiver", "step").with_columns(stage="stage_of_sender")
    return _times(medians, subject=named, metric="transfer of a message").with_columns(
        least=LEAST_LINK_EXCESS * pl.col("value") + medians["bound"]
    )


def _sample_kinds(evidence: Evidence) -> pl.DataFrame:
    """Sample the compute time of jobs by kind, in the whole run and on each stage."""
    jobs = (
        evidence.training.jobs.join(evidence.whole_steps.select("lane", "stage", "step"), on=["lane", "step"])
        .drop_nulls("compute_start_ns")
        .with_columns(value=pl.col("compute_end_ns") - pl.col("compute_start_ns"))
    )
    return pl.concat(
        _times(
            group.group_by("stage", "kind", "step").agg(pl.col("value").mean()).sort("stage", "kind"),
            subject=pl.col("kind").cast(pl.String),
            metric="compute of one, mean",
        )
        for group in (jobs.with_columns(stage=pl.lit(None, pl.Int64)), jobs.drop_nulls("stage"))
    )


def _sample_kernels(evidence: Evidence) -> pl.DataFrame:
    """Sample each kernel by name: total on a lane, and mean of one; of communication, with waiting."""
    by_name = (
        _whole_kernels(evidence, evidence.training.kernels)
        .with_columns(pl.col("name").cast(pl.String))
        .group_by("step", "name", "is_communication")
        .agg(total=_PER_LANE, mean=pl.col("total_ns").sum() / pl.col("count").sum())
        .sort("name", "is_communication")
    )
    return pl.concat(
        _times(
            by_name.filter(is_communication=waits).with_columns(value=column),
            subject=pl.col("name"),
            metric=metric,
        )
        for column, waits, metric in (
            ("total", False, KERNEL_TOTAL),
            ("mean", False, KERNEL_MEAN),
            ("total", True, f"{KERNEL_TOTAL}, with waiting"),
            ("mean", True, f"{KERNEL_MEAN}, with waiting"),
        )
    )


def _sample_families(evidence: Evidence) -> pl.DataFrame:
    totals = (
        _whole_kernels(evidence, classify_training(evidence.training))
        .group_by("step", "family")
        .agg(value=_PER_LANE)
        .sort("family")
    )
    return _times(totals, subject=pl.col("family").cast(pl.String), metric=KERNEL_TOTAL)


LONGEST_STEP = "longest_step"
SUBJECTS = tuple(
    dict.fromkeys(("step", LONGEST_STEP, "kernels", "bubble", "compute", *BUBBLE_CAUSES, *JOB_KINDS))
)


def _common_steps(evidence: Evidence) -> pl.DataFrame:
    """Select whole steps of as many lanes as any: where one is missing, a mean is of other work."""
    lane_count = pl.len().over("step")
    return evidence.whole_steps.filter(lane_count == lane_count.max())


def _whole_kernels(evidence: Evidence, kernels: pl.DataFrame) -> pl.DataFrame:
    lanes = _common_steps(evidence).select("lane", "step", lane_count=pl.len().over("step"))
    return kernels.join(lanes, on=["lane", "step"])


def _times(values: pl.DataFrame, *, subject: pl.Expr, metric: str) -> pl.DataFrame:
    return values.with_columns(
        stage=pl.col("stage") if "stage" in values.columns else pl.lit(None),
        subject=subject,
        metric=pl.lit(metric),
        unit=pl.lit("ns"),
        least=LEAST_CHANGE * pl.col("value"),
    ).pipe(conform, SAMPLE)


def _shares(lanes: pl.DataFrame, subjects: tuple[str, ...]) -> pl.DataFrame:
    """Build samples of parts of the time of lanes, by stage and step: as shares, then as times."""
    columns = [f"{subject}_ns" for subject in subjects]
    sums = (
        lanes.group_by("stage", "step")
        .agg(pl.col(*columns, "span_ns").sum(), lane_count=pl.len())
        .filter(pl.col("span_ns") > 0)
        .sort("stage")
    )
    return pl.concat(
        sums.with_columns(
            subject=pl.lit(subject),
            metric=pl.lit(metric),
            unit=pl.lit(unit),
            value=pl.col(column) / pl.col(over),
            least=LEAST_SHARE * pl.col("span_ns") / pl.col(over),
        ).pipe(conform, SAMPLE)
        for subject, column in zip(subjects, columns, strict=True)
        for unit, metric, over in (
            ("fraction", "share of the step", "span_ns"),
            ("ns", "per lane", "lane_count"),
        )
    )


_SAMPLERS: Mapping[str, Callable[[Evidence], pl.DataFrame]] = {
    "steps": _sample_steps,
    # of a step and its causes, as shares of the time of lanes and as times per lane
    "bubbles": lambda evidence: _shares(
        _common_steps(evidence).with_columns(stage=pl.lit(None, pl.Int64)), ("bubble", *BUBBLE_CAUSES)
    ),
    "stages": _sample_stages,
    "ranks": _sample_ranks,
    "links": _sample_links,
    "kinds": _sample_kinds,
    "families": _sample_families,
    "kernels": _sample_kernels,
}


def sample_training(training: Training) -> dict[str, pl.DataFrame]:
    """Sample a training: `SAMPLE` by name (`SAMPLED`).

    Of batches of inference, decodes where some are known.
    """
    evidence = Evidence(_keep_decodes(training))
    return {name: _SAMPLERS[name](evidence) for name in SAMPLED}


def describe_training(training: Training) -> RunFacts:
    """Describe a training: the facts that do not depend on its reports.

    Returns:
        The facts; GPUs, versions, recordings and the like are left open.
    """
    decodes = list_decodes(training)
    evidence = Evidence(_keep_decodes(training))
    lanes, schedule = training.lanes, training.schedule
    sources = training.steps.group_by("source").len().sort("len", descending=True)["source"]
    own = evidence.own_compute.group_by("lane", "step").len()["len"] if evidence.has_passes else pl.Series([])
    bounds, batches = lanes["bound_ns"], ""
    if len(training.batches):
        batches = "decodes" if len(decodes) else "of unknown kinds"
    return RunFacts(
        steps=tuple(evidence.whole_steps["step"].unique().sort().to_list()),
        step_source=str(next(iter(sources), "")),
        batches=batches,
        decode_requests=cast("float | None", decodes["requests"].mean()),
        lane_count=len(lanes),
        machine_count=lanes["machine"].drop_nulls().n_unique(),
        stage_count=schedule.stage_count or int(to_float(lanes["stage_count"].max())),
        replica_count=lanes["replica"].drop_nulls().n_unique(),
        tensor_count=lanes["tensor"].drop_nulls().n_unique(),
        schedule=schedule.name,
        micro_batch_count=float(schedule.micro_batch_count or to_float(own.median())),
        chunk_count=schedule.chunk_count,
        has_passes=evidence.has_passes,
        preset=training.preset,
        bound_ns=None if bounds.null_count() or bounds.is_empty() else int(to_float(bounds.max())),
        is_on_one_clock=number_comparable(lanes).n_unique() <= 1,
    )


def _keep_decodes(training: Training) -> Training:
    """Make steps partial that are batches of inference other than decodes.

    A prefill is as long as its requests.
    """
    decodes = list_decodes(training)
    if decodes.is_empty():
        return training
    is_other = ~pl.col("step").is_in(decodes["step"].implode())
    return replace(training, steps=training.steps.with_columns(pl.col("is_partial") | is_other))


VERDICT = pl.Enum(["slower", "faster", "same", "unknown", "new", "gone"])

_COLUMNS = (
    Column("stage", pl.Int64, "pipeline stage; null: all stages"),
    Column(
        "subject",
        pl.String,
        "step, bubble, a cause, a rank, a link, a kind of job, or a kernel",
        is_symbol=True,
    ),
    Column("metric", pl.String, "measured quantity, in words"),
    Column("unit", UNIT, "unit of a and b: nanoseconds, or share of the step"),
    Column("a", pl.Float64, "median over the complete steps of run A; null if it has none"),
    Column(
        "b",
        pl.Float64,
        "median over the complete steps of run B from `since_step` on; null if it has none",
    ),
    Column("b_of_all", pl.Float64, "median over all complete steps of run B"),
    Column("a_step_count", pl.Int64, "complete steps of run A"),
    Column("b_step_count", pl.Int64, "complete steps of run B, from `since_step` on"),
    Column(
        "change_fraction",
        pl.Float64,
        "change from a to b: relative for times, difference for shares; of a rank also that relative to the "
        "other ranks, if all vary together; null without a, and from 0",
        decimals=1,
    ),
    Column(
        "noise_fraction",
        pl.Float64,
        "changes up to this are noise; null if a run has a single step",
        decimals=1,
        priority=4,
    ),
    Column(
        "verdict",
        VERDICT,
        "slower: b is larger; new, gone: only in b, only in a; unknown: the noise is unknown, or how much "
        "was a wait, or too few steps changed",
    ),
    Column(
        "since_step",
        pl.Int64,
        "first step of run B with the change, from which on b is the median; null: all steps",
        priority=4,
    ),
)
COMPARISON = build_table_schema(_COLUMNS)
_SHOWN = (
    Column("shown_a", pl.Float64, "a in the unit shown", heading="A", decimals=3),
    Column("shown_b", pl.Float64, "b in the unit shown", heading="B", decimals=3),
    Column("shown_unit", pl.String, "ms, ms each, or %", heading="Unit"),
    *("change_fraction", "noise_fraction", "verdict", "since_step", "stage", "metric", "subject"),
)
_IS_CHANGE = pl.col("verdict") != "same"

# `SAMPLE` of a run by name: `nsys_pp.frames.aggregates.SAMPLED`.
Samples = Mapping[str, pl.DataFrame]


def compare_members(a: Samples, b: Samples, name: str) -> pl.DataFrame:
    """Compare the members of a frame: `CHANGES` with `verdict`; no stages of ranks that one run lacks."""
    sides = [a[name], b[name]]
    if name in ("ranks", "links") and any(side["stage"].has_nulls() for side in sides):
        sides = [side.with_columns(stage=pl.lit(None, side.schema["stage"])) for side in sides]
    rows = find_changes(*sides, are_peers=name == "ranks").with_columns(verdict=_judge())
    is_unclear = pl.col("subject").is_in(_list_unclear(rows))
    return rows.with_columns(
        verdict=pl.when(is_unclear).then(pl.lit("unknown", VERDICT)).otherwise("verdict")
    )


def _list_unclear(rows: pl.DataFrame) -> list[str]:
    """List waits and transfers that cannot be compared: how much is known to be which differs.

    `message` is a wait or a transfer, likewise `collective`: this depends on clocks and pairs, so on steps.
    """
    is_other = pl.col("a").ne_missing(pl.col("b")) & (pl.col("verdict") != "same")
    wholes = rows.filter(is_other, pl.col("subject").is_in(["message", "collective"]))["subject"].unique()
    return [f"{whole}{part}" for whole in wholes for part in ("", "_wait", "_transfer")]


def _judge() -> pl.Expr:
    return (
        pl.when(pl.col("a").is_null())
        .then(pl.lit("new"))
        .when(pl.col("b").is_null())
        .then(pl.lit("gone"))
        .when(pl.col("is_change").is_null())
        .then(pl.lit("unknown"))
        .when(~pl.col("is_change"))
        .then(pl.lit("same"))
        .when(pl.coalesce("change_fraction", pl.col("b") - pl.col("a")) > 0)
        .then(pl.lit("slower"))
        .otherwise(pl.lit("faster"))
        .cast(VERDICT)
    )


def _compare(a: Samples, b: Samples, *, name: str) -> pl.DataFrame:
    """Compare the members of a frame; of ranks, links and kernels, the largest difference comes first."""
    rows = compare_members(a, b, name)
    size = (pl.col("b") - pl.col("a")).abs()
    if name in ("ranks", "links"):
        is_beyond = pl.col("is_change").fill_null(value=True)
        rows = rows.sort(is_beyond, size, descending=True, nulls_last=True, maintain_order=True)
    elif name == "kernels":
        of_kernel = (pl.col("b").fill_null(0) - pl.col("a").fill_null(0)).abs().max().over("subject")
        rows = rows.sort(of_kernel, descending=True, maintain_order=True)
    elif name == "steps":
        rows = pl.concat([rows, compare_longest_steps(a, b)])  # medians do not reflect them
    return rows.pipe(conform, COMPARISON)


def compare_longest_steps(a: Samples, b: Samples) -> pl.DataFrame:
    """Compare the longest steps of two runs, with the noise of a single step.

    The longest one of both runs does not count for its own noise, unless its run has only two.

    Returns:
        `CHANGES` with `verdict`: one row; none without steps.
    """
    spans = [run["steps"].filter(subject="step").sort("value") for run in (a, b)]
    most = max((to_float(span["value"].max()) for span in spans), default=0.0)
    others = [
        span.head(len(span) - 1) if len(span) > _FEW_STEPS and to_float(span["value"].max()) == most else span
        for span in (span.drop("run", strict=False) for span in spans)
    ]
    noise = find_changes(*others)["noise_fraction"] * math.sqrt(
        2 / sum(1 / max(len(other), 1) for other in others)
    )
    if "run" in spans[0].columns:  # good runs differ in their longest steps, too
        of_runs = spans[0].group_by("run").agg(pl.col("value").max())["value"]
        noise = noise.clip(lower_bound=1 - to_float(of_runs.min()) / max(to_float(of_runs.max()), 1.0))
    longest = [
        span.tail(1).with_columns(
            subject=pl.lit(LONGEST_STEP), metric=pl.concat_str("metric", pl.lit(", most"))
        )
        for span in spans
    ]
    return (
        find_changes(*longest)
        .with_columns(noise)
        .with_columns(
            is_change=pl.when(pl.col("noise_fraction").is_not_null()).then(
                pl.col("change_fraction").abs() > pl.max_horizontal("noise_fraction", "least_fraction")
            ),
            a_step_count=pl.lit(len(spans[0]), pl.Int64),
            b_step_count=pl.lit(len(spans[1]), pl.Int64),
        )
        .with_columns(verdict=_judge())
    )


def _add_units(table: pl.DataFrame) -> pl.DataFrame:
    """Add a and b in milliseconds or percent, and that unit.

    A mean of single kernels is in milliseconds each.
    """
    is_share = pl.col("unit") == "fraction"
    is_each = pl.col("metric").str.starts_with(KERNEL_MEAN)
    scale = pl.when(is_share).then(100.0).otherwise(1 / NS_PER_MS)
    return table.with_columns(
        shown_a=pl.col("a") * scale,
        shown_b=pl.col("b") * scale,
        shown_unit=pl.when(is_share)
        .then(pl.lit("%"))
        .otherwise(pl.when(is_each).then(pl.lit("ms each")).otherwise(pl.lit("ms"))),
    )


_HIDDEN = "{} are the same within noise"
# Tables by name, in the order in which they are written.
TABLES: Mapping[str, Table[[Samples, Samples]]] = {
    name: Table(
        name=name,
        title=title,
        columns=_COLUMNS,
        caption=(
            "A, B: medians over complete steps, or over those since the named one; change: relative for "
            "times, in percentage points for shares of a step; same: the change does not exceed noise, or is "
            "too small to be named"
        ),
        empty=(
            "nothing to compare: in no complete step has a link two messages whose transfer is timed for "
            "certain; those that are paired with doubt, buffered, or sent without a known receiver are left "
            "out"
            if name == "links"
            else "nothing to compare: not both runs have any in complete steps"
        ),
        rows=partial(_compare, name=name),
        view=View(columns=_SHOWN, derive=_add_units, only=only, hidden=hidden),
    )
    for name, title, only, hidden in (
        # name, title, mask of the rows that are shown, and the sentence on the others
        ("steps", "Steps", ALL_ROWS, ""),
        ("bubbles", "Bubbles", _IS_CHANGE, _HIDDEN),
        ("stages", "Stages", _IS_CHANGE, _HIDDEN),
        ("ranks", "Ranks", _IS_CHANGE, "{} ranks are within noise"),
        ("links", "Links", _IS_CHANGE, "{} links are within noise"),
        ("kinds", "Jobs by kind", _IS_CHANGE, _HIDDEN),
        ("families", "Families of kernels", _IS_CHANGE, _HIDDEN),
        ("kernels", "Kernels", _IS_CHANGE, _HIDDEN),
    )
}

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_SCALES = {"ns": 1.0, "us": float(NS_PER_US), "ms": float(NS_PER_MS), "s": float(NS_PER_S), "%": 0.01}
_GATE = re.compile(
    r"\s*(?:stage\s+(?P<stage>\d{1,9})\s+)?(?P<metric>[a-z_]+?)(?P<b>_b)?\s*(?P<sign>>=|<=|>|<)"
    r"\s*(?P<number>[+-]?(?:\d{1,18}\.?\d{0,18}|\.\d{1,18}))\s*(?P<unit>%|ns|us|ms|s)\s*"
)


class GateError(NsysPPError):
    """An invalid gate, or a gate on a metric that the runs do not have."""


class Gate(Struct, frozen=True, kw_only=True):
    """A condition on a metric of a comparison.

    Attributes:
        text: The text that it was parsed from.
        stage: Number of a stage; None: all stages.
        metric: Subject of a comparison.
        is_of_b: It applies to the value of B, not to the change.
        sign: Operator: ">", ">=", "<" or "<=".
        limit: Limit in nanoseconds, or a fraction.
        is_percent: The limit is a fraction.
    """

    text: str
    stage: int | None
    metric: str
    is_of_b: bool
    sign: str
    limit: float
    is_percent: bool


def parse_gate(text: str) -> Gate:
    """Parse a gate.

    Raises:
        GateError: The text is not a gate, or its metric is unknown.

    >>> gate = parse_gate("stage 2 bubble > 10%")
    >>> gate.stage, gate.metric, gate.sign, gate.limit
    (2, 'bubble', '>', 0.1)
    """
    match = _GATE.fullmatch(text)
    if match is None:
        raise GateError(
            f"invalid gate `{text}`; expected METRIC, an operator, a number and a unit",
            "quote it: 'bubble>5%', 'step>20ms', 'stage 2 forward>3%'",
        )
    if match["metric"] not in SUBJECTS:
        raise GateError(
            f"unknown metric `{match['metric']}` in gate `{text}`", f"expected {_list_metrics(SUBJECTS)}"
        )
    return Gate(
        text=text.strip(),
        stage=None if match["stage"] is None else int(match["stage"]),
        metric=match["metric"],
        is_of_b=match["b"] is not None,
        sign=match["sign"],
        limit=float(match["number"]) * _SCALES[match["unit"]],
        is_percent=match["unit"] == "%",
    )


def check_gates(comparison: Mapping[str, pl.DataFrame], gates: Iterable[Gate]) -> tuple[list[str], list[str]]:
    """Check gates against a comparison.

    If a run has a single step, its noise is unknown, and any change counts.

    Args:
        comparison: Rows of the tables, as built by `TABLES`.
        gates: The gates.

    Returns:
        One sentence for each gate that fails, in the order of the gates, empty if none does; and one for each
        that passes only as noise explains a change beyond its limit.

    Raises:
        GateError: The runs do not have what a gate is about.
    """
    rows = pl.concat(comparison[name] for name in ("steps", "bubbles", "stages", "kinds"))
    unclear = _list_unclear(rows)
    found = [one for gate in gates if (one := _check(gate, rows, unclear)) is not None]
    failed, unjudged = ([text for is_failed, text in found if is_failed == kind] for kind in (True, False))
    return failed, unjudged


def _check(gate: Gate, rows: pl.DataFrame, unclear: Sequence[str]) -> tuple[bool, str] | None:
    """Return whether a gate fails, and a sentence on it; None if it passes beyond doubt."""
    row = _find(gate, rows)
    value, noise = (row["b_of_all"], None) if gate.is_of_b else _change(gate, row)
    if not _OPERATORS[gate.sign](value, gate.limit):
        return None

    def show(amount: float) -> str:
        return f"{100 * amount:.1f} %" if gate.is_percent else format_duration(round(amount))

    if noise is not None and abs(value) <= noise:
        text = f"{show(value)} is within noise (up to {show(noise)}); record more steps"
        return False, f"gate `{gate.text}` cannot be judged: {text}"
    if gate.metric in unclear and not gate.is_of_b:
        whole = gate.metric.split("_")[0]
        text = f"how many {whole}s are known to be waits differs; give `--layout`, or record more steps"
        return False, f"gate `{gate.text}` cannot be judged: {text}"
    where = "" if gate.stage is None else f" of stage {gate.stage}"
    if gate.is_of_b:
        return True, f"`{gate.text}`: {gate.metric}{where} is {_write(value, row['unit'])}"
    a, b = (_write(row[run], row["unit"]) for run in "ab")
    unsure = "; its noise is unknown: a run has a single step"
    if noise is not None:
        unsure = f" (noise {show(noise)})"
    return True, f"`{gate.text}`: {gate.metric}{where} went from {a} to {b}{unsure}"


def _find(gate: Gate, rows: pl.DataFrame) -> dict[str, Any]:
    candidates = rows.filter(pl.col("stage").eq_missing(pl.lit(gate.stage, pl.Int64))).drop_nulls("b")
    candidates = candidates if gate.is_of_b else candidates.drop_nulls("a")
    matches = candidates.filter(pl.col("subject") == gate.metric)
    if matches.is_empty():
        where = "the runs" if gate.stage is None else f"stage {gate.stage} of the runs"
        metrics = _list_metrics(candidates["subject"].unique(maintain_order=True))
        raise GateError(
            f"gate `{gate.text}`: `{gate.metric}` is missing in {where}",
            f"available: {metrics or 'nothing, as there is no such stage'}",
        )
    # A metric with a share and a time is compared by its share if the limit is a percentage.
    units = ("fraction", "ns") if gate.is_percent else ("ns",)
    unit = next(unit for unit in units if unit in matches["unit"])
    row = matches.filter(pl.col("unit") == unit).row(0, named=True)
    if gate.is_of_b and gate.is_percent and row["unit"] == "ns":
        raise GateError(
            f"invalid gate `{gate.text}`: {gate.metric} is a time, not a share",
            "use a time as limit, e.g. `20ms`",
        )
    return row


def _change(gate: Gate, row: Mapping[str, Any]) -> tuple[float, float | None]:
    if row["unit"] == "ns" and not gate.is_percent:
        noise = row["noise_fraction"]
        return row["b"] - row["a"], None if noise is None else noise * row["a"]
    change = row["change_fraction"]  # null: from nothing to something
    return math.inf if change is None else change, row["noise_fraction"]


def _write(value: float, unit: str) -> str:
    return f"{value:.1%} of the step" if unit == "fraction" else format_duration(round(value))


def _list_metrics(metrics: Iterable[str]) -> str:
    return ", ".join(f"`{metric}`" for metric in metrics)
