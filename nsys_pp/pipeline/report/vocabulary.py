"""Which ranges are jobs and steps: rules are chosen, or found from the data, and applied to names.

A report has many ranges and few names of jobs, so every name is asked once; one expression for all rules first
throws out what none of them wants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from nsys_pp.pipeline.report.inner_jobs import place_inner_jobs
from nsys_pp.pipeline.report.presets import (
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
from nsys_pp.schema import RANGES, build_schema, conform
from nsys_pp.training import DIRECTION, JOB_KIND, JOB_KINDS

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
        unmatched: What the user gave as `--job` and `--step` that matches no name of this report. Silence is
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
        {f"--job {text}": rule for text, rule in zip(job_patterns, jobs, strict=True)}
        | {f"--step {text}": rule for text, rule in zip(step_patterns, steps, strict=True)},
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
    found = _match(ranges, rules.jobs, groups=(*NUMBERS, *WORDS))
    fixed = pl.DataFrame(
        [(number, rule.kind, rule.direction, rule.role) for number, rule in enumerate(rules.jobs)],
        schema={"rule": pl.UInt32, "rule_kind": pl.String, "direction": DIRECTION, "rule_role": pl.String},
        orient="row",
    )
    told = pl.when(pl.col("kind").is_in(JOB_KINDS)).then("kind")
    return (
        found.join(fixed, on="rule", how="left", maintain_order="left")
        .with_columns(
            kind=pl.coalesce("rule_kind", told, pl.lit("other")).cast(JOB_KIND),
            role=pl.coalesce("rule_role", "role"),
        )
        .filter((pl.col("kind") != "data") | pl.col("end_thread_key").is_null())
        .pipe(place_inner_jobs)
        .pipe(conform, NAMED_JOBS)
    )


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
    found = _match(ranges, rules.steps, groups=("step",))
    if found.is_empty() and rules.jobs:
        found = _counting_up(
            _match(ranges, (Rule(pattern="(?P<step>[0-9]{1,15})", groups=("step",)),), groups=("step",))
        )
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
    counts = names.drop_nulls().value_counts(name="count").select(pl.col(names.name).cast(pl.String), "count")
    every = list_presets()
    is_sign = _contains(join_patterns([part for preset in every for sign in preset.signs for part in sign]))
    signs = counts.filter(is_sign)
    fitting = [] if signs.is_empty() else _find_fitting(every, signs)
    if not fitting:
        return None, None
    takes = {
        preset.name: _contains(join_patterns([rule.pattern for rule in preset.jobs])) for preset in fitting
    }
    sums = counts.select(
        pl.col("count").filter(pl.any_horizontal(takes.values())).sum().alias("*"),
        *(pl.col("count").filter(is_taken).sum().alias(name) for name, is_taken in takes.items()),
    ).row(0, named=True)
    if not sums["*"]:
        return None, None
    best = max(fitting, key=lambda preset: int(sums[preset.name]))
    return best, sums[best.name] / sums["*"]


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


def _match(ranges: pl.DataFrame, rules: Sequence[Rule], *, groups: Sequence[str]) -> pl.DataFrame:
    """Find the ranges that a rule fits.

    Returns:
        `RANGES` in order of range_id, with `rule`, the place of the first rule that fits, and `groups`: what the
        name has there, null where nothing; numbers as such. A group replaces a column of its name.
    """
    is_wanted = _contains(join_patterns([rule.pattern for rule in rules])) if rules else pl.lit(value=False)
    names = ranges.select(pl.col("name").unique()).drop_nulls().filter(is_wanted)["name"]
    rows = ranges.filter(pl.col("name").is_in(names.implode())).sort("range_id")
    keys = ["name", *(key for key in ("domain", "category") if any(getattr(rule, key) for rule in rules))]
    first = pl.coalesce(
        pl.lit(None, pl.UInt32),
        *(pl.when(_fits(rule)).then(pl.lit(number, pl.UInt32)) for number, rule in enumerate(rules)),
    )
    ruled = rows.select(keys).unique().with_columns(rule=first).drop_nulls("rule")
    parts = [_extract(part, rules[part["rule"][0]]) for part in ruled.partition_by("rule")]
    nothing = ruled.clear().with_columns(pl.lit(None, pl.String).alias(group) for group in groups)
    told = pl.concat([nothing, *parts], how="diagonal").with_columns(
        pl.col([group for group in groups if group not in WORDS]).cast(pl.Int64, strict=False)
    )
    return rows.drop(groups, strict=False).join(told, on=keys, nulls_equal=True, maintain_order="left")


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
