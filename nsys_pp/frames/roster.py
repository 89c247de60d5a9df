"""`ROSTER`: machines, processes, GPUs, ranks and stages of all reports."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.report import Session

# Largest number of ranks of a run. Lists of missing ranks have up to as many entries, so larger numbers in a
# report, which are often numbers of jobs, are refused or ignored.
MOST_RANKS = 1 << 20
# Sources of ranks that are not recorded: the natural order of files with one GPU process each; the order of
# GPUs, and where unknown the natural order of machines.
FILE_ORDER, GPU_ORDER, MACHINE_ORDER = "file order", "GPU order", "machine and GPU order"
GIVEN_LAYOUT = "--layout"  # source of stages

ROSTER = build_schema(
    {  # one row per report, process and device; by these
        "report": pl.UInt32,  # index of the report, in the order of the inputs
        "machine": pl.String,  # unique label
        # "hostname", "hardware id", "folder", "GPU uuids", "process ids", "file name"
        "machine_source": pl.String,
        "machine_order": pl.UInt32,  # natural order of machines
        "process_key": pl.Int64,  # null, like all further columns, in a report without GPU operations
        "device_id": pl.Int32,
        "pid": pl.Int64,
        # "GPU 0": one label per physical GPU of the machine; "GPU 0 MIG 1" for a part of one
        "gpu": pl.String,
        "gpu_number": pl.Int64,  # its number, by the order of nvidia-smi where that is known
        "gpu_name": pl.String,
        "uuid": pl.String,
        "bus_location": pl.String,
        "rank": pl.Int64,
        "rank_source": pl.String,
        "stage": pl.Int64,  # pipeline-parallel coordinate (pp)
        "tensor": pl.Int64,  # tensor-parallel coordinate (tp)
        "replica": pl.Int64,  # data-parallel coordinate (dp)
        "stage_source": pl.String,  # `GIVEN_LAYOUT`; or "NVTX": names of ranges and marks
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


def list_missing_ranks(lanes: pl.DataFrame) -> list[int]:
    """List the ranks of the run without a lane; empty if lanes of unknown rank may have these ranks.

    Where the size of the run is unknown, these are the ranks below the last one.

    Args:
        lanes: `LANES`, or its columns rank and run_size.
    """
    ranks = set(lanes["rank"].drop_nulls())
    size = int(lanes["run_size"].fill_null(0).to_numpy().max(initial=0))
    missing = sorted(set(range(max([size, *(rank + 1 for rank in ranks)]))) - ranks)
    return missing if len(missing) > lanes["rank"].null_count() else []


# Captures of one session differ by rounding: by up to 10 ns where some were recorded (nsys 2023.4 and 2024.2:
# `--capture-range-end=repeat`, and `nsys start` and `stop`). Sessions differ by the time between their
# starts, or, where the start is that of the system clock, by the error of two readings of UTC: some 0.1 ms.
_ROUNDING_NS = 100


def capture_window(session: Session) -> tuple[int, int] | None:
    """Return the start and the end of a capture in UTC, in ns; None where one is unknown."""
    if session.utc_epoch_ns is None or session.capture_end_ns is None:
        return None
    return session.utc_epoch_ns, session.utc_epoch_ns + session.capture_end_ns - session.time_shift_ns


def share_origin(session: Session, other: Session) -> bool:
    """Return whether nsys recorded the starts of two reports of one machine on one clock.

    With one reading of UTC.
    """
    if session.origin_ns is None or other.origin_ns is None:
        return False
    return abs(session.origin_ns - other.origin_ns) <= _ROUNDING_NS


def share_session(session: Session, other: Session) -> bool:
    """Return whether two reports of one machine are captures of one nsys session.

    Such captures follow each other in time.

    Args:
        session: Of one report.
        other: Of another report of its machine.
    """
    first, second = capture_window(session), capture_window(other)
    if first is None or second is None or not share_origin(session, other):
        return False
    return first[1] <= second[0] or second[1] <= first[0]
