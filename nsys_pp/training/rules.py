"""Files of naming rules for jobs and steps: reading, checks, and compilation to regular expressions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.training import BATCH_COUNTS, BATCH_KIND, DIRECTION, JOB_KINDS

NUMBERS = (
    "micro_batch",
    "chunk",
    "virtual_stage",
    "stage",
    "backward_micro_batch",
    "backward_chunk",
    "backward_virtual_stage",
)
WORDS = ("role", "kind")
STEP_NUMBERS = ("step", *BATCH_COUNTS)
BATCH_WORDS = (*BATCH_KIND.categories.to_list(), "counts", "launches", "unknown")
_COMMON = "common_steps"
_FOLDER = Path(__file__).parent / "presets"
_JOB_KEYS = ("kind", "pattern", "direction", "role", "domain", "category")
_STEP_KEYS = ("pattern", "batch", "domain", "category")
_KEYS = ("title", "signs", "suffix", "job", "step")
EMITTED_SUFFIX = r", (?:seq|op_id|sizes|input_op_ids) = .*$"
"""What PyTorch's emit_nvtx appends to names."""
# Classes of Unicode digits and letters make expressions many times slower.
_ASCII = {"d": "[0-9]", "w": "[0-9A-Za-z_]"}
_CLASS = re.compile(r"(?<!\\)((?:\\\\)*)\\([dw])")
_GROUP = re.compile(r"(?<!\\)\(\?P?<([A-Za-z_]\w*)>")
_UNNAMED = re.compile(r"(?<!\\)\((?!\?)")
_LOOKS_LIKE_A_KIND = re.compile(r"\w+=")
_REASON = re.compile(r"^(?:error: |regex error: (?!regex parse error))(.+)$", re.MULTILINE)
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


def list_presets() -> list[Preset]:
    """List all built-in presets, by name."""
    return [_read_built_in(name) for name in _list_names()]


def load_preset(preset: str) -> Preset:
    """Load a built-in preset by name, or a file of rules by path.

    Raises:
        NsysPPError: Neither a preset nor a file has this name, or the file is invalid.
    """
    if preset in _list_names():
        return _read_built_in(preset)
    path = Path(preset)
    if not path.is_file():
        raise NsysPPError(
            f"`{preset}` is neither a preset nor a file of rules",
            f"the presets are {', '.join(_list_names())}",
        )
    return _read(path)


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


def to_ascii(pattern: str) -> str:
    r"""Replace `\d` and `\w` by ASCII digits and letters.

    >>> to_ascii(r"F\d+_[\w.]+")
    'F[0-9]+_[[0-9A-Za-z_].]+'
    """
    return _CLASS.sub(lambda match: match[1] + _ASCII[match[2]], pattern)


@cache
def _list_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml") if path.stem != _COMMON))


@cache
def _read_built_in(name: str) -> Preset:
    return _read(_FOLDER / f"{name}.toml")


@cache
def _read_common_steps() -> tuple[Rule, ...]:
    path = _FOLDER / f"{_COMMON}.toml"
    return _read_rules(_parse(path), "step", path)


def _read(path: Path) -> Preset:
    content = _parse(path)
    if unknown := [key for key in content if key not in _KEYS]:
        raise NsysPPError(f"`{path}`: unknown key `{unknown[0]}`", f"expected: {', '.join(_KEYS)}")
    if wrong := [key for key in ("title", "suffix") if not isinstance(content.get(key, ""), str)]:
        raise NsysPPError(f"`{path}`: `{wrong[0]}` is not text", _HINT)
    is_built_in = path.parent == _FOLDER
    return Preset(
        name=path.stem if is_built_in else str(path),
        title=content.get("title", path.stem),
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
        raise NsysPPError(f"`{path}` cannot be read: {error}") from error
    except ValueError as error:  # a number of thousands of digits
        raise NsysPPError(f"`{path}` is not TOML: {error}", _HINT) from error


def _read_rules(content: Mapping[str, Any], table: str, path: Path) -> tuple[Rule, ...]:
    """Read the `[[job]]` or `[[step]]` tables of a file."""
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
        rule = replace(rule, source=path.stem if is_checked else str(path))
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
    groups = _GROUP.findall(entry["pattern"])
    if unknown := [name for name in groups if name not in allowed]:
        raise NsysPPError(
            f"{where} has the unknown group `{unknown[0]}`",
            f"expected: {', '.join(allowed)}; groups without a name are ignored",
        )
    for key in () if is_checked else ("pattern", "domain", "category"):
        if key in entry:
            _check_expression(entry[key], where)
    return Rule(groups=tuple(groups), **{**entry, "pattern": to_ascii(entry["pattern"])})


def _check_expression(pattern: str, where: str) -> None:
    """Check that the engine compiles an expression: by itself, to refuse `a)(b`, and anchored."""
    try:
        pattern.encode()  # of a command line, it may have bytes that are no characters
        for checked in (pattern, anchor_pattern(pattern)):
            pl.Series([""]).str.contains(checked)
    except pl.exceptions.ComputeError as error:
        reason = _REASON.search(str(error))
        raise NsysPPError(
            f"{where} has an expression that cannot be used, `{pattern}`"
            + (f": {reason[1].rstrip('.')}" if reason is not None else ""),
            "expected the syntax of Rust's `regex`, without look-around and back-references",
        ) from error
    except UnicodeEncodeError as error:
        raise NsysPPError(f"{where} has an expression that is not UTF-8, {pattern!r}") from error
