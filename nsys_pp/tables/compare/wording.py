"""Words of findings of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsys_pp.frames.verdict import Confidence
from nsys_pp.tables.compare.evidence import Comparison
from nsys_pp.tables.verdict.wording import format_excess, format_share
from nsys_pp.units import format_count

_ANY_CHANGE = 1.0  # relative noise; of few steps, where its size has no meaning
_CERTAIN_FACTOR, _CERTAIN_STEPS = 2.0, 3


def describe_change(change: float) -> str:
    """Describe a relative change of a time.

    >>> describe_change(0.25), describe_change(2.02), describe_change(-0.2)
    ('25 % longer', '3.0 times as long', '20 % shorter')
    """
    return f"{format_share(-change)} shorter" if change < 0 else format_excess(change)


def since(row: Mapping[str, Any]) -> str:
    """Describe the first step of a change that began inside B; "" otherwise."""
    return "" if row["since_step"] is None else f" since step {row['since_step']}"


def is_any_change_noise(row: Mapping[str, Any]) -> bool:
    """Return whether there are so few steps that noise explains any change."""
    noise = row["noise_fraction"]
    return noise is not None and noise >= _ANY_CHANGE


def describe_noise(row: Mapping[str, Any]) -> str:
    """Describe the change that noise, or the least change, explains; "" where it is unknown."""
    if row["noise_fraction"] is None:
        return ""
    return f" (noise up to {format_share(max(row['noise_fraction'], row['least_fraction']))})"


def describe_step_noise(row: Mapping[str, Any], noise_of_table: float | None) -> str:
    """Describe the noise of the length of steps as its table does, and the larger limit of the verdict, if there is one."""
    limit = describe_noise(row)
    if not limit or noise_of_table is None:
        return limit
    of_table, of_verdict = (
        max(noise, row["least_fraction"]) for noise in (noise_of_table, row["noise_fraction"])
    )
    shown, stricter = format_share(of_table), format_share(of_verdict)
    if of_verdict <= of_table or shown == stricter:
        return limit
    counts = format_count(row["a_step_count"], "step"), row["b_step_count"]
    return (
        f" (noise up to {shown}; of {counts[0]} in A and {counts[1]} in B, the verdict counts changes"
        f" beyond {stricter} only)"
    )


def rate(row: Mapping[str, Any], comparison: Comparison) -> Confidence:
    """Rate a change: certain with twice the noise in three steps, a guess where steps are inferred or may be other work."""
    if any(facts.step_source in ("repetition", "capture") for facts in comparison.facts):
        return "guess"
    if comparison.may_be_other_batches:
        return "guess"
    noise = row["noise_fraction"]
    count = min(row["a_step_count"], row["b_step_count"])
    if noise is None or (is_any_change_noise(row) and not row["is_change"]):
        return "guess"
    if not row["is_change"]:
        return "certain"
    is_clear = abs(row["change_fraction"]) >= _CERTAIN_FACTOR * noise and count >= _CERTAIN_STEPS
    return "certain" if is_clear else "likely"
