"""What one report holds once it is read: session facts and our frames."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Facts about one recording.

    `utc = event_ns - time_shift_ns + utc_epoch_ns` holds for every event
    (`time_shift_ns` is the total shift that the exporter applied).
    """

    nsys_version: str | None  # of the exporter, "2023.4.4.54"
    schema_version: str | None  # "3.7.2"; None in exports of 2019 and 2020
    hostname: str | None
    hardware_id: str | None
    machine: str  # hostname, else hardware id, else its `machine*` folder, else the file's name
    machine_source: str  # "hostname", "hardware id", "folder" or "file name"
    utc_epoch_ns: int | None  # UTC at the start of the session
    system_clock_ns: int | None  # CLOCK_MONOTONIC at the start of the session
    time_shift_ns: int
    capture_end_ns: int | None  # end of the valid window, on the report's clock
    graph_mode: str | None  # "Graph" or "Node", where recorded
    launcher: dict[str, str]  # the allow-listed launcher variables, nothing else
    rank: int | None
    rank_source: str | None  # "MPI", "RANK", ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report: where it came from, its session, and its frames (schemas in `nsys_pp.frames.report`).

    A frame whose table the report lacks is empty; `recorded` tells the difference between
    "not recorded" (absent) and "recorded, nothing happened" (present, maybe empty).
    """

    path: Path
    session: Session
    fingerprint: int  # the same for every export of one recording, and for no other
    recorded: dict[str, int]  # our name of each table that the report has -> rows, where counted
    processes: pl.DataFrame  # PROCESSES
    threads: pl.DataFrame  # THREADS
    gpus: pl.DataFrame  # GPUS
    devices: pl.DataFrame  # DEVICES; without operations, those that CUDA contexts were made on
    streams: pl.DataFrame  # STREAMS
    ranges: pl.DataFrame  # RANGES
    marks: pl.DataFrame  # MARKS
    api_calls: pl.DataFrame  # API_CALLS
    gpu_ops: pl.DataFrame  # GPU_OPS
    op_details: pl.DataFrame  # OP_DETAILS; empty unless asked for
    nccl_calls: pl.DataFrame  # NCCL_CALLS; empty unless asked for
    mpi_calls: pl.DataFrame  # MPI_CALLS; empty unless asked for
    os_calls: pl.DataFrame  # OS_CALLS; empty unless asked for
    thread_runs: pl.DataFrame  # THREAD_RUNS; empty unless asked for
    memory_events: pl.DataFrame  # MEMORY_EVENTS; empty unless asked for
    ranks: pl.DataFrame  # RANKS
