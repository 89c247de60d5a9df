"""Recognition of jobs and steps by range names: application of rules.

A report has many ranges and few distinct names, so every distinct name is matched once. One expression
that joins all rules first removes names without a match. The reports of a run have the same names, so results are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import gather_rows, has_value, index_rows, is_among
from nsys_pp.arrays.series import build_column
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.report import NAME, RANGES
from nsys_pp.frames.training import BATCH_COUNTS, DIRECTION, JOB_KIND, JOB_KINDS
from nsys_pp.training.report.inner_jobs import nest_jobs
from nsys_pp.training.report.presets import (
    NUMBERS,
    STEP_NUMBERS,
    WORDS,
    Rule,
    anchor_pattern,
    cast_numbers,
    join_patterns,
)
from nsys_pp.training.report.range_names import Key, Keys, RangeNames

NAMED_JOBS = build_schema(
    {  # ranges that are jobs; in order of range_id
        **RANGES,
        "kind": JOB_KIND,
        "outer_id": pl.Int64,  # range_id of the innermost job around it; null where none
        "direction": DIRECTION,
        **dict.fromkeys(NUMBERS, pl.Int64),
        "role": pl.String,
    },
    name="NAMED_JOBS",
)
NAMED_STEPS = build_schema(
    {  # ranges that are steps; in order of range_id
        **RANGES,
        "step": pl.Int64,  # null where the name has no number
        "is_numbered": pl.Boolean,
        "batch": pl.String,  # of its rule: `BATCH_WORDS`; null unless a step of inference
        **dict.fromkeys(BATCH_COUNTS, pl.Int64),  # in the name; null where it has none
    },
    name="NAMED_STEPS",
)
_LEAST_NUMBERS = 3  # ranges with consecutive numbers as names that are recognised as steps
_CACHE_SIZE = 64  # results of each function; stages of a run may have different names
MOST_NAMES = 5_000  # cached; matching more names costs less than the rest of the report
_ANY_NUMBER = (Rule(pattern="(?P<step>[0-9]{1,15})", groups=("step",)),)
_NameKeys: TypeAlias = "frozenset[Key]"
_Parse: TypeAlias = "Callable[[_NameKeys, tuple[str, ...], tuple[Rule, ...]], _Parsed]"


class Rules(Struct, frozen=True, kw_only=True):
    """Naming rules of a report; the first matching rule counts.

    Attributes:
        name: Name of the first preset; "" without one.
        title: Programs of the first preset; "" without one.
        others: Names of further presets, whose rules follow.
        jobs: Rules for jobs.
        steps: Rules for steps.
        share: Share of the ranges that are jobs by the first preset, of the ranges that are jobs by any matching
            preset; None unless the preset was detected.
        unmatched: Options `--job-pattern` and `--step-pattern` that match no name of this report. Not an error for one
            report, since other reports of the run may have such names; an error if no report has any.
    """

    name: str = ""
    title: str = ""
    others: tuple[str, ...] = ()
    jobs: tuple[Rule, ...] = ()
    steps: tuple[Rule, ...] = ()
    share: float | None = None
    unmatched: tuple[str, ...] = ()

    def describe(self) -> str:
        """Format the preset.

        >>> Rules(name="plain", title="plain names", share=0.961, others=("torch",)).describe()
        'preset `plain` (plain names): 96 % of what looks like jobs; then `torch`'
        """
        if not self.name:
            return "no preset"
        share = "" if self.share is None else f": {100 * self.share:.0f} % of what looks like jobs"
        others = "".join(f", `{name}`" for name in self.others)
        return f"preset `{self.name}` ({self.title}){share}{f'; then{others[1:]}' if others else ''}"


def name_jobs(ranges: pl.DataFrame, rules: Rules, *, names: RangeNames | None = None) -> pl.DataFrame:
    """Find the ranges that are jobs, and parse their names.

    Left out are jobs directly inside a job of the same kind (for kind "other": of the same name), jobs inside sends
    and receives, and data loading in a range that ends on another thread, since it is asynchronous.

    Args:
        ranges: `RANGES`, any order.
        rules: From `choose_rules`.
        names: Names of the ranges; None: listed by this function.

    Returns:
        `NAMED_JOBS`. Empty without matching names.
    """
    matched = _match(ranges, rules.jobs, _parse_job_names, names)
    is_asynchronous = has_value(matched["end_thread_key"])
    if is_asynchronous.any():
        is_asynchronous &= is_among(matched["kind"], ("data",))
    synchronous = matched[np.flatnonzero(~is_asynchronous)] if is_asynchronous.any() else matched
    return conform(nest_jobs(synchronous), NAMED_JOBS)


def match_rules(ranges: pl.DataFrame, rules: tuple[Rule, ...]) -> pl.DataFrame:
    """Find the first rule that matches each range: its range_id and the index of the rule, by range_id."""
    return _match(ranges, rules, _find_rules, None).select("range_id", "rule")


def name_steps(ranges: pl.DataFrame, rules: Rules, *, names: RangeNames | None = None) -> pl.DataFrame:
    """Find the ranges that are steps, and their numbers.

    Where no step rule matches, and there are job rules, ranges named by consecutive numbers are steps.

    Args:
        ranges: `RANGES`, any order.
        rules: From `choose_rules`.
        names: Names of the ranges; None: listed by this function.

    Returns:
        `NAMED_STEPS`; the same step may have rows of several threads and domains. Empty without steps.
    """
    matched = _match(ranges, rules.steps, _parse_step_names, names)
    if matched.is_empty() and rules.jobs:
        matched = _keep_consecutive(_match(ranges, _ANY_NUMBER, _parse_step_names, names))
    is_numbered = build_column("is_numbered", has_value(matched["step"]))
    return conform(matched.hstack([is_numbered]), NAMED_STEPS)


class _Parsed(Struct, frozen=True):
    """Values parsed from the distinct names (and domains and categories) that match a rule."""

    values: pl.DataFrame
    row_of: dict[Key, int]  # row of each name in `values`
    kinds: frozenset[str]  # of jobs


class _Parser:
    """Function that parses names, with its results: of sets of names, and of all names, since ranks of one run have most in common.

    Args:
        parse: The function; each name is parsed alone.
    """

    def __init__(self, parse: _Parse) -> None:
        self.parse = parse
        self.parse_cached = lru_cache(_CACHE_SIZE)(self._parse_fresh)
        self._parsed: dict[tuple[tuple[str, ...], tuple[Rule, ...]], tuple[_NameKeys, _Parsed]] = {}

    def _parse_fresh(self, names: _NameKeys, keys: tuple[str, ...], rules: tuple[Rule, ...]) -> _Parsed:
        before, parsed = self._parsed.get((keys, rules), (None, None))
        if before is None or parsed is None or len(before) > MOST_NAMES:
            before, parsed = names, self.parse(names, keys, rules)
        elif fresh := names - before:
            before, parsed = before | fresh, _join_parsed([parsed, self.parse(fresh, keys, rules)])
        if len(self._parsed) > _CACHE_SIZE:
            self._parsed.clear()
        self._parsed[keys, rules] = before, parsed
        return parsed if parsed.row_of.keys() <= names else _select_names(parsed, names)


def _select_names(parsed: _Parsed, names: _NameKeys) -> _Parsed:
    """Select the values of some names."""
    chosen = [name for name in names if name in parsed.row_of]
    values = index_rows(parsed.values, np.array([parsed.row_of[name] for name in chosen], dtype=np.int64))
    row_of = {name: row for row, name in enumerate(chosen)}
    return _Parsed(values=values, row_of=row_of, kinds=_list_kinds(values))


def _list_kinds(values: pl.DataFrame) -> frozenset[str]:
    return frozenset(values["kind"].to_list()) if "kind" in values.columns else frozenset()


def _parse(names: RangeNames, rules: tuple[Rule, ...], parser: _Parser) -> tuple[Keys, _Parsed]:
    """Parse the distinct names of ranges."""
    columns = ("name", *(key for key in ("domain", "category") if any(getattr(rule, key) for rule in rules)))
    keys = names.list_keys(columns)
    if not rules:
        return keys, parser.parse_cached(frozenset(), columns, rules)
    if len(keys) <= MOST_NAMES:
        return keys, parser.parse_cached(keys.distinct, columns, rules)
    return keys, _join_parsed([parser.parse(frozenset(part), columns, rules) for part in keys.split()])


def _join_parsed(parts: Sequence[_Parsed]) -> _Parsed:
    """Join values parsed from different names."""
    row_of: dict[Key, int] = {}
    count = 0
    for part in parts:
        row_of |= {key: count + row for key, row in part.row_of.items()}
        count += len(part.values)
    kinds = frozenset[str]().union(*(part.kinds for part in parts))
    return _Parsed(values=pl.concat([part.values for part in parts]), row_of=row_of, kinds=kinds)


def _match(
    ranges: pl.DataFrame, rules: tuple[Rule, ...], parser: _Parser, names: RangeNames | None
) -> pl.DataFrame:
    """Find the ranges that match a rule.

    Returns:
        `RANGES` by range_id, with the values parsed from names, which replace columns of the same name.
    """
    if not ranges["range_id"].is_sorted():
        ranges, names = ranges.sort("range_id"), None
    keys, parsed = _parse(RangeNames(ranges) if names is None else names, rules, parser)
    others = [column for column in ranges.columns if column not in parsed.values.columns]
    if not parsed.row_of:
        return ranges[others].clear().hstack(parsed.values)
    row_of_key = (parsed.row_of.get(key, -1) for part in keys.split() for key in part)
    row = np.fromiter(row_of_key, np.int64, len(keys))[keys.row]
    matched = np.flatnonzero(row >= 0)
    return gather_rows(ranges, others, matched).hstack(
        gather_rows(parsed.values, parsed.values.columns, row[matched])
    )


def _index(parsed: pl.DataFrame, keys: tuple[str, ...]) -> _Parsed:
    """Index parsed values by their names: `keys`."""
    names = zip(*(parsed[key].to_list() for key in keys), strict=True)
    return _Parsed(
        values=parsed.drop(keys),
        row_of={name: row for row, name in enumerate(names)},
        kinds=_list_kinds(parsed),
    )


@_Parser
def _parse_job_names(name_keys: _NameKeys, keys: tuple[str, ...], rules: tuple[Rule, ...]) -> _Parsed:
    """Parse job names: kind, direction, numbers, role; names without a matching rule are left out."""
    matched = _match_names(name_keys, keys, rules, groups=(*NUMBERS, *WORDS))
    fixed = pl.DataFrame(
        [(number, rule.kind, rule.direction, rule.role) for number, rule in enumerate(rules)],
        schema={"rule": pl.UInt32, "rule_kind": pl.String, "direction": DIRECTION, "rule_role": pl.String},
        orient="row",
    )
    kind = pl.when(pl.col("kind").is_in(JOB_KINDS)).then("kind")
    parsed = (
        matched.join(fixed, on="rule", how="left")
        .with_columns(
            kind=pl.coalesce("rule_kind", kind, pl.lit("other")).cast(JOB_KIND),
            role=pl.coalesce("rule_role", "role"),
        )
        .drop("rule", "rule_kind", "rule_role")
    )
    return _index(parsed, keys)


@_Parser
def _find_rules(name_keys: _NameKeys, keys: tuple[str, ...], rules: tuple[Rule, ...]) -> _Parsed:
    """Find the rules of names; names without a matching rule are left out."""
    return _index(_match_names(name_keys, keys, rules, groups=()), keys)


@_Parser
def _parse_step_names(name_keys: _NameKeys, keys: tuple[str, ...], rules: tuple[Rule, ...]) -> _Parsed:
    """Parse step names: step, batch, counts; names without a matching rule are left out."""
    matched = _match_names(name_keys, keys, rules, groups=STEP_NUMBERS)
    batches = pl.Series([rule.batch for rule in rules], dtype=pl.String)
    return _index(matched.with_columns(batch=batches.gather(matched["rule"])).drop("rule"), keys)


def _match_names(
    name_keys: _NameKeys, keys: Sequence[str], rules: Sequence[Rule], *, groups: Sequence[str]
) -> pl.DataFrame:
    """Find the first matching rule of each name, and extract its groups.

    Args:
        name_keys: Rows of names and the other `keys`.
        keys: Columns that rules are matched against: name, domain, category.
        rules: The rules.
        groups: Groups to extract.

    Returns:
        `keys`, `rule` (its index), and `groups`: the extracted values, null without one; numbers as integers.
    """
    is_wanted = contains(join_patterns([rule.pattern for rule in rules])) if rules else pl.lit(value=False)
    wanted = pl.DataFrame(list(name_keys), schema=dict.fromkeys(keys, pl.String), orient="row").filter(
        is_wanted
    )
    tried = () if wanted.is_empty() else rules
    first = pl.coalesce(
        pl.lit(None, pl.UInt32),
        *(pl.when(matches(rule)).then(pl.lit(number, pl.UInt32)) for number, rule in enumerate(tried)),
    )
    ruled = wanted.with_columns(rule=first).drop_nulls("rule")
    parts = [_extract(part, rules[part["rule"][0]]) for part in ruled.partition_by("rule")]
    nothing = ruled.clear().with_columns(pl.lit(None, pl.String).alias(group) for group in groups)
    found = pl.concat([nothing, *parts], how="diagonal").select(*keys, "rule", *groups)
    return found.with_columns(
        pl.col(keys).cast(NAME),
        cast_numbers(pl.col([group for group in groups if group not in WORDS])),
    )


def matches(rule: Rule) -> pl.Expr:
    """Return the mask of the names (and domains and categories) that a rule matches."""
    name_keys = {"name": rule.pattern, "domain": rule.domain, "category": rule.category}
    return pl.all_horizontal(
        contains(anchor_pattern(pattern), key) for key, pattern in name_keys.items() if pattern is not None
    )


def _extract(keys: pl.DataFrame, rule: Rule) -> pl.DataFrame:
    """Add the groups of a rule, extracted from names."""
    if not rule.groups:
        return keys
    matched = pl.col("name").cast(pl.String).str.extract_groups(anchor_pattern(rule.pattern))
    return keys.with_columns(matched.struct.field(*rule.groups))


def _keep_consecutive(ranges: pl.DataFrame) -> pl.DataFrame:
    """Keep the ranges of threads on which all ranges have consecutive numbers and do not overlap."""
    ordered = ranges.sort("thread_key", "start_ns")
    before = pl.struct("step", "end_ns").shift()
    follows = (pl.col("step") == before.struct.field("step") + 1) & (
        pl.col("start_ns") >= before.struct.field("end_ns")
    )
    is_sequence = follows.fill_null(value=True).all() & (pl.len() >= _LEAST_NUMBERS)
    return ordered.filter(is_sequence.over("thread_key")).sort("range_id")


def contains(pattern: str, column: str = "name") -> pl.Expr:
    """Return the mask of the texts that contain a match; false for null."""
    return pl.col(column).cast(pl.String).str.contains(pattern).fill_null(value=False)
