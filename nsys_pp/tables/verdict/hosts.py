"""Activities of hosts while launches were late: calls, stacks and states, as parts of findings.

The shares are of the time of late launches, or of waits for data, of the thread that launched next. Activities of other threads meanwhile are a
guess, as nsys does not record for whom a call waits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import polars as pl

from nsys_pp.tables.verdict.evidence import Evidence, to_float
from nsys_pp.tables.verdict.wording import cut_name, format_share

_LEAST = 0.1  # share of a named call
_LEAST_RUNNING = 0.5
_LEAST_OTHER = 0.3  # share of an activity of other threads
_MOST_CALLS = 2
_FEWEST_SAMPLES = 10
_MOST_FUNCTIONS = 3
_MOST_LANES = 4
_KINDS = ("OS call", "call")
_CALLER = " < "
_WAITING = re.compile(
    r"cond_|futex|sem_|poll|select|sleep|\bwait|_wait|pause|sigsuspend|accept|recv|join|lock|barrier"
)
"""Calls of threads that wait for something else; one in `read()` or `open()` works, or waits for a file."""


def describe_hosts(
    evidence: Evidence,
    lanes: Sequence[int],
    causes: Collection[str],
    steps: Collection[int] | None = None,
    *,
    when: str = "meanwhile",
) -> str:
    """Describe the activities of the launching threads of lanes in bubbles of some causes; "" where nothing is recorded, or nothing clear.

    Args:
        evidence: The run.
        lanes: The lanes; of many, those with most such time count.
        causes: "host", "data".
        steps: Steps; None: all complete ones.
        when: Words for the time of the bubbles.
    """
    rows, whole = _select(evidence, lanes, causes, steps)
    if not whole:
        return ""
    calls = [(share, name) for share, _, name in _list_calls(rows, whole)]
    words = [f"{format_share(share)} in {name}" for share, name in calls]
    running = _sum_share(rows, "state", "running", whole)
    if not words and running >= _LEAST_RUNNING:
        words = [f"{format_share(running)} running on a processor"]
    stack = _describe_stack(rows, whole)
    if not words and not stack:
        return describe_others(evidence, lanes, causes, steps)
    who, verb = ("the launching thread", "was") if len(lanes) == 1 else ("launching threads", "were")
    text = f"; {when} {who}{f' {verb} ' if words else ''}{' and '.join(words)}{stack}"
    waited = sum(share for share, _, name in _list_calls(rows, whole) if _WAITING.search(name))
    if waited >= _LEAST_RUNNING and not evidence.has_passes:
        text += ", which may be a wait for requests or for another thread"
    return f"{text}{describe_others(evidence, lanes, causes, steps)}"


def describe_stack(
    evidence: Evidence, lanes: Sequence[int], causes: Collection[str], steps: Collection[int] | None = None
) -> str:
    """Name the stack of most of the calls, else of the samples; "" where none was recorded. Arguments as in `describe_hosts`."""
    rows, whole = _select(evidence, lanes, causes, steps)
    return _describe_stack(rows, whole) if whole else ""


def describe_others(
    evidence: Evidence, lanes: Sequence[int], causes: Collection[str], steps: Collection[int] | None = None
) -> str:
    """Describe the activities of other threads meanwhile, if the launching thread waited in a call or for data; arguments as above."""
    rows, whole = _select(evidence, lanes, causes, steps)
    if not whole:
        return ""
    waited = sum(share for share, _, name in _list_calls(rows, whole) if _WAITING.search(name))
    if waited < _LEAST_OTHER and "data" not in causes:
        return ""
    others = _sum_names(rows, "other thread").filter(~pl.col("name").str.contains(_WAITING.pattern))
    if others.is_empty() or others["time_ns"][0] < _LEAST_OTHER * whole:
        return ""
    thread, _, activity = str(others["name"][0]).rpartition(": ")
    verb = activity if activity == "running" else f"in `{cut_name(activity.removeprefix('range '))}`"
    share = format_share(min(others["time_ns"][0] / whole, 1.0))
    return f"; meanwhile `{cut_name(thread)}` was {verb} for {share} (a guess that this is why)"


def _select(
    evidence: Evidence, lanes: Sequence[int], causes: Collection[str], steps: Collection[int] | None
) -> tuple[pl.DataFrame, float]:
    """Select the activities of some lanes, causes and steps, and the time of their bubbles; 0 where nothing is recorded."""
    late = evidence.lane_steps.filter(pl.col("lane").is_in(list(lanes)))
    late = late.group_by("lane").agg(
        late_ns=pl.sum_horizontal(*(pl.col(f"{cause}_ns").sum() for cause in causes))
    )
    chosen = late.sort("late_ns", "lane", descending=[True, False]).head(_MOST_LANES)["lane"].to_list()
    complete = evidence.spans["step"].to_list() if steps is None else list(steps)
    rows = evidence.read_hosts(chosen).filter(
        pl.col("cause").cast(pl.String).is_in(list(causes)), pl.col("step").is_in(complete)
    )
    return rows, to_float(rows.filter(pl.col("activity").is_null())["time_ns"].sum())


def _list_calls(rows: pl.DataFrame, whole: float) -> list[tuple[float, str, str]]:
    """List the calls with the largest shares: share, kind, name. Kinds overlap, so all of them have at most the whole time."""
    found = [
        (time_ns / whole, kind, f"`{cut_name(name)}{'()' if kind == 'OS call' else ''}`")
        for kind in _KINDS
        for name, time_ns in _sum_names(rows, kind).select("name", "time_ns").head(_MOST_CALLS).iter_rows()
    ]
    listed: list[tuple[float, str, str]] = []
    for call in sorted(found, reverse=True):
        if call[0] >= _LEAST and sum(share for share, _, _ in listed) + call[0] <= 1.005:
            listed.append(call)
    return listed[:_MOST_CALLS]


def _describe_stack(rows: pl.DataFrame, whole: float) -> str:
    """Name the stack of the calls, else of the samples, with the largest share."""
    stacks = _sum_names(rows, "stack")
    if len(stacks) and stacks["time_ns"][0] >= _LEAST * whole:
        caller = _shorten(stacks["name"][0], first=1)
        return f", called from `{caller}`" if caller else ""
    samples = rows.filter(pl.col("activity") == "sample stack").group_by("name").agg(pl.col("count").sum())
    samples = samples.sort("count", "name", descending=[True, False])
    count = to_float(samples["count"].sum())
    if count < _FEWEST_SAMPLES or samples["count"][0] < _LEAST * count:
        return ""
    function, share = _shorten(samples["name"][0], first=0), samples["count"][0] / count
    return f", with {format_share(share)} of samples in `{function}`" if function else ""


def _shorten(stack: str, *, first: int) -> str:
    """Shorten a stack to its innermost functions that have a name; "" where none has.

    >>> _shorten("read < [libc.so.6] < next_batch < train < main", first=1)
    'next_batch < train < main'
    """
    functions = stack.split(_CALLER)[first:]
    named = [function for function in functions if not function.startswith(("[", "0x"))]
    return cut_name(_CALLER.join(named[:_MOST_FUNCTIONS]))


def _sum_names(rows: pl.DataFrame, activity: str) -> pl.DataFrame:
    """Sum the activities of a kind by name, the longest first: name, time_ns."""
    return (
        rows.filter(pl.col("activity") == activity)
        .group_by("name")
        .agg(pl.col("time_ns").sum())
        .sort("time_ns", "name", descending=[True, False])
    )


def _sum_share(rows: pl.DataFrame, activity: str, name: str, whole: float) -> float:
    return to_float(_sum_names(rows, activity).filter(name=name)["time_ns"].sum()) / whole
