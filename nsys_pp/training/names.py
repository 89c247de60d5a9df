"""Distinct names, domains and categories of ranges: found once for all rules that are matched against them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from nsys_pp.arrays.ancestors import find_unmarked, has_marked_line
from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    find_distinct,
    gather_rows,
    has_value,
    index_rows,
    is_among,
    keep_rows,
    mark_categories,
    numbers,
    pack,
)
from nsys_pp.arrays.names import WINDOW, Names, as_texts, list_names, pick_texts, split_texts
from nsys_pp.arrays.nesting import find_parents as find_enclosing
from nsys_pp.arrays.search import number_rows
from nsys_pp.arrays.series import build_column
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.aggregates import NAMED_OPERATORS
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.names import NAME
from nsys_pp.frames.report import RANGES
from nsys_pp.frames.training import BATCH_COUNTS, DIRECTION, JOB_KIND, JOB_KINDS, MESSAGE_KINDS
from nsys_pp.training.rules import (
    EMITTED_SUFFIX,
    NUMBERS,
    STEP_NUMBERS,
    WORDS,
    Preset,
    Rule,
    anchor_pattern,
    cast_numbers,
    join_patterns,
    list_presets,
    load_preset,
    parse_job_rule,
    parse_step_rule,
    to_ascii,
)

Key: TypeAlias = "tuple[str | None, ...]"


class Keys(Struct, frozen=True, dict=True):
    """Distinct rows of some columns of texts."""

    columns: tuple[Sequence[str | None], ...]
    row: Int64s  # of each range, in `columns`

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def distinct(self) -> frozenset[Key]:
        """All rows, for few of them."""
        return frozenset(zip(*self.columns, strict=True))

    def split(self) -> Iterator[list[Key]]:
        """Split the rows, in order, into lists of at most `WINDOW`."""
        for first in range(0, len(self), WINDOW):
            yield [*zip(*(texts[first : first + WINDOW] for texts in self.columns), strict=True)]


class RangeNames(Struct, frozen=True, dict=True):
    """Texts of ranges; each column is searched once, on first use."""

    ranges: pl.DataFrame  # `RANGES`, any order
    _keys: dict[tuple[str, ...], Keys] = field(default_factory=dict)

    @cached_property
    def name(self) -> Names:
        """Distinct names."""
        return list_names(self.ranges["name"])

    @cached_property
    def domain(self) -> Names:
        """Distinct domains."""
        return list_names(self.ranges["domain"])

    @cached_property
    def category(self) -> Names:
        """Distinct categories."""
        return list_names(self.ranges["category"])

    def count(self, wanted: Collection[str]) -> dict[str, int]:
        """Count the ranges with each wanted name that there is."""
        if not wanted:
            return {}
        count = np.bincount(self.name.row, minlength=len(self.name.texts))
        return {
            text: int(count[at])
            for at, text in enumerate(self.name.texts)
            if text is not None and text in wanted
        }

    def list_keys(self, columns: tuple[str, ...]) -> Keys:
        """List the distinct rows of some of the columns name, domain and category."""
        if columns not in self._keys:
            names: list[Names] = [getattr(self, column) for column in columns]
            if len(names) == 1:
                self._keys[columns] = Keys((names[0].texts,), names[0].row)
            else:
                first, row = find_distinct(pack(*(each.row for each in names)))
                picked = tuple(pick_texts(each.texts, each.row[first]) for each in names)
                self._keys[columns] = Keys(picked, row)
        return self._keys[columns]


_DATA, _OTHER = map(JOB_KINDS.index, ("data", "other"))
_IS_MESSAGE = mark_categories(JOB_KIND, MESSAGE_KINDS)
_IS_BACKWARD = mark_categories(JOB_KIND, ("backward", "forward_backward"))
_IS_BACKWARD_PART = mark_categories(
    JOB_KIND, ("recompute", "weight_gradient")
)  # often on threads of their own


def nest_jobs(jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the job around each job, and drop repeated inner jobs.

    The outer job is the innermost job around it on the same thread. A part of a backward (recomputation, weight
    gradients) may run on another thread, as in PyTorch's autograd: without an outer job on its thread, its outer job
    is the last backward of the process around it. Ranges that end on another thread, and data loading, which may
    overlap any job, have neither outer nor inner jobs.

    Args:
        jobs: Columns of `RANGES`, with `kind` one of `JOB_KINDS`; in order of range_id.

    Returns:
        The jobs in the same order, with `outer_id`; without jobs directly inside one of the same kind
        (for kind "other": and of the same name) and without jobs inside sends and receives.
    """
    if jobs.is_empty():
        return jobs.with_columns(outer_id=pl.lit(None, pl.Int64))
    kind = numbers(jobs["kind"])
    parent = find_parents(jobs, ~has_value(jobs["end_thread_key"]) & (kind != _DATA))
    is_inner = parent >= 0
    is_dropped = is_inner & (kind[parent] == kind)
    if (is_dropped & (kind == _OTHER)).any():
        name = numbers(jobs["name"], null=-1)
        is_dropped &= (kind != _OTHER) | (name[parent] == name)
    if is_inner.any():
        is_dropped |= is_inner & has_marked_line(parent, _IS_MESSAGE[kind])[parent]

    outer = find_unmarked(parent, is_dropped)
    range_id = jobs["range_id"].to_numpy()
    outer_id = as_numbers("outer_id", np.where(outer >= 0, range_id[outer], NEVER))
    kept = keep_rows(jobs.hstack([outer_id]), ~is_dropped)
    return _nest_backward_parts(kept, kind[~is_dropped])


def find_parents(jobs: pl.DataFrame, is_nestable: Bools) -> Int64s:
    """Find the row of the innermost job around each job on its thread; -1 without one.

    In order of thread, start and descending end, it is the nearest previous row that does not end earlier.

    Args:
        jobs: Columns thread_key, start_ns and end_ns, of jobs or other ranges, in any order.
        is_nestable: Mask of the rows that have outer and inner rows.
    """
    row = np.flatnonzero(is_nestable)
    thread, start, end = (jobs[name].to_numpy()[row] for name in ("thread_key", "start_ns", "end_ns"))
    above, _ = find_enclosing(thread, start, end)
    parent = np.full(len(jobs), -1, dtype=np.int64)
    parent[row] = np.where(above >= 0, row[above], -1)
    return parent


def _nest_backward_parts(jobs: pl.DataFrame, kind: Int64s) -> pl.DataFrame:
    """Find the backwards around recomputation and weight gradients on other threads; `kind`: code of each kind."""
    is_backward, is_part = _IS_BACKWARD[kind], _IS_BACKWARD_PART[kind]
    if not is_backward.any() or not is_part.any():
        return jobs
    is_part &= ~has_value(jobs["outer_id"])
    if not is_part.any():
        return jobs
    around = jobs.filter(pl.Series(is_backward)).select(
        "process_key",
        "start_ns",
        around_id="range_id",
        around_thread_key="thread_key",
        around_start_ns="start_ns",
        around_end_ns="end_ns",
    )
    parts = jobs.filter(pl.Series(is_part))
    outer_jobs = (
        parts.sort("start_ns")
        .join_asof(around.sort("start_ns"), on="start_ns", by="process_key", check_sortedness=False)
        .filter(pl.col("end_ns") <= pl.col("around_end_ns"))
        # equal ranges of one thread are nested already, maybe the other way round
        .filter(
            (pl.col("thread_key") != pl.col("around_thread_key"))
            | (pl.col("start_ns") > pl.col("around_start_ns"))
            | (pl.col("end_ns") < pl.col("around_end_ns"))
        )
    )
    nested = jobs.join(
        outer_jobs.select("range_id", "around_id"), on="range_id", how="left", maintain_order="left"
    )
    return nested.with_columns(outer_id=pl.coalesce("outer_id", "around_id")).drop("around_id")


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


HALVES = build_schema(
    {  # one row per name of a range that both sends and receives, with an unambiguous direction of both; by name
        "name": NAME,
        "send_direction": DIRECTION,
        "send_micro_batch": pl.Int64,
        "send_chunk": pl.Int64,
        "send_virtual_stage": pl.Int64,
        "receive_direction": DIRECTION,
        "receive_micro_batch": pl.Int64,
        "receive_chunk": pl.Int64,
        "receive_virtual_stage": pl.Int64,
    },
    name="HALVES",
)
_SEND_RECEIVE = JOB_KINDS.index("send_receive")
_BETWEEN = r"[_;,+& ]*"  # characters between the joined names
_GROUP = re.compile(r"\(\?P?<(\w+)>")
_CACHE_SIZE_MESSAGE_NAMES = 64  # reports of a run mostly have the same names


def split_names(named_jobs: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Find the directions and ids of the send and of the receive in names of jobs of kind "send_receive".

    Args:
        named_jobs: `NAMED_JOBS`.
        rules: From `choose_rules`.

    Returns:
        `HALVES`; without the names that no pair of rules matches, or pairs of different directions.
    """
    rows = np.flatnonzero(numbers(named_jobs["kind"]) == _SEND_RECEIVE)
    if not len(rows):
        return HALVES.to_frame()
    distinct = frozenset(text for text in list_names(named_jobs["name"][rows]).texts if text is not None)
    return _split(distinct, rules.jobs) if distinct else HALVES.to_frame()


@lru_cache(_CACHE_SIZE_MESSAGE_NAMES)
def _split(names: frozenset[str], rules: tuple[Rule, ...]) -> pl.DataFrame:
    frame = pl.DataFrame({"name": sorted(names)}, schema={"name": pl.String})
    sends, receives = (
        [rule for rule in rules if rule.kind == kind and rule.direction is not None]
        for kind in ("send", "receive")
    )
    matches = [HALVES.to_frame().with_columns(pl.col("name").cast(pl.String))]
    for send, receive in product(sends, receives):
        halves = [_rename_groups(send, "send"), _rename_groups(receive, "receive")]
        for first, second in (halves, halves[::-1]):
            pattern = anchor_pattern(f"(?:{first}){_BETWEEN}(?:{second})")
            matched = frame.filter(pl.col("name").str.contains(pattern))
            groups = [name for name in _GROUP.findall(pattern) if name in HALVES]
            values = pl.col("name").str.extract_groups(pattern)
            matches.append(
                matched.with_columns(
                    *(cast_numbers(values.struct.field(name)) for name in groups),
                    send_direction=pl.lit(send.direction, DIRECTION),
                    receive_direction=pl.lit(receive.direction, DIRECTION),
                )
            )
    is_clear = pl.all_horizontal(pl.col("send_direction", "receive_direction").n_unique().over("name") == 1)
    split = (
        pl.concat(matches, how="diagonal").filter(is_clear).unique("name", keep="first", maintain_order=True)
    )
    return conform(split.sort("name").with_columns(pl.col("name").cast(NAME)), HALVES)


def _rename_groups(rule: Rule, half: str) -> str:
    """Return the expression of a rule, with groups named after a half."""
    return _GROUP.sub(lambda match: f"(?P<{half}_{match[1]}>", rule.pattern)


_FOLDED = r"[0-9]+"
NAME_READINGS = build_schema(
    {  # one row per range, by range_id
        "range_id": pl.Int64,
        "name": pl.String,  # with `#` for numbers
        "kind": pl.String,  # of the job; "step"; null: no rule reads it
        "preset": pl.String,  # of the rule; "" for patterns of the user
        "pattern": pl.String,  # of the rule
    },
    name="NAME_READINGS",
)


def read_names(ranges: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Find the rule that reads each range.

    Args:
        ranges: `RANGES`, any order.
        rules: From `choose_rules`.

    Returns:
        `NAME_READINGS`; a range that rules of jobs and of steps read is a step. Empty in, empty out.
    """
    jobs, steps = (_find_readings(ranges, table) for table in (rules.jobs, rules.steps))
    readings = pl.concat([steps, jobs.join(steps, on="range_id", how="anti")])
    name = (
        pl.col("name")
        .cast(pl.String)
        .fill_null("")
        .str.replace(EMITTED_SUFFIX, "")
        .str.replace_all(_FOLDED, "#")
    )
    return (
        ranges.sort("range_id")
        .select("range_id", name=name)
        .join(readings, on="range_id", how="left", maintain_order="left")
        .pipe(conform, NAME_READINGS)
    )


def _find_readings(ranges: pl.DataFrame, rules: tuple[Rule, ...]) -> pl.DataFrame:
    facts = pl.DataFrame(
        [(at, rule.kind or "step", rule.source, rule.pattern) for at, rule in enumerate(rules)],
        schema={"rule": pl.UInt32, "kind": pl.String, "preset": pl.String, "pattern": pl.String},
        orient="row",
    )
    matched = match_rules(ranges, rules)
    return matched.join(facts, on="rule", how="left").drop("rule")


_LEAST_SIGNS = 2  # distinct names that must match a sign for the detection of its preset
_LEAST_OF_INFERENCE = 1  # a capture of decodes has one name, a long one
_PLAIN = "plain"  # names that other presets read, too, are theirs
_PASSES = frozenset({"forward", "backward", "forward_backward"})
_CACHE_SIZE_RULE_CHOICE = 64  # reports of a run mostly have the same names


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


@lru_cache(_CACHE_SIZE_RULE_CHOICE)
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


@lru_cache(_CACHE_SIZE_RULE_CHOICE)  # ranks of one run have different names, and the same signs
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



_CACHE_SIZE_OPERATORS, _MOST_NAMES = 64, 2_048
_NUMBERED_PART = r"\.[0-9]+\b"
_FOLDER = Path(__file__).parent / "presets" / "operators"


class _Rule(Struct, frozen=True, kw_only=True):
    pattern: str  # of the whole name
    domain: str | None  # None: any


def name_operators(ranges: pl.DataFrame) -> pl.DataFrame:
    """Find operators by name, and remove the numbers of single calls from their names.

    The rules of all frameworks (`presets/operators/`) apply at once: their patterns are disjoint.

    Args:
        ranges: `RANGES`.

    Returns:
        `NAMED_OPERATORS` by range_id: operators and communication. Empty in, empty out.
    """
    if ranges.is_empty():
        return NAMED_OPERATORS.to_frame()
    first, number = number_rows([ranges["domain"], ranges["name"]])
    distinct = ranges[["domain", "name"]][first]
    matched = _match_all(distinct["domain"], distinct["name"])
    is_named = has_value(matched["name"]) | matched["is_communication"].to_numpy()
    row = np.flatnonzero(is_named[number])
    named = index_rows(matched, number[row].astype(np.int64))
    operators = pl.DataFrame([ranges["range_id"][row], *named])
    if not operators["range_id"].is_sorted():
        operators = operators.sort("range_id")
    return conform(operators, NAMED_OPERATORS)


def _match_all(domains: pl.Series, names: pl.Series) -> pl.DataFrame:
    """Match names window by window: texts in memory take several times the space of categories."""
    is_few = len(names) <= _MOST_NAMES
    match = _match_operators if is_few else _match_operators.__wrapped__
    windows = [slice(first, first + WINDOW) for first in range(0, max(len(names), 1), WINDOW)]
    parts = [
        match(tuple(domains[rows].to_list()), tuple(as_texts(names[rows]).to_list())) for rows in windows
    ]
    return parts[0] if len(parts) == 1 else pl.concat(parts)


@lru_cache(_CACHE_SIZE_OPERATORS)  # reports of a run mostly have the same names
def _match_operators(domains: tuple[str | None, ...], names: tuple[str | None, ...]) -> pl.DataFrame:
    """Match names of ranges with the rules: name (of the operator, null without one) and is_communication, one row for each."""
    text = pl.DataFrame({"domain": domains, "name": names}, {"domain": pl.String, "name": pl.String})
    return pl.DataFrame(
        [
            _name(text, _rules("operator")).cast(NAME).alias("name"),
            _matches(text, _rules("communication")).fill_null(value=False).alias("is_communication"),
        ]
    )


@cache
def _rules(table: str) -> tuple[_Rule, ...]:
    """Read the `[[operator]]` or `[[communication]]` rules of all files, in the order of their names."""
    files = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(_FOLDER.glob("*.toml"))]
    return tuple(
        _Rule(pattern=anchor_pattern(to_ascii(entry["pattern"])), domain=entry.get("domain"))
        for file in files
        for entry in file.get(table, ())
    )


def _name(text: pl.DataFrame, rules: Sequence[_Rule]) -> pl.Series:
    """Return the group `name` of the first matching rule of each name; null without one."""
    operators = [
        pl.when(_is_in_domain(rule)).then(pl.col("name").str.extract(rule.pattern, 1)) for rule in rules
    ]
    # modules of a model have numbers in their paths: `FSDP::forward (blocks.18.mlp)`
    return text.select(pl.coalesce(operators).str.replace_all(_NUMBERED_PART, ".#")).to_series()


def _matches(text: pl.DataFrame, rules: Sequence[_Rule]) -> pl.Series:
    """Return the mask of names with a matching rule."""
    return text.select(
        pl.any_horizontal(_is_in_domain(rule) & pl.col("name").str.contains(rule.pattern) for rule in rules)
    ).to_series()


def _is_in_domain(rule: _Rule) -> pl.Expr:
    if rule.domain is None:
        return pl.lit(value=True)
    return (pl.col("domain") == rule.domain).fill_null(value=False)
