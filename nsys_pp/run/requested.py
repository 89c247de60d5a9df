"""Data of tables on request.

Reports are read once more with the tables that only these need, parts keep frames of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import polars as pl
from msgspec import Struct

from nsys_pp.frames.requested import HOST_TIMES, Explanations
from nsys_pp.frames.training import HOST_CAUSES, Training
from nsys_pp.model.contents import name_option
from nsys_pp.read import is_part
from nsys_pp.run.hosts import read_host_times
from nsys_pp.run.metrics import read_clock_sums, read_metric_sums, read_network_sums
from nsys_pp.run.run import Run

_OF_HOSTS = frozenset({"os_calls", "cpu_samples", "thread_switches"})
"""Kinds of data beyond calls and ranges, which the longest gaps have already."""


class Requested(Struct, frozen=True, kw_only=True):
    """Data of a table on request.

    Attributes:
        read: Reads the data of a run; tables with the same function share them.
        no_rows: Why a table has no rows where everything that it needs was recorded.
        kind: Kind of data in reports, as in `PartFacts.recorded`; None: none that an option of nsys records.
        noun: The kind in words.
    """

    read: Callable[[Run, Training], pl.DataFrame]
    no_rows: str
    kind: str | None = None
    noun: str = ""


def _of_metrics() -> Requested:
    return Requested(
        read=read_metric_sums,
        kind="gpu_metrics",
        noun="GPU metrics",
        no_rows="none of the parts has GPU metrics of a GPU with kernels",
    )


REQUESTED: Mapping[str, Requested] = {
    "metrics": _of_metrics(),
    "step_metrics": _of_metrics(),
    "network": Requested(
        read=read_network_sums,
        kind="nic_metrics",
        noun="network metrics",
        no_rows="none of the parts has network metrics in steps",
    ),
    "host": Requested(
        read=read_host_times,
        no_rows="no activity of the host was recorded in bubbles of cause host or data",
    ),
    "overhead": Requested(
        read=lambda run, training: training.overheads,  # read with the jobs
        no_rows="no overhead was recorded on threads that launch",
    ),
}


def explain_no_rows(run: Run, training: Training, name: str) -> str:
    """Explain why a table of `REQUESTED` has no rows.

    An option is spelled as in the nsys that recorded the first report.
    """
    entry = REQUESTED[name]
    if name == "host" and not training.lane_states["cause"].is_in(HOST_CAUSES).any():
        return "there is no bubble of cause host or data"
    if entry.kind is None:
        return entry.no_rows
    facts = [recorded.part.facts for recorded in run.inputs if not is_part(recorded.path)]
    if not facts:
        return f"{entry.no_rows}: record them, or extract the parts again"
    if any(entry.kind in (fact.recorded or ()) for fact in facts):
        return f"there are no samples of {entry.noun} in the steps of any GPU with kernels"
    option = name_option(entry.kind, nsys_version=facts[0].session.nsys_version)
    what = "the report has no" if len(facts) == 1 else f"none of the {len(facts):,} reports has"
    return f"{what} {entry.noun}: record them with `nsys profile {option}`"


def explain(run: Run, training: Training) -> Explanations:
    """Return the functions that read what explains findings of a verdict, only where a finding needs it."""
    return Explanations(
        read_clocks=partial(read_clock_sums, run, training),
        read_hosts=partial(_read_hosts_of_lanes, run, training),
    )


def _read_hosts_of_lanes(run: Run, training: Training, lanes: Collection[int]) -> pl.DataFrame:
    """Read the activities of the hosts of some lanes whose reports recorded any (`HOST_TIMES`)."""
    own = training.lanes.filter(pl.col("lane").is_in(list(lanes)))
    recorded = [
        report
        for first in own["report"].unique().to_list()
        for report in run.captures.list_reports(first)
        if _OF_HOSTS & {*(run.inputs[report].part.facts.recorded or ())}
    ]
    if not recorded:
        return HOST_TIMES.to_frame()
    return read_host_times(run, training, recorded).filter(pl.col("lane").is_in(list(lanes)))
