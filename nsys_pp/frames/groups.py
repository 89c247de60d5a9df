"""Groups of data that are read from an export."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

Group = Literal[
    "ranges",
    "ops",
    "kernel_names",
    "details",
    "cpu",
    "communication",
    "os_calls",
    "host",
    "copy_kinds",
    "tables",
    "overview",
    "metric_sums",
    "network_sums",
    "show_os",
    "show_states",
    "show_samples",
    "show_sync",
    "show_mpi",
    "show_ucx",
    "show_libraries",
    "show_profiler",
    "show_memory",
    "show_metrics",
    "show_counters",
    "show_network",
    "show_other",
]
"""Groups of data to read in addition to the session: NVTX ranges; calls and GPU operations; demangled names of
kernels; details of operations (these names, grids, registers, bytes); data of CPU threads (names of calls; colors, categories and payloads of ranges);
communication between ranks (payloads of NCCL's ranges, calls of MPI); calls of the operating system; data of the host
for summaries (these calls, runs of threads, allocations); kinds of memory of copies; the number of rows of every exported table;
metrics of GPUs for the overview of a trace, and these and metrics of the network for sums in parts; and the kinds
of data that a trace has on request (`nsys_pp.frames.choices.SHOW_KINDS`), each with the prefix `show_`."""

SHOW_GROUPS: frozenset[Group] = frozenset(group for group in get_args(Group) if group.startswith("show_"))
ON_REQUEST: frozenset[Group] = SHOW_GROUPS | {
    "overview",
    "metric_sums",
    "network_sums",
    "copy_kinds",
}  # of `tables_on_request`
ALL_GROUPS: frozenset[Group] = frozenset(get_args(Group)) - ON_REQUEST - {"tables"}
"""All groups that analyses read."""
SURVEY_GROUPS: frozenset[Group] = frozenset({"ranges", "ops", "communication"})
"""Groups for the identity of a report, its jobs, and the anchors of its clock."""


def find_show_groups(kinds: Iterable[str]) -> frozenset[Group]:
    """Return the groups of kinds of data that are shown on request."""
    return frozenset(group for group in SHOW_GROUPS if group.removeprefix("show_") in {*kinds})
