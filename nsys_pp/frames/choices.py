"""Names that options accept, for the command line and the library.

Imports nothing, so that `--help` is quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Detail = Literal["jobs", "ranges", "kernels", "cpu"]
DETAILS: tuple[Detail, ...] = ("jobs", "ranges", "kernels", "cpu")
"""Levels of detail of a trace; each has more than the one before."""

SHOW_KINDS: Mapping[str, str] = {
    "os": "calls of the operating system",
    "states": "threads on and off processors, contexts on and off GPUs",
    "samples": "CPU samples with their stacks",
    "sync": "CUDA synchronization",
    "mpi": "MPI calls",
    "ucx": "UCX calls",
    "libraries": "cuDNN, cuBLAS, OpenACC, OpenMP, graphics and video calls",
    "profiler": "messages and overhead of nsys",
    "memory": "GPU memory in use",
    "metrics": "GPU metrics",
    "counters": "performance counters of processors",
    "network": "metrics of network cards and switches",
    "other": "any other table with times",
}
"""Kinds of data that a trace has on request (`--show`)."""

ClockMode = Literal["collectives", "utc", "none"]
CLOCK_MODES: tuple[ClockMode, ...] = ("collectives", "utc", "none")
"""Sources of the common clock of machines."""

Split = Literal["auto", "none", "machine", "rank", "step"]
SPLITS: tuple[Split, ...] = ("auto", "none", "machine", "rank", "step")
"""Divisions of a run into several traces."""

MAX_EVENTS = 2_000_000
"""Largest number of events of a trace that Perfetto's UI opens with memory to spare.

The importer of the UI (v52, WebAssembly, in Node) needs, at its peak:

| detail | slices | file | memory |
|---|---|---|---|
| kernels | 1 million | 24 MB | 1.3 GiB |
| kernels | 2 million | 48 MB | 2.1 GiB |
| kernels | 5 million | 120 MB | 4.5 GiB |
| ranges | 1 million | 31 MB | 1.7 GiB |

So it is 0.45 GiB, and 0.86 KB a slice; 1.3 KB a range, because each has arguments of its own. Two million are
2.1 to 3 GiB of the 4 GiB of WebAssembly, and queries of the UI need memory too. Browsers that stop at 2 GiB
hold a million.
"""

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "dualpipev")
"""Pipeline schedules."""

SUMMARY_GROUPS: Mapping[str, tuple[str, ...]] = {
    "run": (),
    "rank": ("rank",),
    "machine": ("machine",),
    "stage": ("stage",),
    "device": ("machine", "gpu"),
    "step": ("step",),
}
"""Groups of rows of a summary (`--by`), and their columns."""

DATA_TYPES = ("bf16", "fp16", "tf32", "fp8", "fp4")
"""Data types of peak rates of GPUs."""

ASPECTS: Mapping[str, str] = {
    "steps": "name the ranges that are steps with `--step-pattern`, so that both runs have them",
    "jobs": "name the ranges that are jobs with `--preset` or `--job-pattern`, so that both runs have them",
    "stages": "stages and ranks are then left out",
    "operations": "extract the parts of one run again, with the options of the other",
}
"""Aspects in which compared runs may not differ unless `--allow-different` names them, and what helps."""
