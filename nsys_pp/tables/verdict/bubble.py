"""Measured bubble, and the bubble of the ideal: the same jobs in the same order without gaps between them.

The gain is the bubble beyond the ideal that no other finding explains.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.training.schedule_table import ideal_bubble_fraction
from nsys_pp.tables.verdict.evidence import Evidence, to_float
from nsys_pp.tables.verdict.wording import format_share
from nsys_pp.units import format_count

_NAMES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "interleaved 1F1B",
    "zb-h1": "ZB-H1",
    "dualpipev": "DualPipeV",
}


def compare_bubble(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe the bubble of a run with forwards and backwards; other runs have none."""
    if not evidence.has_passes or not evidence.step_ns:
        return []
    schedule = evidence.training.schedule
    share = pl.col("bubble_ns").sum() / pl.col("span_ns").sum()
    ideal = pl.col("ideal_bubble_ns").sum() / pl.col("ideal_span_ns").sum()
    steps = evidence.lane_steps.group_by("step").agg(
        share=share,
        ideal=pl.when(pl.col("ideal_span_ns").count() > 0).then(ideal),
        beyond_ns=(pl.col("bubble_ns") - pl.col("ideal_bubble_ns")).mean(),
    )
    bubble, beyond_ns = to_float(steps["share"].median()), steps["beyond_ns"].median()
    ideal_share = steps["ideal"].fill_nan(None).median()
    if ideal_share is None and schedule.source != "uncertain":
        formula = ideal_bubble_fraction(schedule)
        ideal_share = None if formula is None else formula[1]
    text = f"bubble {format_share(bubble)}"
    if ideal_share is not None:
        text += f", ideal {_describe_schedule(evidence)}{format_share(to_float(ideal_share))}"
    elif schedule.source == "uncertain":
        text += "; the ideal is unknown, as much compute belongs to no job"
    # null where no step has an ideal
    explained = sum(
        to_float(finding.value_ns) if finding.kind == "communication" else finding.gain_ns
        for finding in earlier
    )
    gain_ns = max(0.0, to_float(beyond_ns) - explained)
    return [
        Finding(
            kind="bubble",
            text=text,
            confidence="certain",
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=evidence.share(gain_ns),
            value_ns=bubble * evidence.step_ns,
            usual_ns=None if ideal_share is None else to_float(ideal_share) * evidence.step_ns,
            sample_count=evidence.step_count,
        )
    ]


def _describe_schedule(evidence: Evidence) -> str:
    """Describe the schedule with its number of micro-batches; "" if it is unknown."""
    schedule = evidence.training.schedule
    if schedule.name == "unknown" or not schedule.micro_batch_count:
        return ""
    name = _NAMES.get(schedule.name, schedule.name)
    batches = format_count(schedule.micro_batch_count, "micro-batch").replace("batchs", "batches")
    return f"for {name} with {format_count(schedule.stage_count, 'stage')} and {batches} "
