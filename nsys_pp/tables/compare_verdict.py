"""Findings of a comparison, and reasons why two runs cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any

import polars as pl
from msgspec import Struct

from nsys_pp.arrays.names import natural_key
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import CAUSE_WORDS
from nsys_pp.frames.verdict import MOST_LINES, Confidence, Finding, Subject, Verdict
from nsys_pp.options import ASPECTS
from nsys_pp.tables.compare import (
    KERNEL_MEAN,
    KERNEL_TOTAL,
    LEAST_CHANGE,
    LEAST_SHARE,
    TABLES,
    Samples,
    compare_longest_steps,
    compare_members,
)
from nsys_pp.tables.noise import CERTAIN_STEPS, MOST, find_changes, to_float
from nsys_pp.tables.training import build_link_table
from nsys_pp.tables.words import (
    MOST_NAMES,
    cut_name,
    format_excess,
    format_percent,
    format_share,
    format_time,
    join_names,
    place_link,
)
from nsys_pp.training.whatif import Change, WhatIf
from nsys_pp.units import format_count


class Comparison:
    """Two runs, and the changes of their members.

    Args:
        facts: Facts of runs A and B.
        samples: Their samples, by name.
        runs: The runs, to be replayed; None where only samples are known.
    """

    def __init__(
        self,
        facts: tuple[RunFacts, RunFacts],
        samples: tuple[Samples, Samples],
        runs: tuple[WhatIf | None, WhatIf | None] = (None, None),
    ) -> None:
        self.facts, self.runs = facts, runs
        self.raw = samples
        counts = [run.micro_batch_count for run in facts]
        self.per = bool(all(counts) and counts[0] != counts[1])  # values are per micro-batch
        self.samples = (
            tuple(_divide(run, count) for run, count in zip(samples, counts, strict=True))
            if self.per
            else samples
        )
        first, second = self.samples
        self.changes = cache(partial(compare_members, first, second))
        self._links = cache(lambda run: build_link_table(run.training))

    def __repr__(self) -> str:
        """Return the runs; frames are many."""
        return f"Comparison({self.facts[0].lane_count} and {self.facts[1].lane_count} ranks)"

    @property
    def step_ns(self) -> float:
        """Median length of a step of run A, per micro-batch where values are; 0 without any."""
        return to_float(self.samples[0]["steps"].filter(subject="step")["value"].median())

    def share(self, time_ns: float) -> float:
        """Return a time as a share of a step of run A."""
        return time_ns / self.step_ns if self.step_ns else 0.0

    def predict_gain(self, lanes: pl.Expr, a: float, b: float) -> float:
        """Predict by how much a step of the slower run is shorter if lanes compute as long as in the other.

        Args:
            lanes: Mask of `LANES`.
            a: Compute of these in run A.
            b: Likewise in run B.

        Returns:
            The gain, per micro-batch where values are; the whole difference where that run cannot be
            replayed.
        """
        factor = min(a, b) / max(a, b, 1.0)

        def scale(run: WhatIf) -> Change:
            return run.scale(dict.fromkeys(run.training.lanes.filter(lanes)["lane"], factor))

        return self._replay(int(b > a), scale, abs(b - a))

    def predict_link_gain(self, rows: pl.DataFrame) -> float:
        """Predict by how much a step of the slower run is shorter if links are as fast as in the other.

        Args:
            rows: `CHANGES` of links, all of one sign.

        Returns:
            The gain as of `predict_gain`; 0 where that run cannot be replayed.
        """
        factors = rows.select(
            link="subject", factor=pl.min_horizontal("a", "b") / pl.max_horizontal("a", "b")
        )

        def scale(run: WhatIf) -> Change:
            links = self._links(run).join(factors, on="link")
            lane = run.links.schema["sender"]
            return run.scale_links(links.select(pl.col("sender", "receiver").cast(lane), "factor"))

        return self._replay(int(rows["b"][0] > rows["a"][0]), scale, 0.0)

    def _replay(self, slower: int, change: Callable[[WhatIf], Change], unknown_ns: float) -> float:
        run = self.runs[slower]
        if run is None or run.refusal:
            return unknown_ns
        return max(0.0, run.gain_ns(change(run))) / (self.facts[slower].micro_batch_count if self.per else 1)

    def place_link(self, label: str) -> str:
        """Name the machines of a link by its label, as in run B; "" where they are unknown."""
        run = self.runs[1]
        if run is None:
            return ""
        links = self._links(run).filter(link=label).select("sender", "receiver")
        return "" if links.is_empty() else place_link(run.training.lanes, *links.row(0))

    def find_machine(self, labels: Sequence[str]) -> str | None:
        """Find the machine of run B whose ranks are exactly these; None: there is none, or it is unknown."""
        if self.runs[1] is None:
            return None
        lanes = self.runs[1].training.lanes.drop_nulls("machine")
        own = (
            lanes.group_by("machine")
            .agg("label")
            .filter(pl.col("label").list.set_difference([*labels]).list.len() == 0)
        )
        named = own.filter(pl.col("label").list.len() == len(labels))["machine"]
        return str(named[0]) if len(named) == 1 and lanes["machine"].n_unique() > 1 else None

    @property
    def knows_noise_of_runs(self) -> bool:
        """Whether it is known how much runs differ by themselves: A is several runs, or B the same one."""
        first, second = (run.recordings for run in self.facts)
        return "run" in self.raw[0]["steps"].columns or bool(first and first == second)

    @property
    def may_be_other_batches(self) -> bool:
        """Whether steps are batches of inference of other numbers of requests, or perhaps of other kinds."""
        if not any(run.batches for run in self.facts):
            return False
        requests = [run.decode_requests for run in self.facts if run.decode_requests is not None]
        return len(requests) < len(self.facts) or max(requests) > MOST_REQUESTS * min(requests)

    @property
    def is_of_captures(self) -> bool:
        """Whether a step is the whole capture in both runs."""
        return all(run.step_source == "capture" for run in self.facts)

    @property
    def do_steps_differ(self) -> bool:
        """Whether steps, that are no captures, differ; true where it is unknown."""
        step = self.changes("steps").filter(subject="step").drop_nulls(["a", "b"])
        is_same = (pl.col("is_change") == False).fill_null(  # noqa: E712  # null: the noise is unknown
            pl.col("change_fraction").abs() < LEAST_CHANGE
        )
        return not (self.is_of_captures or step.select(is_same.any()).item())

    @property
    def per_text(self) -> str:
        """Words for the amount of work that times refer to."""
        return "per micro-batch" if self.per else "in the capture" if self.is_of_captures else "per step"

    def build_tables(self) -> dict[str, pl.DataFrame]:
        """Build the tables of the comparison: `COMPARISON` by name.

        Times of ranks are per micro-batch where values are, as their metric states; all else is per step.
        """
        first, second = (
            {**raw, "ranks": run["ranks"]} for raw, run in zip(self.raw, self.samples, strict=True)
        )
        return {name: table.build(first, second) for name, table in TABLES.items()}


def _divide(samples: Samples, count: float) -> Samples:
    is_total = ~pl.col("metric").str.starts_with(KERNEL_MEAN)
    divided = {
        name: samples[name].with_columns(
            pl.when(is_total).then(pl.col("value", "least") / count).otherwise(pl.col("value", "least"))
        )
        for name in ("steps", "ranks", "families", "kernels")
    }
    metric = pl.concat_str("metric", pl.lit(", per micro-batch"))
    return {**samples, **divided, "ranks": divided["ranks"].with_columns(metric=metric)}


EFFECT = pl.Enum(["same", "unknown", "noted", "large", "excluded"])
_COLUMNS = (
    Column("fact", pl.String, "name of the fact"),
    Column("a", pl.String, "value of run A; null: unknown"),
    Column("b", pl.String, "value of run B; null: unknown"),
    Column(
        "effect",
        EFFECT,
        "same: no difference that matters; unknown: not recorded in one of the runs; noted: times may "
        "differ for this reason; large: times differ for this reason; excluded: the runs are compared "
        "because `--allow-different` asks for it",
    ),
    Column("meaning", pl.String, "what the difference means for the comparison; null: no difference"),
)

_CAPTURE = (
    "no steps were found, so a step is the whole capture: its times depend on how much was recorded, and "
    "only means of single kernels can be compared beyond doubt"
)
_MIXTURE = (
    "prefills and decodes are not told apart, so times of steps depend on the requests that were served: "
    "only means of single kernels can be compared, and of the same requests"
)
# Ratio of the requests of decodes from which on their times differ for this reason.
MOST_REQUESTS = 1.1


class ComparisonError(NsysPPError):
    """Two runs that cannot be compared."""


class _Fact(Struct, frozen=True, kw_only=True):
    """A fact to compare.

    Attributes:
        name: Its name.
        read: Reads its value from the facts of a run, as text; None: unknown.
        meaning: What a difference means.
        effect: Effect of a difference, of `EFFECT`; "excluded": it is a reason to refuse the comparison.
        aspect: Key of `ASPECTS` by which an excluded difference can be allowed.
        ratio: Least ratio of both values that counts, for facts that differ a little between any two runs.
        value: Reads the value as a number, for the ratio.
    """

    name: str
    read: Callable[[RunFacts], str | None]
    meaning: str
    effect: str = "noted"
    aspect: str = ""
    ratio: float = 1.0
    value: Callable[[RunFacts], float] | None = None

    def rate(self, a: RunFacts, b: RunFacts) -> str:
        """Return the effect of the difference between two runs."""
        if self.value is not None:
            low, high = sorted((self.value(a), self.value(b)))
            if high < self.ratio * low:
                return "same"
        values = self.read(a), self.read(b)
        return "same" if values[0] == values[1] else "unknown" if None in values else self.effect


_FACTS = (
    _Fact(
        name="source of steps",
        read=lambda facts: facts.step_source or None,
        meaning="a step is something else in A than in B, so no time of a step can be compared",
        effect="excluded",
        aspect="steps",
    ),
    _Fact(
        name="batches of inference",
        read=lambda facts: facts.batches or "none",
        meaning="a step is another kind of batch, or none, so no time of a step can be compared",
        effect="excluded",
        aspect="steps",
    ),
    _Fact(
        name="requests of a decode",
        read=lambda facts: None if facts.decode_requests is None else f"{facts.decode_requests:.1f}",
        meaning=(
            "decodes of more requests take longer: times of steps, ranks and kernels differ for this reason"
        ),
        effect="large",
        ratio=MOST_REQUESTS,
        value=lambda facts: facts.decode_requests or 0.0,
    ),
    _Fact(
        name="forwards and backwards",
        read=lambda facts: "known" if facts.has_passes else "unknown",
        meaning="compute is that of jobs in one run, and all compute in the other",
        effect="excluded",
        aspect="jobs",
    ),
    _Fact(
        name="stages",
        read=lambda facts: _number(facts.stage_count),
        meaning="stage 1 of A is not stage 1 of B: ranks and stages do other work",
        effect="excluded",
        aspect="stages",
    ),
    _Fact(
        name="counted operations",
        read=lambda facts: facts.options or None,
        meaning="jobs have other operations, so their times differ for this reason",
        effect="excluded",
        aspect="operations",
    ),
    _Fact(
        name="micro-batches of a step",
        read=lambda facts: _number(facts.micro_batch_count),
        meaning="a step is another amount of work: ranks, and steps of the verdict, are compared per "
        "micro-batch, and all else as it is; the ideal bubble differs, too",
        effect="large",
    ),
    _Fact(
        name="GPUs",
        read=lambda facts: _names([f"{count} x {name}" for name, count in sorted(facts.gpus.items())]),
        meaning="other GPUs, or another number: kernels take another time for this reason",
        effect="large",
    ),
    _Fact(
        name="ranks in the reports",
        read=lambda facts: _number(facts.lane_count),
        meaning="sums and waits are of other ranks; ranks of one run only are listed as new or gone",
        effect="large",
    ),
    _Fact(
        name="ranks of the run",
        read=lambda facts: _number(facts.run_size),
        meaning="collectives of more ranks take longer, and the work of a rank may be another",
        effect="large",
    ),
    _Fact(
        name="replicas and tensor-parallel ranks",
        read=lambda facts: (
            f"{facts.replica_count} x {facts.tensor_count}"
            if facts.replica_count and facts.tensor_count
            else None
        ),
        meaning="the model is split another way, so ranks do other work",
        effect="large",
    ),
    _Fact(
        name="schedule",
        read=lambda facts: facts.schedule if facts.schedule not in ("", "unknown") else None,
        meaning="the bubble of the schedule differs by itself",
    ),
    _Fact(
        name="chunks of a stage",
        read=lambda facts: _number(facts.chunk_count),
        meaning="the bubble of the schedule differs by itself",
    ),
    _Fact(
        name="machines",
        read=lambda facts: _number(facts.machine_count),
        meaning="other messages cross machines, so transfers take another time",
    ),
    _Fact(
        name="GPU driver",
        read=lambda facts: _names(facts.drivers),
        meaning="launches and kernels may take another time for this reason",
    ),
    _Fact(
        name="CUDA of the driver",
        read=lambda facts: _names(facts.cuda),
        meaning="kernels may be other ones, and take another time for this reason",
    ),
    _Fact(
        name="nsys",
        read=lambda facts: _names(facts.nsys),
        meaning="recording may slow the program by another amount",
    ),
    _Fact(
        name="what was recorded",
        read=lambda facts: _names(facts.recorded, most=99),
        meaning="recording more slows the program, and causes of gaps are known in one run only",
    ),
    _Fact(
        name="CUDA graphs",
        read=lambda facts: _names(facts.graph_modes),
        meaning="graphs are traced as a whole in one run, and by their kernels in the other",
    ),
    _Fact(
        name="naming rules of jobs",
        read=lambda facts: facts.preset or None,
        meaning="other ranges may count as jobs",
    ),
    _Fact(
        name="complete steps",
        read=lambda facts: _number(len(facts.steps)),
        meaning="the run with fewer steps limits how small a change is found",
        ratio=2.0,
        value=lambda facts: len(facts.steps),
    ),
    _Fact(
        name="error of the clocks",
        read=lambda facts: (
            "clocks cannot be compared"
            if not facts.is_on_one_clock
            else None
            if facts.bound_ns is None
            else format_time(facts.bound_ns)
        ),
        meaning="waits and transfers between machines are known to this error",
        ratio=3.0,
        value=lambda facts: (
            math.inf if not facts.is_on_one_clock or facts.bound_ns is None else float(facts.bound_ns)
        ),
    ),
)


def compare_facts(
    a: RunFacts, b: RunFacts, *, allowed: Collection[str] = (), names: tuple[str, str] = ("A", "B")
) -> pl.DataFrame:
    """Compare the facts of two runs.

    Args:
        a: Facts of run A.
        b: Facts of run B.
        allowed: Keys of `ASPECTS` that may differ.
        names: Of both in errors.

    Returns:
        Rows of `COMPARABILITY_TABLE`, those that differ first, by effect.

    Raises:
        ComparisonError: A run has no complete step, or the runs differ in an aspect that is not allowed.
    """
    for name, facts in zip(names, (a, b), strict=True):
        if not facts.steps:
            window = f" in {facts.window}" if facts.window else ""
            one = name if " " in name else f"run {name}"
            raise ComparisonError(
                f"{one} has no complete step{window}, so there is nothing to compare",
                "record at least one whole step, or name other steps (`RUN:10:14`)",
            )
    rows, recorded = [], (a.recorded, b.recorded)
    for fact in _FACTS:
        values = fact.read(a), fact.read(b)
        effect = fact.rate(a, b)
        is_capture = fact.aspect == "steps" and a.step_source == b.step_source == "capture"
        if effect == "excluded" and fact.aspect not in allowed:
            raise ComparisonError(
                f"{names[0]} and {names[1]} cannot be compared: {fact.name} {values[0]} in {names[0]}, "
                f"{values[1]} in {names[1]}; {fact.meaning}",
                f"`--allow-different {fact.aspect}` compares the rest; {ASPECTS[fact.aspect]}",
            )
        if effect == "noted" and fact.name == "what was recorded":
            more = ([name for name in own if name not in other] for own, other in (recorded, recorded[::-1]))
            own, other = (f"also {', '.join(names)}" if names else "less" for names in more)
            values = own, other
        meaning = None if effect == "same" else fact.meaning
        if is_capture:
            effect, meaning = "large", _CAPTURE
        if fact.name == "batches of inference" and a.batches == b.batches == "of unknown kinds":
            effect, meaning = "large", _MIXTURE
        if effect == "unknown":
            meaning = "not known of both runs, so a difference would not show"
        rows.append((fact.name, *values, effect, meaning))
    if a.recordings and a.recordings == b.recordings:
        meaning = "one recording: steps differ, all else is the same"
        if a.steps == b.steps:
            meaning = "one recording, compared with itself"
        rows.append(("recordings", "the same", "the same", "noted", meaning))
    order = pl.col("effect").replace_strict({"excluded": 0, "large": 1, "noted": 2, "unknown": 3, "same": 4})
    return pl.DataFrame(rows, schema=build_table_schema(_COLUMNS), orient="row").sort(
        order, maintain_order=True
    )


CARE = "so compare with care"  # ends a sentence on runs that differ in what times depend on


def find_other_work(table: pl.DataFrame) -> tuple[str, str, str] | None:
    """Find the first fact of `COMPARABILITY_TABLE` for which times differ by themselves, with both values."""
    rows = table.filter(pl.col("effect") == "large", pl.col("a") != pl.col("b"))["fact", "a", "b"].rows()
    return next(iter(rows), None)


def describe_comparability(table: pl.DataFrame) -> str:
    """Describe in a sentence how comparable two runs are."""
    differs = pl.col("a") != pl.col("b")
    is_large, is_noted = pl.col("effect") == "large", pl.col("effect") == "noted"
    alike = table.filter(is_large, ~differs)["fact"]
    for fact, reason in (
        ("source of steps", "a step is the whole capture"),
        ("batches of inference", "batches are of unknown kinds"),
    ):
        if fact in alike:
            return f"{reason} in both runs, {CARE}"
    for effect, consequence in (
        ((is_large | (pl.col("effect") == "excluded")) & differs, CARE),
        (is_noted, "and are alike in all else"),
    ):
        facts = table.filter(effect)["fact"].to_list()
        if facts:
            return f"the runs differ in {join_names(facts, most=len(facts))}, {consequence}"
    return "the setups are alike in all that was recorded of them"


def _number(value: float) -> str | None:
    return f"{value:g}" if value else None


def _names(values: Sequence[str], *, most: int = MOST_NAMES) -> str | None:
    shown = [*values[:most], *([f"{len(values) - most} more"] * (len(values) > most))]
    return ", ".join(shown) or None


def _list_same(table: pl.DataFrame) -> list[str]:
    same = table.filter(effect="same")["fact"].to_list()
    return [f"the same: {join_names(same)}"] if same else []


COMPARABILITY_TABLE: Table[[RunFacts, RunFacts]] = Table(
    name="comparability",
    title="Comparability",
    columns=_COLUMNS,
    caption="",
    rows=compare_facts,
    is_fixed=True,
    empty="nothing is known of the runs",
    view=View(
        columns=("fact", "a", "b", "effect", "meaning"),
        only=pl.col("effect") != "same",
        hidden="",
        notes=_list_same,
    ),
)


_ANY_CHANGE = 1.0  # relative noise; of few steps, where its size has no meaning


def describe_change(change: float) -> str:
    """Describe a relative change of a time.

    >>> describe_change(0.25), describe_change(2.02), describe_change(-0.2)
    ('25 % longer', '3.0 times as long', '20 % shorter')
    """
    return f"{format_share(-change)} shorter" if change < 0 else format_excess(change)


def since(row: Mapping[str, Any]) -> str:
    """Describe the first step of a change that began inside B; "" otherwise."""
    return "" if row["since_step"] is None else f" since step {row['since_step']}"


def is_any_change_noise(row: Mapping[str, Any]) -> bool:
    """Return whether there are so few steps that noise explains any change."""
    noise = row["noise_fraction"]
    return noise is not None and noise >= _ANY_CHANGE


def rate(row: Mapping[str, Any], comparison: Comparison) -> Confidence:
    """Rate a change.

    Certain with twice the noise in three steps and with what runs differ by themselves, a guess where steps
    are inferred or may be other work.
    """
    noise = row["noise_fraction"]
    are_inferred = any(facts.step_source in ("inferred", "capture") for facts in comparison.facts)
    if noise is None or are_inferred or comparison.may_be_other_batches:
        return "guess"
    if not row["is_change"]:
        return "guess" if is_any_change_noise(row) else "certain"
    count = min(row["a_step_count"], row["b_step_count"])
    is_clear = abs(row["change_fraction"]) >= 2 * noise and count >= CERTAIN_STEPS
    return "certain" if is_clear and comparison.knows_noise_of_runs else "likely"


_MOST_ALIKE = 0.5  # part of a shared change by which single ranks may differ from it


def describe_members(comparison: Comparison) -> list[Finding]:
    """Describe the changes of ranks.

    A change that all ranks, or all ranks of a stage, share is one finding.
    """
    changes = comparison.changes("ranks").filter(pl.col("a").is_not_null(), pl.col("b").is_not_null())
    findings = []
    for sign in (1, -1):
        rows = changes.filter("is_change", pl.col("change_fraction") * sign > 0)
        if len(rows) == len(changes) > 1 and _is_alike(rows):
            findings.append(_describe_group(comparison, rows, stage=None))
            rows = _exceptions(rows)
        for members in rows.partition_by("stage", maintain_order=True):
            stage = members["stage"][0]
            of_stage = changes.filter(pl.col("stage").eq_missing(pl.lit(stage, pl.Int64)))
            is_whole = stage is not None and len(members) == len(of_stage) and changes["stage"].n_unique() > 1
            if is_whole and _is_alike(members):
                findings.append(_describe_group(comparison, members, stage=stage))
                members = _exceptions(members)
            of_rank = "" if stage is None else f" (stage {stage})"
            findings += [
                _describe(
                    comparison,
                    row,
                    f"{row['subject']}{of_rank} computes",
                    pl.col("label") == row["subject"],
                    label=row["subject"],
                    stage=stage,
                    kind="rank",
                    subject="rank",
                )
                for row in members.iter_rows(named=True)
            ]
    return _fold(comparison, findings)


def _is_alike(rows: pl.DataFrame) -> bool:
    return len(_exceptions(rows)) <= len(rows) // 4


def _exceptions(rows: pl.DataFrame) -> pl.DataFrame:
    usual = to_float(rows["change_fraction"].median())
    apart = (pl.col("change_fraction") - usual).abs()
    least = pl.max_horizontal(pl.lit(_MOST_ALIKE * abs(usual)), "noise_fraction", "least_fraction")
    return rows.filter(apart > least)


def _describe_group(comparison: Comparison, rows: pl.DataFrame, *, stage: int | None) -> Finding:
    starts = rows["since_step"].unique()
    of_group = rows.select(
        pl.col("a", "b", "change_fraction", "noise_fraction", "least_fraction").median(),
        pl.col("a_step_count", "b_step_count").min(),
        pl.col("is_change", "is_among_peers").all(),
        since_step=pl.lit(starts[0] if len(starts) == 1 else None, pl.Int64),
    )
    row = of_group.row(0, named=True)
    if stage is None:
        label = f"all {len(rows)} ranks"
        return _describe(
            comparison,
            row,
            f"{label} compute",
            pl.lit(value=True),
            label=label,
            stage=None,
            kind="ranks",
            subject="run",
        )
    label = f"stage {stage}"
    machine = comparison.find_machine(rows["subject"].to_list())
    ranks = f"{len(rows)} ranks{f', all of {machine}' * bool(machine)}"
    of_stage = f"{rows['subject'][0]} ({label})" if len(rows) == 1 else f"{label} ({ranks})"
    return _describe(
        comparison,
        row,
        f"{of_stage} computes",
        pl.col("stage") == stage,
        label=label,
        stage=stage,
        kind="stage",
        subject="stage",
    )


def _describe(
    comparison: Comparison,
    row: dict[str, Any],
    words: str,
    lanes: pl.Expr,
    *,
    label: str,
    stage: int | None,
    kind: str,
    subject: Subject,
) -> Finding:
    """Describe the change of a rank, a stage or all ranks; `words`: subject and verb; `lanes`: their mask."""
    a, b, change = to_float(row["a"]), to_float(row["b"]), to_float(row["change_fraction"])
    gain_ns = comparison.predict_gain(lanes, a, b)
    peers = " relative to the others" if row["is_among_peers"] else ""
    return Finding(
        kind=kind,
        text=f"{words} {describe_change(change)}{peers}{since(row)}: {format_time(b)} instead of"
        f" {format_time(a)} {comparison.per_text}",
        confidence=rate(row, comparison),
        subject=subject,
        gain_ns=gain_ns,
        gain_fraction=comparison.share(gain_ns),
        label=label,
        stage=stage,
        since_step=row["since_step"],
        value_ns=b,
        usual_ns=a,
        excess_fraction=row["change_fraction"],
        noise_fraction=row["noise_fraction"],
        sample_count=row["b_step_count"],
    )


_MOST_SINGLE = 2


def _fold(comparison: Comparison, findings: list[Finding]) -> list[Finding]:
    """Fold many single ranks into one finding; all ranks of a machine are named by it."""
    single = [finding for finding in findings if finding.kind == "rank"]
    if len(single) <= _MOST_SINGLE:
        return findings
    kept = [finding for finding in findings if finding.kind != "rank"]
    for sign, word in ((1, "longer"), (-1, "shorter")):
        group = [finding for finding in single if to_float(finding.excess_fraction) * sign > 0]
        if len(group) <= 1:
            kept += group
            continue
        group.sort(key=lambda finding: natural_key(str(finding.label)))
        labels = [str(finding.label) for finding in group]
        a, b = (sum(to_float(getattr(one, name)) for one in group) for name in ("usual_ns", "value_ns"))
        gain_ns = comparison.predict_gain(pl.col("label").is_in(labels), a, b)
        most = max(abs(to_float(finding.excess_fraction)) for finding in group)
        machine, names = comparison.find_machine(labels), join_names(labels)
        if machine:
            names = f"all {len(labels)} ranks of {machine} ({names})"
        kept.append(
            Finding(
                kind="rank",
                text=f"{names} compute {word}, up to {describe_change(sign * most)}",
                confidence=group[0].confidence,
                subject="machine" if machine else "run",
                label=machine,
                gain_ns=gain_ns,
                gain_fraction=comparison.share(gain_ns),
                excess_fraction=sign * most,
                sample_count=group[0].sample_count,
            )
        )
    return kept


_MOST_CAUSES = 2


def describe_bubble(comparison: Comparison, earlier: Sequence[Finding] = ()) -> list[Finding]:
    """Describe the change of the bubble with the parts that changed most; none within noise.

    What ranks and links explain of it, `earlier` findings, is not its gain.
    """
    changes = _find_cause_changes(comparison)
    is_change = pl.col("is_change").fill_null(value=not comparison.do_steps_differ)
    changes = changes.with_columns(is_change & (pl.col("change_fraction").abs() >= LEAST_CHANGE))
    changed = changes.filter("is_change").sort(pl.col("change_fraction").abs(), descending=True)
    if changed.is_empty():
        return []
    causes = changed.filter(pl.col("subject") != "bubble")
    row = changes.filter(subject="bubble").row(0, named=True)
    listed = [
        f"{CAUSE_WORDS.get(cause, cause)} {difference * 100:+.1f}"
        for cause, difference in causes.head(_MOST_CAUSES).select("subject", "change_fraction").iter_rows()
    ]
    because = f" ({', '.join(listed)} points)" if listed else ""
    name = "the bubble" if any(facts.has_passes for facts in comparison.facts) else "the time without compute"
    after = f"{format_share(row['b'])} of {'the capture' if comparison.is_of_captures else 'a step'}"
    if row["is_change"]:
        word = "grew" if row["change_fraction"] > 0 else "shrank"
        text = f"{name} {word}{since(row)} from {format_share(row['a'])} to {after}{because}"
    else:
        text = f"{name} is {after} as before, with other causes{because}"
        row = causes.row(0, named=True)
    size_ns = abs(row["change_fraction"]) * comparison.step_ns
    explained_ns = sum(
        finding.gain_ns
        for finding in earlier
        if to_float(finding.excess_fraction) * row["change_fraction"] > 0
    )
    gain_ns = max(0.0, size_ns - explained_ns)
    if gain_ns < MOST * size_ns:
        text += "; other lines explain most"
    return [
        Finding(
            kind="bubble",
            text=text,
            confidence=_rate_sum(row, comparison),
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=comparison.share(gain_ns),
            since_step=row["since_step"],
            excess_fraction=row["change_fraction"],
            noise_fraction=row["noise_fraction"],
            sample_count=row["b_step_count"],
        )
    ]


def _find_cause_changes(comparison: Comparison) -> pl.DataFrame:
    """Find the changes of the shares of causes; as one cause, if the clocks of a run tell fewer of them.

    `message` is a wait or a transfer, so a change of it may be one of the clocks alone; likewise
    `collective`.
    """
    changes = comparison.changes("bubbles").filter(unit="fraction")
    wholes = changes.filter(pl.col("is_change"), pl.col("subject").is_in(["message", "collective"]))[
        "subject"
    ]
    if wholes.is_empty():
        return changes
    parts = {f"{whole}_{part}": whole for whole in wholes for part in ("wait", "transfer")}
    keys = ["stage", "subject", "metric", "unit", "step"]
    added = [
        run["bubbles"]
        .filter(unit="fraction")
        .with_columns(pl.col("subject").replace(parts))
        .group_by(*keys, pl.selectors.by_name("run", require_all=False), maintain_order=True)
        .agg(pl.col("value").sum(), pl.col("least").first())
        for run in comparison.samples
    ]
    return find_changes(*added)


def describe_links(comparison: Comparison) -> list[Finding]:
    """Describe the links whose transfers take longer or shorter: the one that changed most, and how many."""
    changes = comparison.changes("links")
    findings = []
    for sign, word in ((1, "longer"), (-1, "shorter")):
        rows = changes.filter("is_change", pl.col("change_fraction") * sign > 0).sort(
            (pl.col("b") - pl.col("a")).abs(), descending=True
        )
        if rows.is_empty():
            continue
        row = rows.row(0, named=True)
        gain_ns = comparison.predict_link_gain(rows)
        name = f"{row['subject']}{comparison.place_link(row['subject'])}"
        times = f"{format_time(row['b'])} instead of {format_time(row['a'])}"
        change = describe_change(row["change_fraction"])
        total = len(changes.drop_nulls("change_fraction"))
        if len(rows) == 1:
            text = f"messages {name} need {change}: {times}"
        elif len(rows) == total:
            text = f"messages need {word} on all {total} links, most on {name}: {times}"
        else:
            text = f"messages need {word} on {len(rows)} of {total} links, most on {name}: {times} ({change})"
        findings.append(
            Finding(
                kind="link",
                text=text,
                confidence=rate(row, comparison),
                subject="link",
                gain_ns=gain_ns,
                gain_fraction=comparison.share(gain_ns),
                label=row["subject"],
                stage=row["stage"],
                value_ns=row["b"],
                usual_ns=row["a"],
                excess_fraction=row["change_fraction"],
                noise_fraction=row["noise_fraction"],
                sample_count=row["b_step_count"],
            )
        )
    return findings


def describe_work(comparison: Comparison) -> list[Finding]:
    """Describe the change of the time and number of computing kernels, and the families it is in."""
    rows = comparison.changes("steps").filter(subject="kernels").drop_nulls(["a", "b"])
    total, mean = (
        comparison.changes("kernels").filter(metric=metric) for metric in (KERNEL_TOTAL, KERNEL_MEAN)
    )
    # of all steps: the changes of both may begin in others
    sides = ("a", "b_of_all")
    counts = total.join(mean, on="subject").select(pl.col(run) / pl.col(f"{run}_right") for run in sides)
    a, b = map(to_float, counts.sum().row(0))
    if rows.is_empty() or not a:
        return []
    row = rows.row(0, named=True)
    is_longer = row["is_change"] is not False and abs(row["change_fraction"]) >= LEAST_CHANGE
    if not is_longer and abs(b / a - 1) < LEAST_CHANGE:
        return []
    size = pl.col("b").fill_null(0) - pl.col("a").fill_null(0)
    families = (
        comparison.changes("families")
        .filter(pl.col("subject") != "communication", size.abs() >= LEAST_SHARE * comparison.step_ns)
        .sort(-size.abs(), "subject")
        .head(_MOST_CAUSES)
    )
    parts = [
        f"{family} {'+' if change > 0 else '-'}{format_time(abs(change))}"
        for family, change in families.select("subject", size).iter_rows()
    ]
    # each may take as long as before
    lead = f"{b:,.0f} kernels instead of {a:,.0f}" if abs(b / a - 1) >= LEAST_CHANGE else "kernels"
    change = f"{describe_change(row['change_fraction'])} in sum" if is_longer else "as long"
    more = f" ({'; '.join(parts)})" if parts else ""
    text = (
        f"{lead} take {change}:"
        f" {format_time(row['b'])} instead of {format_time(row['a'])} per rank, {comparison.per_text}"
        f"{more}"
    )
    return [_kernel_finding(comparison, text, abs(row["b"] - row["a"]), _rate_sum(row, comparison))]


def describe_kernels(comparison: Comparison) -> list[Finding]:
    """Describe the kernel whose total changed most, and kernels of one run only.

    None of less than `LEAST_SHARE` of a step.
    """
    changes = comparison.changes("kernels").filter(metric=KERNEL_TOTAL).drop_nulls("subject")
    sized = (
        changes.with_columns(size=(pl.col("b").fill_null(0) - pl.col("a").fill_null(0)).abs())
        .filter(pl.col("size") >= LEAST_SHARE * comparison.step_ns)
        .sort("size", descending=True)
    )
    findings, others = [], changes.filter("is_change").height - 1
    more = f"; {format_count(others, 'other kernel')} changed, too" if others > 0 else ""
    for row in sized.filter(pl.col("is_change")).head(1).iter_rows(named=True):
        text = (
            f"kernel `{cut_name(row['subject'])}` takes {describe_change(row['change_fraction'])} in sum"
            f"{since(row)}: {format_time(row['b'])} instead of {format_time(row['a'])} per rank,"
            f" {comparison.per_text}{more}"
        )
        findings.append(_kernel_finding(comparison, text, row["size"], _rate_sum(row, comparison)))
    new, gone = (sized.filter(pl.col(side).is_null()) for side in ("a", "b"))
    parts = [
        f"only {run} runs {join_names([f'`{cut_name(name)}`' for name in rows['subject']])}"
        f" ({format_time(to_float(rows['size'].sum()))} per rank)"
        for run, rows in (("B", new), ("A", gone))
        if len(rows)
    ]
    if parts:
        size = max(to_float(new["size"].sum()), to_float(gone["size"].sum()))
        findings.append(_kernel_finding(comparison, "other kernels: " + ", ".join(parts), size, "certain"))
    return findings


def _rate_sum(row: Mapping[str, Any], comparison: Comparison) -> Confidence:
    """Rate a change per rank, which other ranks may explain."""
    ranks = comparison.changes("ranks")
    return rate(row, comparison) if ranks["a"].count() == ranks["b"].count() else "guess"


def _kernel_finding(comparison: Comparison, text: str, size: float, confidence: str) -> Finding:
    return Finding(
        kind="kernel",
        text=text,
        confidence=confidence,  # type: ignore[arg-type]  # of `rate`
        subject="run",
        gain_ns=size,
        gain_fraction=comparison.share(size),
    )


_FIRST_STEPS = 2  # of A, with which its later steps are compared


def build_comparison_verdict(comparison: Comparison) -> Verdict:
    """Build the verdict of a comparison.

    Returns:
        At most `MOST_LINES` findings. The first one is on steps, the second one on an outstanding step, and
        the last one counts members within noise. Where no step differs, what does differ comes before
        them, kernels first.
    """
    steps = [_describe_steps(comparison)]
    steps += _describe_longest_step(comparison, steps[0])
    members = describe_members(comparison)
    links = describe_links(comparison)
    others = [*describe_bubble(comparison, [*members, *links]), *links]
    are_some = any(finding.kind in ("rank", "stage") for finding in members)
    if not are_some or max(run.lane_count for run in comparison.facts) == 1:
        others += describe_kernels(comparison)
    findings = sorted([*members, *others], key=lambda finding: -finding.gain_ns)
    are_steps_first = comparison.do_steps_differ or len(steps) > 1
    if not (are_steps_first or members):
        findings = [*describe_work(comparison), *findings]
    shown = findings[: MOST_LINES - 1 - len(steps)]
    last = _describe_rest(comparison, findings, are_all_shown=shown == findings)
    return Verdict(findings=(*steps, *shown, last) if are_steps_first else (*shown, *steps, last))


def _describe_steps(comparison: Comparison) -> Finding:
    both = comparison.changes("steps").filter(subject="step").drop_nulls(["a", "b"])
    if both.is_empty():
        text = "the length of steps cannot be compared: it is not known in both runs"
        return Finding(kind="step", text=text, confidence="certain", subject="run")
    row = both.row(0, named=True)
    a, b, change = row["a"], row["b"], row["change_fraction"]
    gain_ns = abs(b - a) if row["is_change"] else 0.0
    same = " as before"
    lengths = f"{format_time(b)} instead of {format_time(a)}"
    if format_time(a) == format_time(b):
        lengths = f"{format_time(b)}{same}"
    if comparison.per:
        raw = [to_float(run["steps"].filter(subject="step")["value"].median()) for run in comparison.raw]
        lengths += f" per micro-batch ({format_time(raw[1])} and {format_time(raw[0])} per step)"
    noise = ""
    if row["noise_fraction"] is not None:
        noise = f" (noise up to {format_percent(row['noise_fraction'])})"
        if not row["is_change"] and row["noise_fraction"] < row["least_fraction"]:
            noise = f" (less than {format_percent(row['least_fraction'])} does not count)"
    if row["is_change"]:
        text = f"steps take {describe_change(change)}{since(row)}: {lengths}{noise}"
    elif comparison.is_of_captures:
        text = f"the captures take {lengths}; no steps were found, so it is unknown which changes are noise"
    elif row["is_change"] is None:
        why = "too few of B's steps agree" if row["noise_fraction"] is not None else "a run has a single step"
        text = f"steps take {lengths}; {why}, so it is unknown whether that is noise"
    elif is_any_change_noise(row):
        text = f"steps take {lengths}; there are so few steps that any change may be noise"
    else:
        text = f"steps take the same time within noise: {lengths.removesuffix(same)}{noise}"
    means = [to_float(run["steps"].filter(subject="step")["value"].mean()) for run in comparison.samples]
    if a and b and abs(means[1] * a - means[0] * b) >= LEAST_CHANGE * means[0] * b:
        text += f"; on average {format_time(means[1])} instead of {format_time(means[0])}"
    text += _describe_own_change(comparison)
    if comparison.may_be_other_batches:
        text += "; batches of other requests take another time"
    return Finding(
        kind="step",
        text=text,
        confidence=rate(row, comparison),
        subject="run",
        gain_ns=gain_ns,
        gain_fraction=comparison.share(gain_ns),
        since_step=row["since_step"],
        value_ns=b,
        usual_ns=a,
        excess_fraction=change,
        noise_fraction=row["noise_fraction"],
        sample_count=row["b_step_count"],
    )


def _describe_longest_step(comparison: Comparison, steps: Finding) -> list[Finding]:
    """Describe a step of one run that is longer than any of the other beyond noise.

    As medians do not show it.

    A change of all steps explains as much of it. Steps of other numbers of micro-batches are not compared.
    """
    rows = compare_longest_steps(*comparison.samples).filter("is_change")
    if comparison.per or rows.is_empty():
        return []
    row = rows.row(0, named=True)
    a, b = row["a"], row["b"]
    common_ns = to_float(steps.value_ns) - to_float(steps.usual_ns) if steps.gain_ns else 0.0
    run, other, sign = (1, "A", 1) if b > a else (0, "B", -1)
    noise_ns = max(row["noise_fraction"], LEAST_CHANGE) * a
    if not 0 <= sign * common_ns < abs(b - a) - noise_ns:  # the rest of the change is noise, or the opposite
        return []
    spans = comparison.samples[run]["steps"].filter(subject="step").sort("value", descending=True)
    step, long_ns, short_ns = spans["step"][0], max(a, b), min(a, b)
    text = (
        f"the longest step of {'AB'[run]}, {step}, is longer than any of {other}: {format_time(long_ns)}"
        f" instead of at most {format_time(short_ns)}, {describe_change(long_ns / short_ns - 1)}"
    )
    return [
        Finding(
            kind="long_step",
            text=text,
            confidence=steps.confidence if steps.confidence == "guess" else "likely",
            subject="step",
            gain_ns=abs(b - a) / len(spans),
            gain_fraction=comparison.share(abs(b - a) / len(spans)),
            step=step,
            value_ns=b,
            usual_ns=a,
            excess_fraction=row["change_fraction"],
            noise_fraction=row["noise_fraction"],
            sample_count=row["b_step_count"],
        )
    ]


def _describe_own_change(comparison: Comparison) -> str:
    """Describe a change of the length of steps inside A, which makes its median doubtful; "" without one."""
    steps = comparison.samples[0]["steps"].filter(subject="step").sort("step")
    own = find_changes(steps.head(_FIRST_STEPS), steps).filter(
        pl.col("is_change"), pl.col("since_step").is_not_null()
    )
    of_lanes = comparison.changes("ranks")["a_step_count"].drop_nulls()
    is_mixed = bool((of_lanes < len(steps)).any())  # steps of other GPUs take another time
    if own.is_empty() or is_mixed or len(steps) < 2 * _FIRST_STEPS or "run" in steps.columns:
        return ""
    row = own.row(0, named=True)
    return f"; in A itself they take {describe_change(row['change_fraction'])}{since(row)}"


def _describe_rest(comparison: Comparison, findings: list[Finding], *, are_all_shown: bool) -> Finding:
    """Count the ranks, links and stages within noise, and others."""
    if min(len(facts.steps) for facts in comparison.facts) < 2:
        text = "a run has a single step, so it is unknown which changes of ranks and links are noise"
        return Finding(kind="same", text=text, confidence="certain", subject="run")
    parts = []
    for name, noun in (("ranks", "rank"), ("links", "link")):
        changes = comparison.changes(name)
        same = changes.filter(pl.col("is_change") == False)  # noqa: E712  # nulls are unknown
        unmatched = changes.filter(pl.col("a").is_null() | pl.col("b").is_null())
        unknown = len(changes) - len(same) - len(unmatched) - int(changes["is_change"].sum())
        limit = to_float(same["least_fraction"].median())
        every = "all " if len(same) == len(changes) > 1 else ""
        sentences = (  # number of members, and the sentence on them
            (len(same), f"{every}{{}} changed by noise, or by less than {format_percent(limit)}"),
            (len(unmatched), "{} in one run only"),
            (unknown, "unknown whether {} changed"),
        )
        parts += [text.format(format_count(count, noun)) for count, text in sentences if count]
    text = ", ".join(parts) or "no other rank or link could be compared"
    lead = "no other change of ranks, bubble or links beyond noise"
    lead = lead if are_all_shown else "more changes in the tables"
    if not findings:
        lead = "no change of ranks, bubble, links or kernels beyond noise"
    elif not comparison.knows_noise_of_runs:
        text += "; how much runs differ by themselves is unknown, as A is one run"
    return Finding(kind="same", text=f"{lead}: {text}", confidence="certain", subject="run")
