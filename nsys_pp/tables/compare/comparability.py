"""Differences of the facts of two runs, with their effect on the comparison; refusal of runs that cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import polars as pl
from msgspec import Struct

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.options import ASPECTS
from nsys_pp.tables.verdict.wording import format_time

EFFECT = pl.Enum(["same", "unknown", "noted", "large", "excluded"])
_COLUMNS = (
    Column("fact", pl.String, "name of the fact"),
    Column("a", pl.String, "value of run A; null: unknown"),
    Column("b", pl.String, "value of run B; null: unknown"),
    Column(
        "effect",
        EFFECT,
        "same: no difference that matters; unknown: not recorded in one of the runs; noted: times may differ for this reason; large: times"
        " differ for this reason; excluded: the runs are compared because `--allow-different` asks for it",
    ),
    Column("meaning", pl.String, "what the difference means for the comparison; null: no difference"),
)
_MOST_NAMES = 4


_CAPTURE = (
    "no steps were found, so a step is the whole capture: its times depend on how much was recorded, and only means of single"
    " kernels can be compared beyond doubt"
)


_MIXTURE = (
    "prefills and decodes are not told apart, so times of steps depend on the requests that were served: only means of single"
    " kernels can be compared, and of the same requests"
)
MOST_REQUESTS = 1.1
"""Ratio of the requests of decodes from which on their times differ for this reason."""


class ComparisonError(NsysPPError):
    """Two runs that cannot be compared."""


class _Fact(Struct, frozen=True, kw_only=True):
    """A fact to compare.

    Attributes:
        name: Its name.
        read: Reads its value from the facts of a run, as text; None: unknown.
        meaning: What a difference means.
        effect: See `EFFECT`.
        aspect: Key of `ASPECTS` by which a difference can be allowed; "": it is no reason to refuse.
    """

    name: str
    read: Callable[[RunFacts], str | None]
    meaning: str
    effect: str = "noted"
    aspect: str = ""


_FACTS = (
    _Fact(
        name="source of steps",
        read=lambda facts: facts.step_source or None,
        meaning="a step is something else in A than in B, so no time of a step can be compared",
        aspect="steps",
    ),
    _Fact(
        name="batches of inference",
        read=lambda facts: facts.batches or "none",
        meaning="a step is another kind of batch, or none, so no time of a step can be compared",
        aspect="steps",
    ),
    _Fact(
        name="requests of a decode",
        read=lambda facts: None if facts.decode_requests is None else f"{facts.decode_requests:.1f}",
        meaning="decodes of more requests take longer: times of steps, ranks and kernels differ for this reason",
        effect="large",
    ),
    _Fact(
        name="forwards and backwards",
        read=lambda facts: "known" if facts.has_passes else "unknown",
        meaning="compute is that of jobs in one run, and all compute in the other",
        aspect="jobs",
    ),
    _Fact(
        name="stages",
        read=lambda facts: _number(facts.stage_count),
        meaning="stage 1 of A is not stage 1 of B: ranks and stages do other work",
        aspect="stages",
    ),
    _Fact(
        name="counted operations",
        read=lambda facts: facts.options or None,
        meaning="jobs have other operations, so their times differ for this reason",
        aspect="operations",
    ),
    _Fact(
        name="micro-batches of a step",
        read=lambda facts: _number(facts.micro_batch_count),
        meaning="a step is another amount of work: ranks, and steps of the verdict, are compared per micro-batch, and all else"
        " as it is; the ideal bubble differs, too",
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
    ),
    _Fact(
        name="error of the clocks",
        read=lambda facts: _bound(facts),
        meaning="waits and transfers between machines are known to this error",
    ),
)
# Facts that differ a little between any two runs: only a large ratio counts.
_RATIOS: dict[str, tuple[Callable[[RunFacts], float], float]] = {
    "complete steps": (lambda facts: len(facts.steps), 2.0),
    "requests of a decode": (lambda facts: facts.decode_requests or 0.0, MOST_REQUESTS),
    "error of the clocks": (lambda facts: _bound_of(facts), 3.0),
}


def compare_facts(a: RunFacts, b: RunFacts, *, allowed: Collection[str] = ()) -> pl.DataFrame:
    """Compare the facts of two runs.

    Args:
        a: Facts of run A.
        b: Facts of run B.
        allowed: Keys of `ASPECTS` that may differ.

    Returns:
        Rows of `COMPARABILITY_TABLE`, those that differ first, by effect.

    Raises:
        ComparisonError: A run has no complete step, or the runs differ in an aspect that is not allowed.
    """
    for name, facts in (("A", a), ("B", b)):
        if not facts.steps:
            raise ComparisonError(
                f"run {name} has no complete step{f' in {facts.window}' if facts.window else ''}, so there is nothing to compare",
                "record at least one whole step, or name other steps (`RUN:10:14`)",
            )
    rows = []
    for fact in _FACTS:
        values = fact.read(a), fact.read(b)
        effect = "same" if _is_close(fact, a, b) else _rate(fact, *values)
        is_capture = fact.aspect == "steps" and a.step_source == b.step_source == "capture"
        if fact.aspect and effect == "noted":
            if fact.aspect not in allowed:
                raise _refusal(fact, *values)
            effect = "excluded"
        if effect == "noted" and fact.name == "what was recorded":
            values = _only(a.recorded, b.recorded), _only(b.recorded, a.recorded)
        meaning = None if effect == "same" else fact.meaning
        if is_capture:
            effect, meaning = "large", _CAPTURE
        if fact.name == "batches of inference" and a.batches == b.batches == "of unknown kinds":
            effect, meaning = "large", _MIXTURE
        if effect == "unknown":
            meaning = "not known of both runs, so a difference would not show"
        rows.append((fact.name, *values, effect, meaning))
    if a.recordings and a.recordings == b.recordings:
        is_same = a.steps == b.steps
        meaning = (
            "one recording: steps differ, all else is the same"
            if not is_same
            else "one recording, compared with itself"
        )
        rows.append(("recordings", "the same", "the same", "noted", meaning))
    frame = pl.DataFrame(rows, schema=build_table_schema(_COLUMNS), orient="row")
    order = pl.col("effect").replace_strict({"excluded": 0, "large": 1, "noted": 2, "unknown": 3, "same": 4})
    return frame.sort(order, maintain_order=True).pipe(conform, build_table_schema(_COLUMNS))


def describe_comparability(table: pl.DataFrame) -> str:
    """Describe in a sentence how comparable two runs are."""
    differing = table.filter(pl.col("effect").is_in(["large", "excluded"]), pl.col("a") != pl.col("b"))[
        "fact"
    ].to_list()
    alike = table.filter(pl.col("effect") == "large", pl.col("a") == pl.col("b"))["fact"].to_list()
    if alike:
        reason = (
            "a step is the whole capture" if "source of steps" in alike else "batches are of unknown kinds"
        )
        return f"{reason} in both runs, so compare with care"
    noted = table.filter(pl.col("effect") == "noted")["fact"].to_list()
    if differing:
        return f"the runs differ in {_join(differing)}, so compare with care"
    if noted:
        return f"the runs differ in {_join(noted)}, and are alike in all else"
    return "the runs are alike in all that was recorded of them"


def _is_close(fact: _Fact, a: RunFacts, b: RunFacts) -> bool:
    """Return whether a fact differs by less than its ratio."""
    if fact.name not in _RATIOS:
        return False
    read, ratio = _RATIOS[fact.name]
    low, high = sorted((read(a), read(b)))
    return low == high or high < ratio * low


def _rate(fact: _Fact, a: str | None, b: str | None) -> str:
    if a == b:
        return "same"
    if a is None or b is None:
        return "unknown"
    return fact.effect


def _refusal(fact: _Fact, a: str | None, b: str | None) -> ComparisonError:
    return ComparisonError(
        f"A and B cannot be compared: {fact.name} {a} in A, {b} in B; {fact.meaning}",
        f"`--allow-different {fact.aspect}` compares the rest; {ASPECTS[fact.aspect]}",
    )


def _number(value: float) -> str | None:
    return f"{value:g}" if value else None


def _names(values: Sequence[str], *, most: int = _MOST_NAMES) -> str | None:
    shown = [*values[:most], *([f"{len(values) - most} more"] * (len(values) > most))]
    return ", ".join(shown) or None


def _only(own: Sequence[str], other: Sequence[str]) -> str:
    more = [name for name in own if name not in other]
    return f"also {', '.join(more)}" if more else "less"


def _bound(facts: RunFacts) -> str | None:
    if not facts.is_on_one_clock:
        return "clocks cannot be compared"
    return None if facts.bound_ns is None else format_time(facts.bound_ns)


def _join(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def _count_same(table: pl.DataFrame) -> list[str]:
    """Count the facts that are equal."""
    same = table.filter(pl.col("effect") == "same")["fact"].to_list()
    names = (
        f"{', '.join(same[:_MOST_NAMES])} and {len(same) - _MOST_NAMES} more"
        if len(same) > _MOST_NAMES
        else _join(same)
    )
    return [f"the same: {names}"] if same else []


def _bound_of(facts: RunFacts) -> float:
    return math.inf if not facts.is_on_one_clock or facts.bound_ns is None else float(facts.bound_ns)


COMPARABILITY_TABLE: Table[[RunFacts, RunFacts]] = Table(
    name="comparability",
    title="Comparability",
    columns=_COLUMNS,
    caption="",
    build=compare_facts,
    is_fixed=True,
    empty="nothing is known of the runs",
    view=View(
        columns=("fact", "a", "b", "effect", "meaning"),
        only=pl.col("effect") != "same",
        hidden="",
        notes=_count_same,
    ),
)
