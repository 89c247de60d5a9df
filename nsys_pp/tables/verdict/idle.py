"""Findings on GPUs that are idle: launch-bound runs, and reports without a training.

In a run with forwards and backwards, only late launches in all steps count (5 % of a step, as a mean of all ranks): all other
idle time has other findings. In other reports the idle share is named from 10 % on, with its main causes.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.training import BUBBLE_CAUSES, HOST_ACTIVITIES, HOST_ACTIVITY_COLUMNS, HOST_CAUSES
from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.verdict.evidence import Evidence, to_float
from nsys_pp.tables.verdict.hosts import describe_hosts
from nsys_pp.tables.verdict.requests import list_gaps
from nsys_pp.tables.verdict.wording import format_share, format_time

LEAST_LAUNCH_BOUND, LEAST_IDLE = 0.05, 0.1
_LEAST_CAUSE = 0.02
_MOST_CAUSES = 2
_WHEN = "in late launches"
_LONG_GAP = 0.25  # of the idle time
_WORDS = {
    "host": "late launches",
    "profiler": "waiting for nsys itself",
    "data": "loading data",
    "copy": "copies",
    "collective": "collectives",
    "collective_wait": "waiting in collectives",
    "collective_transfer": "collectives",
    "message": "messages",
    "message_wait": "waiting for messages",
    "message_transfer": "messages",
    "idle": "no work",
    "unknown": "unknown causes",
}


def find_idle_time(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find idle time of GPUs."""
    if not evidence.step_ns:
        return []
    if evidence.has_passes:
        return _find_launch_bound(evidence, earlier)
    if len(evidence.training.batches):
        return _find_gaps_of_batches(evidence)
    return _find_idle(evidence)


def _find_launch_bound(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find late launches in all steps; stalls have their own finding."""
    host = evidence.lane_steps.group_by("lane").agg(pl.col("host_ns", "span_ns").median().cast(pl.Float64))
    gain_ns = to_float(host["host_ns"].mean())
    if evidence.share(gain_ns) < LEAST_LAUNCH_BOUND:
        return []
    lanes = evidence.training.lanes["lane"].to_list()
    return [
        Finding(
            kind="idle",
            text=f"GPUs wait for launches {format_share(evidence.share(gain_ns))} of a step: the hosts are the limit"
            f" ({format_time(gain_ns)} of {format_time(evidence.step_ns)}){describe_hosts(evidence, lanes, ['host'], when=_WHEN)}",
            confidence="certain",
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=evidence.share(gain_ns),
            value_ns=gain_ns,
            sample_count=evidence.lane_steps.height,
        )
    ]


def _find_gaps_of_batches(evidence: Evidence) -> list[Finding]:
    """Find the gaps between iterations of inference, with the activities of the host."""
    batches = evidence.training.batches.drop_nulls(["start_ns", "gap_ns"])
    time = to_float((batches["end_ns"] - batches["start_ns"]).sum())
    gaps = to_float(batches["gap_ns"].sum())
    of_hosts = list_gaps(evidence)  # waits for requests are no fault of a host
    idle = to_float(of_hosts["idle_ns"].sum())
    if not time + gaps or (gaps - idle) / (time + gaps) < LEAST_IDLE:
        return []
    share = (gaps - idle) / (time + gaps)
    activities = [
        (to_float(of_hosts[column].sum()) / (time + gaps), name)
        for name, column in zip(HOST_ACTIVITIES, HOST_ACTIVITY_COLUMNS, strict=True)
    ]
    texts = _name_largest(activities)
    gain_ns = (gaps - idle) / batches.height
    period_ns = (time + gaps) / batches.height
    return [
        Finding(
            kind="idle",
            text=f"GPUs are idle between iterations {format_share(share)} of the time{texts and f': {texts}'}"
            f" ({format_time(gain_ns)} of {format_time(period_ns)} per iteration)",
            confidence="certain",
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=share,
            value_ns=gain_ns,
            sample_count=batches.height,
        )
    ]


def _find_idle(evidence: Evidence) -> list[Finding]:
    """Find the time without compute of a report without a training, with its main causes and longest gap."""
    span = to_float(evidence.lane_steps["span_ns"].sum())
    times = {cause: to_float(evidence.lane_steps[f"{cause}_ns"].sum()) for cause in BUBBLE_CAUSES}
    idle = sum(times.values())
    if not span or idle / span < LEAST_IDLE:
        return []
    merged: dict[str, float] = {}
    for cause, time_ns in times.items():
        merged[_WORDS[cause]] = merged.get(_WORDS[cause], 0.0) + time_ns / span
    texts = _name_largest([(share, words) for words, share in merged.items()])
    gain_ns = idle / max(evidence.lane_steps.height, 1)
    whole = "a step" if evidence.has_steps else "the capture"
    name = "the GPU is" if evidence.training.lanes.height == 1 else "GPUs are"
    longest = _describe_longest(evidence, idle)
    late = [cause for cause in HOST_CAUSES if times[cause] >= _LEAST_CAUSE * span]
    hosts = (
        describe_hosts(evidence, evidence.training.lanes["lane"].to_list(), late, when=_WHEN) if late else ""
    )
    return [
        Finding(
            kind="idle",
            text=f"{name} without compute {format_share(idle / span)} of {whole}{texts and f': {texts}'}{longest}{hosts}",
            confidence="certain",
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=idle / span,
            value_ns=gain_ns,
            sample_count=evidence.lane_steps.height,
        )
    ]


def _describe_longest(evidence: Evidence, idle_ns: float) -> str:
    """Describe the longest gap, if it is a large part of the idle time."""
    length = pl.col("end_ns") - pl.col("start_ns")
    gaps = evidence.training.gaps.filter(pl.col("step").is_not_null()).sort(-length, "start_ns", "lane")
    if gaps.is_empty():
        return ""
    start, end = gaps["start_ns"][0], gaps["end_ns"][0]
    if end - start < _LONG_GAP * idle_ns:
        return ""
    at = format_time(start - evidence.training.zero_ns)
    return f"; the longest gap is {format_time(end - start)}, at {at}"


def _name_largest(shares: Sequence[tuple[float, str]]) -> str:
    """Format the largest shares of the time with their names."""
    largest = sorted((item for item in shares if item[0] >= _LEAST_CAUSE), reverse=True)[:_MOST_CAUSES]
    return ", ".join(f"{words} {format_share(share)}" for share, words in largest)
