"""NVIDIA's own projection of a report, and how ours must look beside it."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import polars as pl

COLUMNS = {
    "RangeId": "range_id",
    "Name": "name",
    "Projected Start (ns)": "gpu_start_ns",
    "Projected Duration (ns)": "gpu_duration_ns",
    "Orig Start (ns)": "start_ns",
    "Orig Duration (ns)": "duration_ns",
    "PID": "pid",
    "TID": "tid",
    "NumGPUOps": "call_count",
}
KEYS = ["range_id", "gpu_start_ns", "gpu_duration_ns", "start_ns", "duration_ns", "pid", "tid", "call_count"]


def parse(csv: bytes) -> pl.DataFrame:
    """Rows of ranges, by range_id; the row without a range (launches outside all) is left out."""
    frame = pl.read_csv(io.BytesIO(csv), infer_schema=False).select(
        pl.col(theirs).alias(ours) for theirs, ours in COLUMNS.items()
    )
    numbers = [column for column in frame.columns if column != "name"]
    return frame.drop_nulls("range_id").with_columns(pl.col(numbers).cast(pl.Int64)).sort("range_id")


def ask(nsys: str, report: Path) -> pl.DataFrame:
    """Run the real projection; `report` is written to, so it must be a copy."""
    command: list[str | Path] = [
        nsys,
        "stats",
        "-q",
        "-r",
        "nvtx_gpu_proj_trace",
        "--format",
        "csv",
        "-o",
        "-",
        report,
    ]
    done = subprocess.run(command, capture_output=True, check=True)
    if not re.search(rb"^Name,", done.stdout, re.MULTILINE):
        return parse((",".join(COLUMNS) + "\n").encode())
    return parse(done.stdout[done.stdout.index(b"Name,") :])


def hull(projections: pl.DataFrame) -> pl.DataFrame:
    """Our rows (one per range and device) as NVIDIA's (one per range), by range_id."""
    return (
        projections.group_by("range_id")
        .agg(
            gpu_start_ns=pl.col("gpu_start_ns").min(),
            gpu_duration_ns=pl.col("gpu_end_ns").max() - pl.col("gpu_start_ns").min(),
            start_ns=pl.col("start_ns").first(),
            duration_ns=pl.col("end_ns").first() - pl.col("start_ns").first(),
            pid=pl.col("process_id").first(),
            tid=pl.col("thread_id").first(),
            call_count=pl.col("call_count").sum(),
        )
        .select(KEYS)
        .sort("range_id")
    )
