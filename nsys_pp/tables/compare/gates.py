"""Limits that a comparison of two runs must keep: `bubble>5%`.

    [stage N] METRIC[_b] OPERATOR NUMBER UNIT

    METRIC    step, longest_step, kernels (their total, without communication), bubble, compute (of the jobs
              of a stage), a cause of the bubble (host, transfer, message_wait, ...) or a kind of job (forward,
              backward, ...); `data` is the cause
    OPERATOR  > >= < <=, which the run must not meet
    UNIT      % ms us s ns

Of the change from A to B: % is relative for times (`step>3%`: a step takes more than 3 % longer), and in
percentage points for what is a share of the step (`bubble>5%`: from 20 % of the step to more than 25 %). With
`_b`, of B itself: `bubble_b>20%`. A change within noise passes every gate.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from nsys_pp.errors import NsysPPError
from nsys_pp.tables.compare.samples import SUBJECTS
from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US, format_duration

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_SCALES = {"ns": 1.0, "us": float(NS_PER_US), "ms": float(NS_PER_MS), "s": float(NS_PER_S), "%": 0.01}
_GATE = re.compile(
    r"\s*(?:stage\s+(?P<stage>\d+)\s+)?(?P<metric>[a-z_]+?)(?P<b>_b)?\s*(?P<sign>>=|<=|>|<)"
    r"\s*(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))\s*(?P<unit>%|ns|us|ms|s)\s*"
)
_FRAMES = ("steps", "bubbles", "stages", "kinds")


class GateError(NsysPPError):
    """An invalid gate, or a gate on values that the runs do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A limit.

    Attributes:
        text: As it was written.
        stage: None: of all stages.
        metric: Subject of a comparison.
        is_of_b: Of B itself, not of the change.
        sign: ">", ">=", "<" or "<=".
        limit: In nanoseconds, or a fraction.
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
    """Read a gate.

    Raises:
        GateError: The text or its metric is invalid.

    >>> gate = parse_gate("stage 2 bubble > 10%")
    >>> gate.stage, gate.metric, gate.sign, gate.limit
    (2, 'bubble', '>', 0.1)
    """
    found = _GATE.fullmatch(text)
    if found is None:
        raise GateError(
            f"invalid gate `{text}`; expected METRIC, > or <, a number and its unit",
            "examples: `bubble>5%`, `step>20ms`",
        )
    if found["metric"] not in SUBJECTS:
        raise GateError(f"`{text}`: there is no metric `{found['metric']}`", _list_metrics(SUBJECTS))
    return Gate(
        text=text.strip(),
        stage=None if found["stage"] is None else int(found["stage"]),
        metric=found["metric"],
        is_of_b=found["b"] is not None,
        sign=found["sign"],
        limit=float(found["number"]) * _SCALES[found["unit"]],
        is_percent=found["unit"] == "%",
    )


def check_gates(comparison: Mapping[str, pl.DataFrame], gates: Iterable[Gate]) -> list[str]:
    """Check a comparison against gates.

    Where a run has a single step, noise is unknown, and a change counts as it is.

    Args:
        comparison: What `compare_trainings` returned.
        gates: Limits.

    Returns:
        One sentence for each gate that fails, in their order; empty where all hold.

    Raises:
        GateError: The runs do not have what a gate is about.
    """
    rows = pl.concat(comparison[name] for name in _FRAMES)
    return [failure for gate in gates if (failure := _check(gate, rows)) is not None]


def _check(gate: Gate, rows: pl.DataFrame) -> str | None:
    """Return the failure of a gate as a sentence; None if it holds."""
    row = _find(gate, rows)
    value, noise = (row["b"], None) if gate.is_of_b else _change(gate, row)
    if not _OPERATORS[gate.sign](value, gate.limit) or (noise is not None and abs(value) <= noise):
        return None
    where = "" if gate.stage is None else f" of stage {gate.stage}"
    b = _write(row["b"], row["unit"])
    if gate.is_of_b:
        return f"`{gate.text}`: {gate.metric}{where} is {b}"
    a = _write(row["a"], row["unit"])
    unsure = "" if noise is not None else "; how much of it is noise is unknown: a run has a single step"
    return f"`{gate.text}`: {gate.metric}{where} went from {a} to {b}{unsure}"


def _find(gate: Gate, rows: pl.DataFrame) -> dict[str, Any]:
    """Return the row of a comparison that a gate is about."""
    there = rows.filter(pl.col("stage").eq_missing(pl.lit(gate.stage, pl.Int64))).drop_nulls("b")
    there = there if gate.is_of_b else there.drop_nulls("a")
    found = there.filter(pl.col("subject") == gate.metric)
    if found.is_empty():
        where = "the runs" if gate.stage is None else f"stage {gate.stage} of the runs"
        known = _list_metrics(there["subject"].unique(maintain_order=True).to_list())
        raise GateError(f"`{gate.text}`: {where} have no `{gate.metric}` to compare", known)
    # What is given as a share and as a time is a share where the limit is one.
    units = ("fraction", "ns") if gate.is_percent else ("ns",)
    row = found.filter(pl.col("unit") == next(unit for unit in units if unit in found["unit"])).row(
        0, named=True
    )
    if gate.is_of_b and gate.is_percent and row["unit"] == "ns":
        raise GateError(f"`{gate.text}`: {gate.metric} is a time, not a share of one", "give it in `ms`")
    return row


def _change(gate: Gate, row: Mapping[str, Any]) -> tuple[float, float | None]:
    """Return the change from A to B in the unit of the gate, and its noise."""
    if row["unit"] == "ns" and not gate.is_percent:
        noise = row["noise_fraction"]
        return row["b"] - row["a"], None if noise is None else noise * row["a"]
    change = row["change_fraction"]  # null: from nothing to something
    return math.inf if change is None else change, row["noise_fraction"]


def _write(value: float, unit: str) -> str:
    return f"{value:.1%} of the step" if unit == "fraction" else format_duration(round(value))


def _list_metrics(metrics: Iterable[str]) -> str:
    return "there are " + ", ".join(f"`{metric}`" for metric in metrics)
