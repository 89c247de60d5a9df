"""Data of a run that explain findings of its verdict: reports are read once more only where a finding needs them."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import polars as pl

from nsys_pp.compose.requested import read_host_times
from nsys_pp.compose.requested_metrics import read_clock_sums
from nsys_pp.compose.run import Run
from nsys_pp.frames.explanations import Explanations
from nsys_pp.frames.requested import HOST_TIMES
from nsys_pp.frames.training import Training

_OF_HOSTS = ("os_calls", "cpu_samples", "thread_switches")
"""Kinds of data beyond calls and ranges, which the longest gaps have already."""


def explain(run: Run, training: Training) -> Explanations:
    """Return the functions that read the data of a run."""
    return Explanations(
        read_clocks=partial(read_clock_sums, run, training),
        read_hosts=partial(_read_hosts, run, training),
    )


def _read_hosts(run: Run, training: Training, lanes: Collection[int]) -> pl.DataFrame:
    """Read the activities of the hosts of some lanes whose reports recorded any (`HOST_TIMES`)."""
    own = training.lanes.filter(pl.col("lane").is_in(list(lanes)))
    recorded = [
        report
        for first in own["report"].unique().to_list()
        for report in run.captures.list_reports(first)
        if not {*_OF_HOSTS}.isdisjoint(run.inputs[report].part.facts.recorded or ())
    ]
    if not recorded:
        return HOST_TIMES.to_frame()
    return read_host_times(run, training, recorded).filter(pl.col("lane").is_in(list(lanes)))
