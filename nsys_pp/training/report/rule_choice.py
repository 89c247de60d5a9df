"""Choice of the naming rules of a report: rules of the user, and of the presets whose signs are among its names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

import numpy as np
import polars as pl
from msgspec.structs import replace

from nsys_pp.arrays.columns import is_among, numbers
from nsys_pp.arrays.names import as_texts, split_texts
from nsys_pp.arrays.types import Int64s
from nsys_pp.training.report.presets import (
    Preset,
    Rule,
    anchor_pattern,
    join_patterns,
    list_presets,
    load_preset,
    parse_job_rule,
    parse_step_rule,
)
from nsys_pp.training.report.range_names import RangeNames
from nsys_pp.training.report.vocabulary import (
    MOST_NAMES,
    Rules,
    contains,
    matches,
    name_jobs,
    name_steps,
)

_LEAST_SIGNS = 2  # distinct names that must match a sign for the detection of its preset
_LEAST_OF_INFERENCE = 1  # a capture of decodes has one name, a long one
_PLAIN = "plain"  # names that other presets read, too, are theirs
_PASSES = frozenset({"forward", "backward", "forward_backward"})
_CACHE_SIZE = 64  # reports of a run mostly have the same names


def choose_rules(
    ranges: pl.DataFrame,
    *,
    preset: str | None = None,
    job_patterns: Sequence[str] = (),
    step_patterns: Sequence[str] = (),
    names: RangeNames | None = None,
) -> Rules:
    """Choose the rules for a report: rules of the user first, then rules of a preset.

    By default, presets are detected by signs among the names. The preset with the most jobs comes first; others follow
    if they have jobs that no previous preset has, as PyTorch's below Lightning's. Presets of inference apply alone:
    the rollouts of a training are jobs.

    Args:
        ranges: `RANGES`.
        preset: Name of a preset, or path of a file of rules.
        job_patterns: Expressions for whole names of jobs; the kind is a prefix `KIND=` or a group `kind`, else
            "other".
        step_patterns: Expressions for names of steps; the group `step`, or else the first group, is the number.
        names: Names of the ranges; None: listed by this function.

    Raises:
        NsysPPError: The preset does not exist, or a rule is invalid.
    """
    jobs = tuple(map(parse_job_rule, job_patterns))
    steps = tuple(map(parse_step_rule, step_patterns))
    names = RangeNames(ranges) if names is None else names
    unmatched = _find_unmatched(
        names,
        {f"--job-pattern {text}": rule for text, rule in zip(job_patterns, jobs, strict=True)}
        | {f"--step-pattern {text}": rule for text, rule in zip(step_patterns, steps, strict=True)},
    )
    chosen, share = _detect(names) if preset is None else ([load_preset(preset)], None)
    rules = _join_presets(chosen, share)
    return replace(rules, jobs=jobs + rules.jobs, steps=steps + rules.steps, unmatched=unmatched)


def find_preset_readings(ranges: pl.DataFrame) -> dict[str, Int64s]:
    """Find the ranges that each preset would read if a user asked for it, also where its names are too few to be detected.

    Args:
        ranges: `RANGES`, any order.

    Returns:
        The `range_id` of outermost jobs by preset, of presets that read a forward or a backward; of steps for presets of
        inference. Presets with a sign among the names first, then by name. Empty if none reads any.
    """
    names = as_texts(ranges["name"].unique()).drop_nulls().to_frame("name")
    found = []
    for preset in list_presets():
        read = _read_steps(ranges, preset) if preset.is_inference else _read_passes(ranges, preset)
        if len(read):
            is_sign = contains(join_patterns([part for sign in preset.signs for part in sign]))
            found.append((not names.select(is_sign.any()).item(), preset.name, read))
    return {name: read for _, name, read in sorted(found, key=lambda each: each[:2])}


def _read_passes(ranges: pl.DataFrame, preset: Preset) -> Int64s:
    """Return the `range_id` of outermost jobs; none without a forward or a backward."""
    jobs = name_jobs(ranges, choose_rules(ranges, preset=preset.name))
    if not is_among(jobs["kind"], tuple(_PASSES)).any():
        return np.empty(0, dtype=np.int64)
    return numbers(jobs.filter(pl.col("outer_id").is_null())["range_id"])


def _read_steps(ranges: pl.DataFrame, preset: Preset) -> Int64s:
    """Return the `range_id` of steps by rules of this preset alone."""
    own = tuple(rule for rule in preset.steps if rule.source == preset.name)
    return numbers(name_steps(ranges, Rules(steps=own))["range_id"])


def _join_presets(chosen: Sequence[Preset], share: float | None) -> Rules:
    """Join the rules of presets."""
    if not chosen:
        return Rules()
    return Rules(
        name=chosen[0].name,
        title=chosen[0].title,
        others=tuple(preset.name for preset in chosen[1:]),
        jobs=tuple(rule for preset in chosen for rule in preset.jobs),
        steps=tuple(dict.fromkeys(rule for preset in chosen for rule in preset.steps)),
        share=share,
    )


def _find_unmatched(names: RangeNames, rules: Mapping[str, Rule]) -> tuple[str, ...]:
    """List the rules without a matching name."""
    unmatched = rules
    for texts in split_texts(names.name.texts) if rules else ():
        matched = texts.to_frame("name").select(
            matches(rule).any().alias(text) for text, rule in unmatched.items()
        )
        unmatched = {text: rule for text, rule in unmatched.items() if not matched[text].item()}
    return tuple(unmatched)


def _detect(names: RangeNames) -> tuple[list[Preset], float | None]:
    """Detect the presets of ranges, the preset with the most jobs first; without jobs, steps count.

    Returns:
        The presets, and the share of the first preset's jobs in the jobs of all matching presets; None without any.
    """
    texts = names.name.texts
    names_by_preset = _prefer_training(
        _find_job_names(frozenset(texts)) if len(texts) <= MOST_NAMES else _list_job_names(texts)
    )
    count_of = names.count(frozenset[str]().union(*names_by_preset.values()))
    sum_of = {
        preset: sum(count_of[name] for name in names_of) for preset, names_of in names_by_preset.items()
    }
    chosen: list[Preset] = []
    read: frozenset[str] = frozenset()
    for preset in sorted(sum_of, key=lambda preset: (-sum_of[preset], preset == _PLAIN)):
        if not names_by_preset[preset] <= read:
            chosen.append(load_preset(preset))
            read |= names_by_preset[preset]
    if not chosen:
        return [], None
    return chosen, sum_of[chosen[0].name] / sum(count_of[name] for name in read)


def _prefer_training(names_by_preset: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Drop the presets of inference, if presets of training have jobs."""
    training = {
        preset: names
        for preset, names in names_by_preset.items()
        if names and not load_preset(preset).is_inference
    }
    return training or names_by_preset


@lru_cache(_CACHE_SIZE)
def _find_job_names(names: frozenset[str | None]) -> dict[str, frozenset[str]]:
    """Find the job names of presets, as `_list_job_names`; the reports of a run have the same names."""
    return _list_job_names(tuple(names))


def _list_job_names(names: Sequence[str | None]) -> dict[str, frozenset[str]]:
    """List the presets with signs among names, and the job names of each; the names of steps, if it has no jobs."""
    fitting = _find_fitting(names)
    own_steps = {
        preset.name: tuple(rule for rule in preset.steps if rule.source == preset.name) for preset in fitting
    }
    return {
        preset.name: _list_read(names, preset.jobs) or _list_read(names, own_steps[preset.name])
        for preset in fitting
    }


def _find_fitting(names: Sequence[str | None]) -> list[Preset]:
    """Find the presets with a complete sign among distinct names."""
    presets = list_presets()
    signs = _list_matching(names, [part for preset in presets for sign in preset.signs for part in sign])
    keep = _keep_signed if len(signs) <= MOST_NAMES else _keep_signed.__wrapped__
    return keep(signs) if signs else []


def _list_read(names: Sequence[str | None], rules: Sequence[Rule]) -> frozenset[str]:
    """List the names that rules read."""
    return _list_matching(names, [rule.pattern for rule in rules]) if rules else frozenset()


def _list_matching(names: Sequence[str | None], patterns: Sequence[str]) -> frozenset[str]:
    """List the names with a match of one of some patterns."""
    is_matched = contains(join_patterns(patterns))
    windows = (texts.alias("name").to_frame().filter(is_matched)["name"] for texts in split_texts(names))
    return frozenset(text for texts in windows for text in texts.to_list())


@lru_cache(_CACHE_SIZE)  # ranks of one run have different names, and the same signs
def _keep_signed(distinct: frozenset[str]) -> list[Preset]:
    """Keep the presets with a complete sign: every pattern of it matches a name, and together enough names."""
    names = pl.DataFrame({"name": list(distinct)}, schema={"name": pl.String})
    has_part = names.select(_build_part_queries()).row(0, named=True)
    likely = [preset for preset in list_presets() if has_part.get(preset.name)]
    # of these presets alone: all have more patterns than polars keeps compiled
    fits = names.select(_build_sign_query(preset.name) for preset in likely).row(0) if likely else ()
    return [preset for preset, is_signed in zip(likely, fits, strict=True) if is_signed]


@cache
def _build_part_queries() -> list[pl.Expr]:
    """Build the query of each preset whether a part of a sign matches a name."""
    return [
        contains(join_patterns([part for sign in preset.signs for part in sign])).any().alias(preset.name)
        for preset in list_presets()
        if preset.signs
    ]


@cache
def _build_sign_query(name: str) -> pl.Expr:
    """Build the query whether a preset has a complete sign."""
    preset = load_preset(name)
    least = _LEAST_OF_INFERENCE if preset.is_inference else _LEAST_SIGNS
    complete: list[pl.Expr] = []
    for sign in preset.signs:
        parts = [contains(anchor_pattern(part)) for part in sign]
        has_all = pl.all_horizontal(part.any() for part in parts)
        complete.append(has_all & (pl.any_horizontal(parts).sum() >= least))
    return pl.any_horizontal(complete).alias(name)
