"""Gates: conditions on a comparison of two runs that count as a failure, such as `bubble>5%`.

    [stage N] METRIC[_b] OPERATOR NUMBER UNIT

    METRIC    step, longest_step, kernels (their total, without communication), bubble, compute (of the jobs
              of a stage), a cause of the bubble (host, transfer, message_wait, ...) or a kind of job (forward,
              backward, ...); `data` is the cause
    OPERATOR  > >= < <=; the gate fails if the comparison is true
    UNIT      % ms us s ns

A gate applies to the change from A to B: % is relative for times (`step>3%`: steps are more than 3 % longer), and
means percentage points for shares of the step (`bubble>5%`: from 20 % of the step to more than 25 %). With `_b` it
applies to the value of B: `bubble_b>20%`. A change within noise passes every gate.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import polars as pl
from msgspec import Struct

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
    r"\s*(?:stage\s+(?P<stage>\d{1,9})\s+)?(?P<metric>[a-z_]+?)(?P<b>_b)?\s*(?P<sign>>=|<=|>|<)"
    r"\s*(?P<number>[+-]?(?:\d{1,18}\.?\d{0,18}|\.\d{1,18}))\s*(?P<unit>%|ns|us|ms|s)\s*"
)
_FRAMES = ("steps", "bubbles", "stages", "kinds")


class GateError(NsysPPError):
    """An invalid gate, or a gate on a metric that the runs do not have."""


class Gate(Struct, frozen=True, kw_only=True):
    """A condition on a metric of a comparison.

    Attributes:
        text: The text that it was parsed from.
        stage: Number of a stage; None: all stages.
        metric: Subject of a comparison.
        is_of_b: It applies to the value of B, not to the change.
        sign: Operator: ">", ">=", "<" or "<=".
        limit: Limit in nanoseconds, or a fraction.
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
    """Parse a gate.

    Raises:
        GateError: The text is not a gate, or its metric is unknown.

    >>> gate = parse_gate("stage 2 bubble > 10%")
    >>> gate.stage, gate.metric, gate.sign, gate.limit
    (2, 'bubble', '>', 0.1)
    """
    match = _GATE.fullmatch(text)
    if match is None:
        raise GateError(
            f"invalid gate `{text}`; expected METRIC, an operator, a number and a unit",
            "examples: `bubble>5%`, `step>20ms`, `stage 2 forward>3%`",
        )
    if match["metric"] not in SUBJECTS:
        raise GateError(
            f"unknown metric `{match['metric']}` in gate `{text}`", f"expected {_list_metrics(SUBJECTS)}"
        )
    return Gate(
        text=text.strip(),
        stage=None if match["stage"] is None else int(match["stage"]),
        metric=match["metric"],
        is_of_b=match["b"] is not None,
        sign=match["sign"],
        limit=float(match["number"]) * _SCALES[match["unit"]],
        is_percent=match["unit"] == "%",
    )


def check_gates(comparison: Mapping[str, pl.DataFrame], gates: Iterable[Gate]) -> list[str]:
    """Check gates against a comparison.

    If a run has a single step, its noise is unknown, and any change counts.

    Args:
        comparison: Rows of the tables, as returned by `compare_trainings`.
        gates: The gates.

    Returns:
        One sentence for each gate that fails, in the order of the gates; empty if none does.

    Raises:
        GateError: The runs do not have what a gate is about.
    """
    rows = pl.concat(comparison[name] for name in _FRAMES)
    return [failure for gate in gates if (failure := _check(gate, rows)) is not None]


def _check(gate: Gate, rows: pl.DataFrame) -> str | None:
    """Return a sentence on the failure of a gate; None if it passes."""
    row = _find(gate, rows)
    value, noise = (row["b"], None) if gate.is_of_b else _change(gate, row)
    if not _OPERATORS[gate.sign](value, gate.limit) or (noise is not None and abs(value) <= noise):
        return None
    where = "" if gate.stage is None else f" of stage {gate.stage}"
    b = _write(row["b"], row["unit"])
    if gate.is_of_b:
        return f"`{gate.text}`: {gate.metric}{where} is {b}"
    a = _write(row["a"], row["unit"])
    unsure = "" if noise is not None else "; its noise is unknown: a run has a single step"
    return f"`{gate.text}`: {gate.metric}{where} went from {a} to {b}{unsure}"


def _find(gate: Gate, rows: pl.DataFrame) -> dict[str, Any]:
    """Return the row of the comparison that a gate applies to."""
    candidates = rows.filter(pl.col("stage").eq_missing(pl.lit(gate.stage, pl.Int64))).drop_nulls("b")
    candidates = candidates if gate.is_of_b else candidates.drop_nulls("a")
    matches = candidates.filter(pl.col("subject") == gate.metric)
    if matches.is_empty():
        where = "the runs" if gate.stage is None else f"stage {gate.stage} of the runs"
        metrics = _list_metrics(candidates["subject"].unique(maintain_order=True))
        raise GateError(f"gate `{gate.text}`: `{gate.metric}` is missing in {where}", f"available: {metrics}")
    # A metric with a share and a time is compared by its share if the limit is a percentage.
    units = ("fraction", "ns") if gate.is_percent else ("ns",)
    unit = next(unit for unit in units if unit in matches["unit"])
    row = matches.filter(pl.col("unit") == unit).row(0, named=True)
    if gate.is_of_b and gate.is_percent and row["unit"] == "ns":
        raise GateError(
            f"invalid gate `{gate.text}`: {gate.metric} is a time, not a share",
            "use a time as limit, e.g. `20ms`",
        )
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
    return ", ".join(f"`{metric}`" for metric in metrics)
