"""Which ranges are jobs and steps: rules are chosen, or found from the data, and applied to names.

A report has many ranges and few names of jobs, so every name is asked once; one expression for all rules first
throws out what none of them wants. The reports of a run hold the same names, so answers are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import find_distinct, is_among, numbers, pack
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.report import NAME, RANGES
from nsys_pp.frames.training import DIRECTION, JOB_KIND, JOB_KINDS
from nsys_pp.training.report.inner_jobs import nest_jobs
from nsys_pp.training.report.presets import (
    NUMBERS,
    WORDS,
    Preset,
    Rule,
    join_patterns,
    list_presets,
    load_preset,
    make_job_rule,
    make_step_rule,
    whole,
)

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

__all__ = [
    "NAMED_JOBS",
    "NAMED_STEPS",
    "Rules",
    "choose_rules",
    "list_presets",
    "name_jobs",
    "name_steps",
    "presets_that_read",
]

NAMED_JOBS = build_schema(
    {  # ranges that are jobs; in order of range_id
        **RANGES,
        "kind": JOB_KIND,
        "outer_id": pl.Int64,  # range_id of the innermost job around it; null where none
        "direction": DIRECTION,
        **dict.fromkeys(NUMBERS, pl.Int64),
        "role": pl.String,
    }
)
NAMED_STEPS = build_schema(
    {  # ranges that are steps; in order of range_id
        **RANGES,
        "step": pl.Int64,  # null where the name has no number
        "is_numbered": pl.Boolean,
    }
)
_LEAST_SIGNS = 2  # different names that it takes to tell a preset
_LEAST_NUMBERS = 3  # ranges whose names count up are steps
_REMEMBERED = 64  # answers of each sort: as many as a pipeline has stages that speak differently
_MOST_NAMES = 5_000  # to remember them by; of more, asking is not what takes time
_ANY_NUMBER = (Rule(pattern="(?P<step>[0-9]{1,15})", groups=("step",)),)
_Asked: TypeAlias = "frozenset[tuple[str | None, ...]]"
_Tell: TypeAlias = "_lru_cache_wrapper[pl.DataFrame]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which ranges are jobs and steps; the first rule that fits counts.

    Attributes:
        name: Of the preset; "" where none was asked for and none fits.
        title: Which programs the preset is for; "" likewise.
        jobs: Rules for jobs.
        steps: Rules for steps.
        share: Of the ranges that some fitting preset takes for jobs, how many this one does; None unless
            the preset was detected.
        unmatched: What the user gave as `--job-pattern` and `--step-pattern` that matches no name of this report. Silence is
            right for one report of many: only what matches in none of them is a mistake.
    """

    name: str = ""
    title: str = ""
    jobs: tuple[Rule, ...] = ()
    steps: tuple[Rule, ...] = ()
    share: float | None = None
    unmatched: tuple[str, ...] = ()

    def describe(self) -> str:
        """Say which preset it is.

        >>> Rules(name="plain", title="plain names", share=0.961).describe()
        'preset `plain` (plain names): 96 % of what looks like jobs'
        """
        if not self.name:
            return "no preset"
        share = "" if self.share is None else f": {100 * self.share:.0f} % of what looks like jobs"
        return f"preset `{self.name}` ({self.title}){share}"


def choose_rules(
    ranges: pl.DataFrame,
    *,
    preset: str | None = None,
    job_patterns: Sequence[str] = (),
    step_patterns: Sequence[str] = (),
) -> Rules:
    """Choose the rules for a report: what the user says first, then those of a preset.

    Without `preset`, it is the one whose signs are among the names and that names the most ranges.

    Args:
        ranges: `RANGES`.
        preset: Name of a preset, or path of a file of rules.
        job_patterns: Expressions for whole names, each with `KIND=` before it, with a group `kind`, or neither.
        step_patterns: Likewise for steps; the group `step`, or else the first one, is the number.

    Raises:
        NsysPPError: There is no such preset, or rules are wrong.
    """
    jobs = tuple(map(make_job_rule, job_patterns))
    steps = tuple(map(make_step_rule, step_patterns))
    unmatched = _find_unmatched(
        ranges["name"],
        {f"--job-pattern {text}": rule for text, rule in zip(job_patterns, jobs, strict=True)}
        | {f"--step-pattern {text}": rule for text, rule in zip(step_patterns, steps, strict=True)},
    )
    chosen, share = _detect(ranges["name"]) if preset is None else (load_preset(preset), None)
    if chosen is None:
        return Rules(jobs=jobs, steps=steps, unmatched=unmatched)
    return Rules(
        name=chosen.name,
        title=chosen.title,
        jobs=jobs + chosen.jobs,
        steps=steps + chosen.steps,
        share=share,
        unmatched=unmatched,
    )


def presets_that_read(ranges: pl.DataFrame) -> list[str]:
    """List the presets by whose rules some ranges would be jobs, whatever else speaks against them.

    A preset is only detected where enough names speak for it; this says which one is worth asking for.

    Args:
        ranges: `RANGES`, any order.

    Returns:
        Names of presets: those first of which a sign is there, then by how many ranges would be jobs.
    """
    names = ranges.select(pl.col("name").cast(pl.String)).drop_nulls().unique()
    found = []
    for preset in list_presets():
        if count := len(name_jobs(ranges, Rules(jobs=preset.jobs))):
            is_sign = _contains(join_patterns([part for sign in preset.signs for part in sign]))
            found.append((not names.select(is_sign.any()).item(), -count, preset.name))
    return [name for _, _, name in sorted(found)]


def name_jobs(ranges: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Find the ranges that are jobs, and what their names say.

    Of jobs within jobs, those are left out that say nothing new (directly in one of the same kind, or,
    of kind "other", of the same name) and those within sends and receives. Data that is loaded in a range which ends
    on another thread is loaded beside the work: nobody waits for that, it is no job.

    Args:
        ranges: `RANGES`, any order.
        rules: From `choose_rules`.

    Returns:
        `NAMED_JOBS`. Empty where no name is that of a job.
    """
    found = _match(ranges, rules.jobs, _tell_jobs)
    is_beside = is_among(found["kind"], ("data",)) & found["end_thread_key"].is_not_null().to_numpy()
    awaited = found[np.flatnonzero(~is_beside)] if is_beside.any() else found
    return conform(nest_jobs(awaited), NAMED_JOBS)


def name_steps(ranges: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Find the ranges that are steps, and their numbers.

    Where no name is that of a step, ranges are whose names are nothing but numbers that count up, if there
    are jobs to look for.

    Args:
        ranges: `RANGES`, any order.
        rules: From `choose_rules`.

    Returns:
        `NAMED_STEPS`; the same step may stand there for several threads and domains. Empty where none is known.
    """
    found = _match(ranges, rules.steps, _tell_steps)
    if found.is_empty() and rules.jobs:
        found = _counting_up(_match(ranges, _ANY_NUMBER, _tell_steps))
    return conform(found.with_columns(is_numbered=pl.col("step").is_not_null()), NAMED_STEPS)


def _find_unmatched(names: pl.Series, rules: Mapping[str, Rule]) -> tuple[str, ...]:
    """List what of `rules` matches no name."""
    if not rules:
        return ()
    found = (
        names.unique().to_frame("name").select(_fits(rule).any().alias(text) for text, rule in rules.items())
    )
    return tuple(text for text, is_there in zip(rules, found.row(0), strict=True) if not is_there)


def _detect(names: pl.Series) -> tuple[Preset | None, float | None]:
    """Find the preset that names the most ranges, and which share of those that fitting presets name."""
    first, which = find_distinct(numbers(names, null=-1))
    count_of = dict(zip(names[first].to_list(), np.bincount(which).tolist(), strict=True))
    count_of.pop(None, None)
    find = _find_takers if len(count_of) <= _MOST_NAMES else _find_takers.__wrapped__
    taken = find(frozenset(count_of))
    sum_of = {preset: sum(count_of[name] for name in names_of) for preset, names_of in taken.items()}
    every = sum(count_of[name] for name in frozenset().union(*taken.values()))
    if not every:
        return None, None
    best = max(sum_of, key=lambda preset: sum_of[preset])
    return load_preset(best), sum_of[best] / every


@lru_cache(_REMEMBERED)
def _find_takers(names: frozenset[str]) -> dict[str, frozenset[str]]:
    """Find the presets whose signs are among names, and which names each of them takes for jobs."""
    every = list_presets()
    told = pl.DataFrame({"name": list(names)}, schema={"name": pl.String})
    is_sign = _contains(join_patterns([part for preset in every for sign in preset.signs for part in sign]))
    signs = told.filter(is_sign)
    fitting = [] if signs.is_empty() else _find_fitting(every, signs)
    takes = {
        preset.name: _contains(join_patterns([rule.pattern for rule in preset.jobs])) for preset in fitting
    }
    is_taken = told.select(**takes)
    return {preset: frozenset(told["name"].filter(is_taken[preset]).to_list()) for preset in takes}


def _find_fitting(presets: Sequence[Preset], names: pl.DataFrame) -> list[Preset]:
    """Keep the presets of which one sign has names for all its parts, and enough of them."""
    signs = [(preset, sign) for preset in presets for sign in preset.signs]
    parts = [[_contains(whole(part)) for part in sign] for _, sign in signs]
    has_all = [pl.all_horizontal(part.any() for part in sign) for sign in parts]
    has_enough = [pl.any_horizontal(sign).sum() >= _LEAST_SIGNS for sign in parts]
    found = names.select(
        (both[0] & both[1]).alias(str(at)) for at, both in enumerate(zip(has_all, has_enough, strict=True))
    )
    names_of = {preset.name for (preset, _), fits in zip(signs, found.row(0), strict=True) if fits}
    return [preset for preset in presets if preset.name in names_of]


def _match(ranges: pl.DataFrame, rules: tuple[Rule, ...], tell: _Tell) -> pl.DataFrame:
    """Find the ranges that a rule fits.

    Returns:
        `RANGES` in order of range_id, with what their names tell; that replaces columns of the same name.
    """
    keys = ("name", *(key for key in ("domain", "category") if any(getattr(rule, key) for rule in rules)))
    if not ranges["range_id"].is_sorted():
        ranges = ranges.sort("range_id")
    first, which = find_distinct(pack(*(numbers(ranges[key], null=-1) for key in keys)))
    asked = ranges[list(keys)][first].rows()
    ask = tell if len(asked) <= _MOST_NAMES else tell.__wrapped__
    told = ask(frozenset(asked), keys, rules)
    row_of = {key: row for row, key in enumerate(told[list(keys)].rows())}
    row = np.array([row_of.get(key, -1) for key in asked], dtype=np.int64)[which]
    found = np.flatnonzero(row >= 0)
    others = [column for column in ranges.columns if column in keys or column not in told.columns]
    return ranges[others][found].hstack(told[[name for name in told.columns if name not in keys]][row[found]])


@lru_cache(_REMEMBERED)
def _tell_jobs(asked: _Asked, keys: tuple[str, ...], rules: tuple[Rule, ...]) -> pl.DataFrame:
    """Say what names of jobs tell: `keys`, kind, direction, numbers, role; without names that no rule fits."""
    found = _ask(asked, keys, rules, groups=(*NUMBERS, *WORDS))
    fixed = pl.DataFrame(
        [(number, rule.kind, rule.direction, rule.role) for number, rule in enumerate(rules)],
        schema={"rule": pl.UInt32, "rule_kind": pl.String, "direction": DIRECTION, "rule_role": pl.String},
        orient="row",
    )
    told = pl.when(pl.col("kind").is_in(JOB_KINDS)).then("kind")
    return (
        found.join(fixed, on="rule", how="left")
        .with_columns(
            kind=pl.coalesce("rule_kind", told, pl.lit("other")).cast(JOB_KIND),
            role=pl.coalesce("rule_role", "role"),
        )
        .drop("rule", "rule_kind", "rule_role")
    )


@lru_cache(_REMEMBERED)
def _tell_steps(asked: _Asked, keys: tuple[str, ...], rules: tuple[Rule, ...]) -> pl.DataFrame:
    """Say what names of steps tell: `keys`, step; without names that no rule fits."""
    return _ask(asked, keys, rules, groups=("step",)).drop("rule")


def _ask(asked: _Asked, keys: Sequence[str], rules: Sequence[Rule], *, groups: Sequence[str]) -> pl.DataFrame:
    """Find which rule is the first that fits names.

    Args:
        asked: Names, with what else is in `keys`.
        keys: What a rule may look at.
        rules: The rules.
        groups: What names may tell.

    Returns:
        `keys`, `rule` (its place), and `groups`: what the name has there, null where nothing; numbers as such.
    """
    is_wanted = _contains(join_patterns([rule.pattern for rule in rules])) if rules else pl.lit(value=False)
    wanted = pl.DataFrame(list(asked), schema=dict.fromkeys(keys, pl.String), orient="row").filter(is_wanted)
    first = pl.coalesce(
        pl.lit(None, pl.UInt32),
        *(pl.when(_fits(rule)).then(pl.lit(number, pl.UInt32)) for number, rule in enumerate(rules)),
    )
    ruled = wanted.with_columns(rule=first).drop_nulls("rule")
    parts = [_extract(part, rules[part["rule"][0]]) for part in ruled.partition_by("rule")]
    nothing = ruled.clear().with_columns(pl.lit(None, pl.String).alias(group) for group in groups)
    return pl.concat([nothing, *parts], how="diagonal").with_columns(
        pl.col(keys).cast(NAME),
        pl.col([group for group in groups if group not in WORDS]).cast(pl.Int64, strict=False),
    )


def _fits(rule: Rule) -> pl.Expr:
    asked = {"name": rule.pattern, "domain": rule.domain, "category": rule.category}
    return pl.all_horizontal(
        _contains(whole(pattern), key) for key, pattern in asked.items() if pattern is not None
    )


def _extract(keys: pl.DataFrame, rule: Rule) -> pl.DataFrame:
    """Add what the groups of a rule say of names."""
    if not rule.groups:
        return keys
    found = pl.col("name").cast(pl.String).str.extract_groups(whole(rule.pattern))
    return keys.with_columns(found.struct.field(*rule.groups))


def _counting_up(ranges: pl.DataFrame) -> pl.DataFrame:
    """Keep the ranges of threads on which every one has the number after that of the one before it."""
    ordered = ranges.sort("thread_key", "start_ns")
    before = pl.struct("step", "end_ns").shift()
    follows = (pl.col("step") == before.struct.field("step") + 1) & (
        pl.col("start_ns") >= before.struct.field("end_ns")
    )
    is_sequence = follows.fill_null(value=True).all() & (pl.len() >= _LEAST_NUMBERS)
    return ordered.filter(is_sequence.over("thread_key")).sort("range_id")


def _contains(pattern: str, column: str = "name") -> pl.Expr:
    return pl.col(column).cast(pl.String).str.contains(pattern).fill_null(value=False)
