"""Files of naming rules for jobs and steps: reading, checks, and compilation to regular expressions."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import (
    NEVER,
    are_among,
    as_numbers,
    gather,
    gather_rows,
    has_value,
    index_rows,
    is_among,
    keep_rows,
    numbers,
)
from nsys_pp.arrays.intervals import find_parents as find_enclosing
from nsys_pp.arrays.intervals import find_unmarked, has_marked_line
from nsys_pp.arrays.names import check_pattern, list_names, to_ascii
from nsys_pp.arrays.search import number_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.errors import NsysPPError, describe_path
from nsys_pp.frames.aggregates import NAMED_OPERATORS
from nsys_pp.frames.conform import NAME, build_schema, conform
from nsys_pp.frames.report import RANGES
from nsys_pp.frames.training import BATCH_COUNTS, BATCH_KIND, DIRECTION, JOB_KIND, JOB_KINDS, MESSAGE_KINDS

NUMBERS = (
    "micro_batch",
    "chunk",
    "virtual_stage",
    "stage",
    "backward_micro_batch",
    "backward_chunk",
    "backward_virtual_stage",
    "own_rank",
    "peer",
)
WORDS = ("role", "kind")
STEP_NUMBERS = ("step", *BATCH_COUNTS)
BATCH_WORDS = (*BATCH_KIND.categories.to_list(), "counts", "launches", "unknown")
_COMMON = "common_steps"
_FOLDER = Path(__file__).parent / "presets"
_JOB_KEYS = ("kind", "pattern", "direction", "role", "domain", "category")
_STEP_KEYS = ("pattern", "batch", "domain", "category")
_FILE_KEYS = ("title", "signs", "suffix", "job", "step")
EMITTED_SUFFIX = r", (?:seq|op_id|sizes|input_op_ids) = .*$"  # what PyTorch's emit_nvtx appends to names

_GROUP = re.compile(r"(?<!\\)\(\?P?<([A-Za-z_]\w*)>")
_UNNAMED = re.compile(r"(?<!\\)\((?!\?)")
_LOOKS_LIKE_A_KIND = re.compile(r"\w+=")
_HINT = "see docs/presets.md for the format of rules"
_MOST_BYTES = 1 << 20  # of a file of rules; some kB are usual
_MOST_NUMBER = 1 << 40  # products of two numbers with those of lanes and jobs are below 2^63


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Naming rule of jobs of one kind, or of steps.

    Attributes:
        pattern: Regular expression of the whole name.
        groups: The named groups in it; for a step: some of `STEP_NUMBERS`.
        kind: One of `JOB_KINDS`; None for the group `kind`, and for steps.
        direction: Direction of a message, "forward" or "backward"; None: unknown.
        role: Name of the model; None: the group `role`, if there is one.
        batch: Source of the kind of batch of a step of inference: the kind itself, "counts" of its name, its
            "launches", or "unknown"; None: not inference.
        domain: Regular expression of the whole domain; None: any.
        category: Regular expression of the whole category; None: any.
        source: Preset that has the rule; "" for a rule of the user. Rules of two sources are equal.
    """

    pattern: str
    groups: tuple[str, ...] = ()
    kind: str | None = None
    direction: str | None = None
    role: str | None = None
    batch: str | None = None
    domain: str | None = None
    category: str | None = None
    source: str = field(
        default="", compare=False
    )  # the reason for a dataclass: a `Struct` compares all fields


class Preset(Struct, frozen=True, kw_only=True):
    """Naming rules of one framework; the first matching rule of a range counts.

    Attributes:
        name: Stem of its file.
        title: Programs that use these names.
        signs: Patterns of names that only these programs use, for the detection of the preset: alternatives,
            each a list of patterns that must all match. Empty unless the preset is built in.
        jobs: Rules for jobs.
        steps: Rules for steps, followed by the rules of `common_steps.toml`.
    """

    name: str
    title: str
    signs: tuple[tuple[str, ...], ...]
    jobs: tuple[Rule, ...]
    steps: tuple[Rule, ...]

    @property
    def is_inference(self) -> bool:
        """Whether its steps are iterations of inference."""
        return any(rule.batch is not None for rule in self.steps)


@cache
def list_presets() -> list[Preset]:
    """List all built-in presets, by name."""
    return [_read(path) for path in sorted(_FOLDER.glob("*.toml")) if path.stem != _COMMON]


def load_preset(preset: str) -> Preset:
    """Load a built-in preset by name, or a file of rules by path.

    Raises:
        NsysPPError: Neither a preset nor a file has this name, or the file is invalid.
    """
    built_in = {each.name: each for each in list_presets()}
    if preset in built_in:
        return built_in[preset]
    if not os.path.isfile(preset):  # False also for what is no name of a file
        raise NsysPPError(
            f"`{preset}` is neither a preset nor a file of rules",
            f"the presets are {', '.join(built_in)}",
        )
    return _read(Path(preset))


@cache
def load_activities() -> Mapping[str, dict[str, str]]:
    """Load the patterns of calls by activity of the host.

    They are of calls "inside" ranges, "outside" ranges, and of "system" calls.
    """
    return _parse(_FOLDER / "activities" / "calls.toml")


def parse_job_rule(text: str) -> Rule:
    """Parse a job rule, `REGEX` or `KIND=REGEX`; without a kind or a group `kind` the job is of kind "other".

    Raises:
        NsysPPError: The expression or the kind is invalid.

    >>> parse_job_rule("forward=fwd(?P<micro_batch>[0-9]+)").kind
    'forward'
    """
    kind, equals, pattern = text.partition("=")
    if not equals or kind not in JOB_KINDS:
        if _LOOKS_LIKE_A_KIND.match(text):
            raise NsysPPError(
                f"`--job-pattern {text}`: invalid kind `{kind}`",
                f"expected one of {', '.join(JOB_KINDS)}; for names that begin with `{kind}=`,"
                f" write `other={text}`",
            )
        kind, pattern = "", text
    entry = {"pattern": pattern}
    if kind or "kind" not in _GROUP.findall(pattern):
        entry["kind"] = kind or "other"
    return _build_rule(entry, f"`--job-pattern {text}`", allowed=(*NUMBERS, *WORDS))


def parse_step_rule(text: str) -> Rule:
    """Parse a step rule; the group `step`, or else the first group, is the number.

    Raises:
        NsysPPError: The expression is invalid.

    >>> parse_step_rule("epoch (.*)").pattern
    'epoch (?P<step>.*)'
    """
    if "step" not in _GROUP.findall(text):
        text = _UNNAMED.sub("(?P<step>", text, count=1)
    return _build_rule({"pattern": text}, f"`--step-pattern {text}`", allowed=STEP_NUMBERS)


def join_patterns(patterns: Sequence[str]) -> str:
    """Join patterns into one expression for whole names."""
    return anchor_pattern("|".join(f"(?:{_GROUP.sub('(?:', pattern)})" for pattern in patterns))


def cast_numbers(texts: pl.Expr) -> pl.Expr:
    """Cast groups of names to numbers.

    Others are null, and so are numbers that count nothing, as addresses and times.
    """
    values = texts.cast(pl.Int64, strict=False)
    return pl.when(values.is_between(-_MOST_NUMBER, _MOST_NUMBER)).then(values)


def anchor_pattern(pattern: str) -> str:
    """Anchor an expression to the whole name."""
    return f"^(?:{pattern})$"


@cache
def _read_common_steps() -> tuple[Rule, ...]:
    path = _FOLDER / f"{_COMMON}.toml"
    return _read_rules(_parse(path), "step", path)


def _read(path: Path) -> Preset:
    content = _parse(path)
    if unknown := [key for key in content if key not in _FILE_KEYS]:
        raise NsysPPError(f"`{path}`: unknown key `{unknown[0]}`", f"expected: {', '.join(_FILE_KEYS)}")
    if wrong := [key for key in ("title", "suffix") if not isinstance(content.get(key, ""), str)]:
        raise NsysPPError(f"`{path}`: `{wrong[0]}` is not text", _HINT)
    is_built_in = path.parent == _FOLDER
    return Preset(
        name=path.stem if is_built_in else describe_path(path),
        title=content.get("title", describe_path(path.stem)),
        signs=tuple(tuple(map(to_ascii, sign)) for sign in content.get("signs", ())) if is_built_in else (),
        jobs=_read_rules(content, "job", path),
        steps=_read_rules(content, "step", path) + _read_common_steps(),
    )


def _parse(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise NsysPPError(f"`{path}` is larger than {_MOST_BYTES >> 20} MiB, too large for rules", _HINT)
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise NsysPPError(f"`{path}` is nested too deeply for rules", _HINT) from None
    except tomllib.TOMLDecodeError as error:
        hint = "write expressions in single quotes: pattern = 'step_(?P<step>\\d+)'"
        raise NsysPPError(f"`{path}` is not TOML: {error}", hint) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise NsysPPError(
            f"`{path}` cannot be read: {reason}", "check its permissions and its text"
        ) from error
    except ValueError as error:  # a number of thousands of digits
        raise NsysPPError(f"`{path}` is not TOML: {error}", _HINT) from error


def _read_rules(content: Mapping[str, Any], table: str, path: Path) -> tuple[Rule, ...]:
    entries = content.get(table, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise NsysPPError(f"`{path}`: `{table}` is not a list of rules", f"begin each with `[[{table}]]`")
    is_job = table == "job"
    rules = []
    for number, entry in enumerate(entries, 1):
        where = f"`{path}`, {table} rule {number}"
        _check_keys(entry, where, _JOB_KEYS if is_job else _STEP_KEYS)
        pattern = f"(?:{entry['pattern']}){content['suffix']}" if "suffix" in content else entry["pattern"]
        allowed = (*NUMBERS, *WORDS) if is_job else STEP_NUMBERS
        is_checked = path.parent == _FOLDER
        rule = _build_rule({**entry, "pattern": pattern}, where, allowed=allowed, is_checked=is_checked)
        rule = replace(rule, source=path.stem if is_checked else describe_path(path))
        if is_job and rule.kind is None and "kind" not in rule.groups:
            raise NsysPPError(f"{where} has no `kind`", f"kinds are {', '.join(JOB_KINDS)}")
        rules.append(rule)
    return tuple(rules)


def _check_keys(entry: Mapping[str, Any], where: str, allowed: Sequence[str]) -> None:
    if unknown := [key for key in entry if key not in allowed]:
        raise NsysPPError(f"{where} has the unknown key `{unknown[0]}`", f"expected: {', '.join(allowed)}")
    if "pattern" not in entry:
        raise NsysPPError(f"{where} has no `pattern`", _HINT)
    if wrong := [key for key, value in entry.items() if not isinstance(value, str)]:
        raise NsysPPError(f"{where}: `{wrong[0]}` is not text", _HINT)
    words_by_key = {"kind": JOB_KINDS, "direction": DIRECTION.categories.to_list(), "batch": BATCH_WORDS}
    for key, words in words_by_key.items():
        if entry.get(key, words[0]) not in words:
            raise NsysPPError(
                f"{where} has the unknown {key} `{entry[key]}`", f"expected: {', '.join(words)}"
            )


def _build_rule(
    entry: Mapping[str, str], where: str, *, allowed: Sequence[str], is_checked: bool = False
) -> Rule:
    """Build a rule.

    The check of an expression costs half a millisecond, and is skipped for built-in presets.
    """
    if not entry["pattern"]:
        raise NsysPPError(f"{where} has an empty expression", f"no name matches it; {_HINT}")
    if is_checked:
        groups = _GROUP.findall(entry["pattern"])
    else:
        groups = [name for name in _list_groups(entry["pattern"], where) if not name.isdigit()]
        for key in ("domain", "category"):
            if key in entry:
                _list_groups(entry[key], where)
    if unknown := [name for name in groups if name not in allowed]:
        raise NsysPPError(
            f"{where} has the unknown group `{unknown[0]}`",
            f"expected: {', '.join(allowed)}; groups without a name are ignored",
        )
    return Rule(groups=tuple(groups), **{**entry, "pattern": to_ascii(entry["pattern"])})


def _list_groups(pattern: str, where: str) -> list[str]:
    """List the groups of an expression, which is compiled by itself, to refuse `a)(b`, and anchored."""
    try:
        groups = check_pattern(pattern)
        check_pattern(anchor_pattern(pattern))
    except ValueError as error:
        raise NsysPPError(
            f"{where}: {error}",
            "expected the syntax of Rust's `regex`, without look-around and back-references",
        ) from None
    return groups


_LEAST_NUMBERS = 3  # ranges with consecutive numbers as names that are recognised as steps
_LEAST_SIGNS = 2  # distinct names that must match a sign for the detection of its preset
_LEAST_OF_INFERENCE = 1  # a capture of decodes has one name, a long one
_ANY_NUMBER = (Rule(pattern="(?P<step>[0-9]{1,15})", groups=("step",)),)
_KEYS = ("name", "domain", "category")
_DATA, _OTHER = map(JOB_KINDS.index, ("data", "other"))


def nest_jobs(jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the job around each job, and drop repeated inner jobs.

    The outer job is the innermost job around it on the same thread. A part of a backward (recomputation,
    weight gradients) may run on another thread, as in PyTorch's autograd: without an outer job on its thread,
    its outer job is the last backward of the process around it. Ranges that end on another thread, and data
    loading, which may overlap any job, have neither outer nor inner jobs.

    Args:
        jobs: Columns of `RANGES`, with `kind` one of `JOB_KINDS`; in order of range_id.

    Returns:
        The jobs in the same order, with `outer_id`; without jobs directly inside one of the same kind
        (for kind "other": and of the same name) and without jobs inside sends and receives.
    """
    kind = numbers(jobs["kind"])
    parent = find_parents(jobs, ~has_value(jobs["end_thread_key"]) & (kind != _DATA))
    is_inner = parent >= 0
    name = numbers(jobs["name"], null=-1)
    is_dropped = is_inner & (kind[parent] == kind) & ((kind != _OTHER) | (name[parent] == name))
    is_dropped |= is_inner & has_marked_line(parent, is_among(jobs["kind"], MESSAGE_KINDS))[parent]

    outer = find_unmarked(parent, is_dropped)
    outer_id = as_numbers("outer_id", np.where(outer >= 0, jobs["range_id"].to_numpy()[outer], NEVER))
    return _nest_backward_parts(keep_rows(jobs.hstack([outer_id]), ~is_dropped))


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


def _nest_backward_parts(jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the backwards around recomputation and weight gradients on other threads."""
    is_backward, is_part = are_among(
        jobs["kind"], ("backward", "forward_backward"), ("recompute", "weight_gradient")
    )
    is_part &= ~has_value(jobs["outer_id"])
    if not is_backward.any() or not is_part.any():
        return jobs
    around = jobs.filter(pl.Series(is_backward)).select(
        "process_key",
        "start_ns",
        around_id="range_id",
        around_thread_key="thread_key",
        around_start_ns="start_ns",
        around_end_ns="end_ns",
    )
    outer_jobs = (
        jobs.filter(pl.Series(is_part))
        .sort("start_ns")
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


class Rules(Struct, frozen=True, kw_only=True):
    """Naming rules of a report; the first matching rule counts.

    Attributes:
        name: Name of the first preset; "" without one.
        title: Programs of the first preset; "" without one.
        others: Names of further presets, whose rules follow.
        jobs: Rules for jobs.
        steps: Rules for steps.
        share: Share of the ranges that are jobs by the first preset, of the ranges that are jobs by any
            matching preset; None unless the preset was detected.
        unmatched: Options `--job-pattern` and `--step-pattern` that match no name of this report. Not an
            error for one report, since other reports of the run may have such names; an error if no report
            has any.
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


class RangeNames(Struct, frozen=True):
    """Distinct names of ranges, with domain and category: found once for all rules."""

    keys: pl.DataFrame  # name, domain, category
    row: Int64s  # of each range, in `keys`


def list_range_names(ranges: pl.DataFrame) -> RangeNames:
    """List the distinct names of `RANGES`."""
    first, row = number_rows([ranges[key] for key in _KEYS])
    return RangeNames(index_rows(ranges[list(_KEYS)], first), row.astype(np.int64))


def name_jobs(ranges: pl.DataFrame, rules: Rules, *, names: RangeNames | None = None) -> pl.DataFrame:
    """Find the ranges that are jobs, and parse their names.

    Left out are jobs directly inside a job of the same kind (for kind "other": of the same name), jobs inside
    sends and receives, and data loading in a range that ends on another thread, since it is asynchronous.

    Args:
        ranges: `RANGES`, any order.
        rules: From `choose_rules`.
        names: Names of the ranges; None: listed by this function.

    Returns:
        `NAMED_JOBS`. Empty without matching names.
    """
    matched = _match_ranges(ranges, rules.jobs, (*NUMBERS, *WORDS), names)
    facts = pl.DataFrame(
        [(rule.kind, rule.direction, rule.role) for rule in rules.jobs],
        schema={"rule_kind": pl.String, "direction": DIRECTION, "rule_role": pl.String},
        orient="row",
    )
    kind = pl.when(pl.col("kind").is_in(JOB_KINDS)).then("kind")
    jobs = matched.hstack(gather_rows(facts, facts.columns, matched["rule"].to_numpy())).with_columns(
        kind=pl.coalesce("rule_kind", kind, pl.lit("other")).cast(JOB_KIND),
        role=pl.coalesce("rule_role", "role"),
    )
    is_asynchronous = has_value(jobs["end_thread_key"]) & is_among(jobs["kind"], ("data",))
    return conform(nest_jobs(keep_rows(jobs, ~is_asynchronous)), NAMED_JOBS)


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
    applied = rules.steps
    matched = _match_ranges(ranges, applied, STEP_NUMBERS, names)
    if matched.is_empty() and rules.jobs:
        applied = _ANY_NUMBER
        matched = _keep_consecutive(_match_ranges(ranges, applied, STEP_NUMBERS, names))
    batches = pl.Series("batch", [rule.batch for rule in applied], dtype=pl.String)
    is_numbered = pl.Series("is_numbered", has_value(matched["step"]))
    return conform(matched.hstack([gather(batches, matched["rule"].to_numpy()), is_numbered]), NAMED_STEPS)


def _match_ranges(
    ranges: pl.DataFrame, rules: tuple[Rule, ...], groups: tuple[str, ...], names: RangeNames | None = None
) -> pl.DataFrame:
    """Find the first rule that matches each range.

    Returns:
        `RANGES` by range_id, of the ranges with a rule, with its index and the groups in the name, which
        replace columns of the same name.
    """
    names = list_range_names(ranges) if names is None else names
    keys = names.keys
    found = _match_names(keys, rules, groups)
    at = np.full(len(keys), -1)
    at[found["key"].to_numpy()] = np.arange(len(found))
    row = at[names.row]
    matched = np.flatnonzero(row >= 0)
    others = [column for column in ranges.columns if column not in groups]
    return gather_rows(ranges, others, matched).hstack(gather_rows(found, ["rule", *groups], row[matched]))


def _match_names(keys: pl.DataFrame, rules: tuple[Rule, ...], groups: tuple[str, ...]) -> pl.DataFrame:
    """Find the first matching rule of each name: `key` (its row), `rule` (index), and groups.

    Names without a rule are left out.

    One expression that joins all rules removes most names first; none, where it would be too large.
    """
    parts = [pl.DataFrame(schema={"key": pl.UInt32, "rule": pl.UInt32, **dict.fromkeys(groups, pl.String)})]
    is_wanted = (
        pl.col("name")
        .cast(pl.String)
        .str.contains(join_patterns([rule.pattern for rule in rules]), strict=False)
        .fill_null(value=True)
    )
    rest = keys.with_row_index("key").filter(is_wanted).with_columns(pl.col(_KEYS).cast(pl.String))
    for number, rule in enumerate(rules):
        if rest.is_empty():
            break
        is_named = rest.select(matches(rule)).to_series()
        own, rest = rest.filter(is_named), rest.filter(~is_named)
        named = [pl.lit(number, pl.UInt32).alias("rule")]
        used = [group for group in rule.groups if group in groups]
        if used:
            values = pl.col("name").str.extract_groups(anchor_pattern(rule.pattern))
            named += [values.struct.field(group) for group in used]
        parts.append(own.select("key", *named))
    return (
        pl.concat(parts, how="diagonal")
        .sort("key")
        .with_columns(cast_numbers(pl.col([group for group in groups if group not in (*WORDS, "name")])))
    )


def matches(rule: Rule) -> pl.Expr:
    """Return the mask of the names (and domains and categories) that a rule matches."""
    patterns = zip(_KEYS, (rule.pattern, rule.domain, rule.category), strict=True)
    return pl.all_horizontal(
        contains(anchor_pattern(pattern), key) for key, pattern in patterns if pattern is not None
    )


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
    # one row per name of a range that both sends and receives, with an unambiguous direction of both; by name
    {
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


def split_names(named_jobs: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Find the directions and ids of the send and of the receive in names of jobs of kind "send_receive".

    Args:
        named_jobs: `NAMED_JOBS`.
        rules: From `choose_rules`.

    Returns:
        `HALVES`; without the names that no pair of rules matches, or pairs of different directions.
    """
    rows = np.flatnonzero(is_among(named_jobs["kind"], ("send_receive",)))
    if not len(rows):
        return HALVES.to_frame()
    frame = list_names(named_jobs["name"][rows]).texts.drop_nulls().sort().to_frame("name")
    sends, receives = (
        [rule for rule in rules.jobs if rule.kind == kind and rule.direction is not None]
        for kind in ("send", "receive")
    )
    matches = [HALVES.to_frame().with_columns(pl.col("name").cast(pl.String))]
    for send, receive in product(sends, receives):
        halves = [_rename_groups(send, "send"), _rename_groups(receive, "receive")]
        for first, second in (halves, halves[::-1]):
            pattern = anchor_pattern(f"(?:{first})[_;,+& ]*(?:{second})")
            matched = frame.filter(pl.col("name").str.contains(pattern))
            named = [f"send_{name}" for name in send.groups] + [f"receive_{name}" for name in receive.groups]
            values = pl.col("name").str.extract_groups(pattern)
            matches.append(
                matched.with_columns(
                    *(cast_numbers(values.struct.field(name)) for name in named if name in HALVES),
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
    return _GROUP.sub(lambda match: f"(?P<{half}_{match[1]}>", rule.pattern)


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
        .str.replace_all("[0-9]+", "#")
    )
    return (
        ranges.select("range_id", name=name)
        .join(readings, on="range_id", how="left", maintain_order="left")
        .pipe(conform, NAME_READINGS)
    )


def _find_readings(ranges: pl.DataFrame, rules: tuple[Rule, ...]) -> pl.DataFrame:
    facts = pl.DataFrame(
        [(at, rule.kind or "step", rule.source, rule.pattern) for at, rule in enumerate(rules)],
        schema={"rule": pl.UInt32, "kind": pl.String, "preset": pl.String, "pattern": pl.String},
        orient="row",
    )
    matched = _match_ranges(ranges, rules, ()).select("range_id", "rule")
    return matched.join(facts, on="rule", how="left").drop("rule")


def choose_rules(
    ranges: pl.DataFrame,
    *,
    preset: str | None = None,
    job_patterns: Sequence[str] = (),
    step_patterns: Sequence[str] = (),
    names: RangeNames | None = None,
) -> Rules:
    """Choose the rules for a report: rules of the user first, then rules of a preset.

    By default, presets are detected by signs among the names. The preset with the most jobs comes first;
    others follow if they have jobs that no previous preset has, as PyTorch's below Lightning's. Presets of
    inference apply alone: the rollouts of a training are jobs.

    Args:
        ranges: `RANGES`.
        preset: Name of a preset, or path of a file of rules.
        job_patterns: Expressions for whole names of jobs; the kind is a prefix `KIND=` or a group `kind`,
            else "other".
        step_patterns: Expressions for names of steps; the group `step`, or else the first group, is the
            number.
        names: Names of the ranges; None: listed by this function.

    Raises:
        NsysPPError: The preset does not exist, or a rule is invalid.
    """
    jobs = {f"--job-pattern {text}": parse_job_rule(text) for text in job_patterns}
    steps = {f"--step-pattern {text}": parse_step_rule(text) for text in step_patterns}
    names = list_range_names(ranges) if names is None else names
    own = {**jobs, **steps}
    is_used = [names.keys.select(matches(rule).any()).item() for rule in own.values()]
    chosen, share = _detect(names) if preset is None else ([load_preset(preset)], None)
    return Rules(
        name=chosen[0].name if chosen else "",
        title=chosen[0].title if chosen else "",
        others=tuple(each.name for each in chosen[1:]),
        jobs=(*jobs.values(), *(rule for each in chosen for rule in each.jobs)),
        steps=(*steps.values(), *dict.fromkeys(rule for each in chosen for rule in each.steps)),
        share=share,
        unmatched=tuple(text for text, is_so in zip(own, is_used, strict=True) if not is_so),
    )


def _detect(names: RangeNames) -> tuple[list[Preset], float | None]:
    """Detect the presets of ranges, the preset with the most jobs first; without jobs, steps count.

    Returns:
        The presets, and the share of the first preset's jobs in the jobs of all matching presets; None
        without any.
    """
    texts = names.keys["name"].cast(pl.String)
    readings = _find_preset_names(texts)
    count = np.bincount(names.row, minlength=len(texts))
    sum_of = {name: int(count[is_read].sum()) for name, is_read in readings.items()}
    chosen: list[Preset] = []
    is_known = np.zeros(len(texts), dtype=np.bool_)
    # names that "plain" and other presets read are theirs
    for name in sorted(sum_of, key=lambda name: (-sum_of[name], name == "plain")):
        if (readings[name] & ~is_known).any():
            chosen.append(load_preset(name))
            is_known |= readings[name]
    return chosen, (sum_of[chosen[0].name] / int(count[is_known].sum()) if chosen else None)


def _find_preset_names(texts: pl.Series) -> dict[str, Bools]:
    """Find the presets with signs among names.

    Values are masks of the names of their jobs, or of their steps if they have no job.

    Presets of inference are left out if one of training has jobs.
    """
    names = texts.to_frame("name")

    def read(rules: Sequence[Rule]) -> Bools:
        pattern = join_patterns([rule.pattern for rule in rules])
        return names.select(contains(pattern) if rules else pl.lit(value=False)).to_series().to_numpy()

    readings: dict[str, Bools] = {}
    signs = [part for preset in list_presets() for sign in preset.signs for part in sign]
    for preset in _find_signed(names.unique().filter(contains(join_patterns(signs)))):
        is_job = np.broadcast_to(read(preset.jobs), len(names))
        own_steps = [rule for rule in preset.steps if rule.source == preset.name]
        readings[preset.name] = is_job if is_job.any() else np.broadcast_to(read(own_steps), len(names))
    trained = {
        name: each for name, each in readings.items() if each.any() and not load_preset(name).is_inference
    }
    return trained or readings


def _find_signed(names: pl.DataFrame) -> list[Preset]:
    """Find the presets with a complete sign.

    Every pattern of the sign matches a name, and together they match enough names.
    """

    def has(preset: Preset) -> bool:
        least = _LEAST_OF_INFERENCE if preset.is_inference else _LEAST_SIGNS
        for sign in preset.signs:
            parts = names.select(contains(anchor_pattern(part)).alias(part) for part in sign).to_numpy()
            if parts.any(axis=0).all() and parts.any(axis=1).sum() >= least:
                return True
        return False

    return [preset for preset in list_presets() if has(preset)] if len(names) else []


def name_operators(ranges: pl.DataFrame) -> pl.DataFrame:
    """Find operators by name, and remove the numbers of single calls from their names.

    The rules of all frameworks (`presets/operators/`) apply at once: their patterns are disjoint.

    Args:
        ranges: `RANGES`.

    Returns:
        `NAMED_OPERATORS` by range_id: operators and communication. Empty in, empty out.
    """
    names = list_range_names(ranges)
    operators, communication = (
        _match_names(names.keys, _read_operator_rules(table), ("name",))
        for table in ("operator", "communication")
    )
    # modules of a model have numbers in their paths: `FSDP::forward (blocks.18.mlp)`
    name = pl.col("name").str.replace_all(r"\.[0-9]+\b", ".#").cast(NAME)
    read = (
        names.keys.select(key=pl.int_range(pl.len(), dtype=pl.UInt32))
        .join(operators.select("key", name), on="key", how="left", maintain_order="left")
        .with_columns(is_communication=pl.col("key").is_in(communication["key"].implode()))
        .drop("key")
    )
    is_read = has_value(read["name"]) | read["is_communication"].to_numpy()
    rows = np.flatnonzero(is_read[names.row])
    return (
        index_rows(read, names.row[rows])
        .with_columns(ranges["range_id"][rows])
        .pipe(conform, NAMED_OPERATORS)
    )


@cache
def _read_operator_rules(table: str) -> tuple[Rule, ...]:
    """Read the `[[operator]]` or `[[communication]]` rules of all files, in the order of their names."""
    files = [
        tomllib.loads(path.read_text(encoding="utf-8"))
        for path in sorted((_FOLDER / "operators").glob("*.toml"))
    ]
    groups = ("name",) if table == "operator" else ()
    return tuple(
        Rule(pattern=to_ascii(entry["pattern"]), domain=entry.get("domain"), groups=groups)
        for file in files
        for entry in file.get(table, ())
    )
