"""`ROSTER`: machines, processes, GPUs, ranks and stages of all reports."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.report import Session

MOST_RANKS = 1 << 20
"""Largest number of ranks of a run. Lists of missing ranks have up to as many entries, so larger numbers in a report, which
are often numbers of jobs, are refused or ignored."""
FILE_ORDER, GPU_ORDER, MACHINE_ORDER = "file order", "GPU order", "machine and GPU order"
"""Sources of ranks that are not recorded: the natural order of files with one GPU process each; the order of GPUs, and where
unknown the natural order of machines."""

ROSTER = build_schema(
    {  # one row per report, process and device; by these
        "report": pl.UInt32,  # index of the report, in the order of the inputs
        "machine": pl.String,  # unique label
        "machine_source": pl.String,  # "hostname", "hardware id", "folder", "GPU uuids", "process ids", "file name"
        "machine_order": pl.UInt32,  # natural order of machines
        "process_key": pl.Int64,  # null, like all further columns, in a report without GPU operations
        "device_id": pl.Int32,
        "pid": pl.Int64,
        "gpu": pl.String,  # "GPU 0": one label per physical GPU of the machine; "GPU 0 MIG 1" for a part of one
        "gpu_number": pl.Int64,  # its number, by the order of nvidia-smi where that is known
        "gpu_name": pl.String,
        "uuid": pl.String,
        "bus_location": pl.String,
        "rank": pl.Int64,
        "rank_source": pl.String,
        "stage": pl.Int64,  # pipeline-parallel coordinate (pp)
        "tensor": pl.Int64,  # tensor-parallel coordinate (tp)
        "replica": pl.Int64,  # data-parallel coordinate (dp)
        "stage_source": pl.String,  # "--layout"; or "NVTX": names of ranges and marks
        "stage_count": pl.Int64,  # stages of the run, also those without a report; null where unknown
        "run_size": pl.Int64,  # ranks of the run, likewise
    },
    name="ROSTER",
)

COORDINATES = build_schema(
    {  # pipeline coordinates in names of ranges and marks; one row per process, by process_key
        "process_key": pl.Int64,
        "stage": pl.Int64,
        "tensor": pl.Int64,
        "replica": pl.Int64,
    },
    name="COORDINATES",
)


class Identity(Struct, frozen=True, kw_only=True):
    """Facts that distinguish a recording, its processes and GPUs; small, however large the report."""

    path: Path
    session: Session
    processes: pl.DataFrame  # PROCESSES
    gpus: pl.DataFrame  # GPUS
    devices: pl.DataFrame  # DEVICES
    ranks: pl.DataFrame  # RANKS
    coordinates: pl.DataFrame  # COORDINATES
    fingerprint: int  # 64 bits, unsigned: the same for every export of one recording


class ProcessDevice(NamedTuple):
    """A process of a report and its device; null without GPU operations."""

    report: int  # index of the report
    process_key: int | None
    device_id: int | None
