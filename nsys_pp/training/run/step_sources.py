"""Sentences on steps and phases that no range names, and on steps that restart, or that captures cut."""

from __future__ import annotations

import polars as pl


def describe_sources(steps: pl.DataFrame, lanes: pl.DataFrame) -> list[str]:
    """Describe the evidence for steps found by repetition, and the reason for steps of the whole capture.

    Args:
        steps: `LANE_STEPS`.
        lanes: `LANES`.

    Returns:
        A sentence per source, with the first lane if there are several; none if ranges or jobs are the source.
    """
    if not steps["reason"].count():
        return []
    reasons = _find_first(steps.filter(pl.col("reason").is_not_null()), lanes)
    return [
        _describe(own, is_several=len(lanes) > 1)
        for own in reasons.partition_by("source", maintain_order=True)
    ]


def describe_restart(steps: pl.DataFrame, numbers: pl.DataFrame) -> list[str]:
    """Describe numbers in names that do not identify steps, as they restart during the run.

    Args:
        steps: `LANE_STEPS`, with the numbers of the reports.
        numbers: `STEP_NUMBERS` of them.

    Returns:
        A sentence; none if the steps of the run have the numbers in their names.
    """
    named = steps.filter("is_numbered").join(numbers, on=["lane", "step"])
    if (named["step"] == named["run_step"]).all():
        return []
    return ["the numbers in the names of steps restart during the run: its steps are counted, from 0"]


def describe_cuts(steps: pl.DataFrame) -> list[str]:
    """Describe captures that cut every step on some lane: means are then of few lanes, or of parts of steps.

    Args:
        steps: `RUN_STEPS`.

    Returns:
        A sentence; none if a step is whole on all lanes that recorded it, and without steps.
    """
    cut = steps.filter("is_partial")
    if steps.is_empty() or cut["step"].n_unique() < steps["step"].n_unique():
        return []
    whole, count = steps.filter(~pl.col("is_partial"))["lane"].n_unique(), steps["lane"].n_unique()
    if not whole:
        return [
            "every step is cut by the capture on every rank: times of steps are those of the recorded parts"
        ]
    return [
        f"every step is cut by the capture on some rank: means of stages and lanes are of the {whole:,} of {count:,} ranks with a whole step"
    ]


def describe_phases(phases: pl.DataFrame, lanes: pl.DataFrame) -> list[str]:
    """Describe the evidence for inferred phases.

    Args:
        phases: `LANE_PHASES`.
        lanes: `LANES`.

    Returns:
        A sentence per reason, with the first lane if there are several; none without phases.
    """
    if phases.is_empty():
        return []
    reasons = _find_first(phases, lanes)
    return [
        f"phases{_name_lanes(own, is_several=len(lanes) > 1)} are inferred, with a confidence of "
        f"{own.select(pl.col('confidence').min()).item():.2f}: {own['reason'][0]}"
        for own in reasons.partition_by("reason", maintain_order=True)
    ]


def _find_first(rows: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Return the first row of each lane, with the label of the lane, by lane."""
    first = rows.unique("lane", keep="first", maintain_order=True)
    return first.join(lanes.select("lane", "label"), on="lane").sort("lane")


def _name_lanes(rows: pl.DataFrame, *, is_several: bool) -> str:
    """Name the first of some lanes, and count the others; "" where there is a single lane."""
    where = f" of {rows['label'][0]}" if is_several else ""
    return where + (f" and {len(rows) - 1:,} more" if len(rows) > 1 else "")


def _describe(steps: pl.DataFrame, *, is_several: bool) -> str:
    """Describe the source of the steps of some lanes, with the evidence of the first lane."""
    first = steps.row(0, named=True)
    where = _name_lanes(steps, is_several=is_several)
    if first["source"] == "repetition":
        least = steps.select(pl.col("confidence").min()).item()
        return f"steps{where} are inferred, with a confidence of {least:.2f}: {first['reason']}"
    return f"steps{where} are unknown, and the capture is one step: {first['reason']}"
