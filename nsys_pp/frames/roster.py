"""`ROSTER`: machines, processes, GPUs, ranks and stages of all reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.report import Session

ROSTER = build_schema(
    {  # who is who among all reports: one row per report, process and device; by report, then those
        "report": pl.UInt32,  # place among the reports as given
        "machine": pl.String,  # a label that no other machine has
        "machine_source": pl.String,  # "hostname", "hardware id", "folder", "GPU uuids", "process ids", "file name"
        "machine_order": pl.UInt32,  # natural order of machines
        "process_key": pl.Int64,  # null, like all that follows, in a report without GPU operations
        "device_id": pl.Int32,
        "pid": pl.Int64,
        "gpu": pl.String,  # "GPU 0": one label per physical GPU of the machine; "GPU 0 MIG 1" for a part of one
        "gpu_number": pl.Int64,  # the number in it, as nvidia-smi counts, as far as that is known
        "gpu_name": pl.String,
        "uuid": pl.String,
        "bus_location": pl.String,
        "rank": pl.Int64,
        "rank_source": pl.String,
        "stage": pl.Int64,  # place in the pipeline (pp)
        "tensor": pl.Int64,  # place in the tensor-parallel group (tp)
        "replica": pl.Int64,  # place in the data-parallel group (dp)
        "stage_source": pl.String,  # "--layout", or "NVTX" where programs wrote it into names
    },
    name="ROSTER",
)

COORDINATES = build_schema(
    {  # one row per process that says its place, by process_key
        "process_key": pl.Int64,
        "stage": pl.Int64,
        "tensor": pl.Int64,
        "replica": pl.Int64,
    },
    name="COORDINATES",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What one report says of who recorded it; small, however large the report."""

    path: Path
    session: Session
    processes: pl.DataFrame  # PROCESSES
    gpus: pl.DataFrame  # GPUS
    devices: pl.DataFrame  # DEVICES
    ranks: pl.DataFrame  # RANKS
    coordinates: pl.DataFrame  # COORDINATES
    fingerprint: int  # 64 bits, unsigned: the same for every export of one recording


class Who(NamedTuple):
    """A process of a report, and its device; null where the report has no GPU operations."""

    report: int  # place among the reports
    process_key: int | None
    device_id: int | None
