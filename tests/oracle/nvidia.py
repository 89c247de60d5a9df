"""NVIDIA's projection of a report (`nvtx_gpu_proj_trace`), in columns comparable with ours."""

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


def parse_projection(csv: bytes) -> pl.DataFrame:
    """Parse the rows of ranges, by range_id; the row of launches outside all ranges is dropped."""
    frame = pl.read_csv(io.BytesIO(csv), infer_schema=False).select(
        pl.col(theirs).alias(ours) for theirs, ours in COLUMNS.items()
    )
    numbers = [column for column in frame.columns if column != "name"]
    return frame.drop_nulls("range_id").with_columns(pl.col(numbers).cast(pl.Int64)).sort("range_id")


def run_projection(nsys: str, report: Path) -> pl.DataFrame:
    """Run NVIDIA's projection; nsys writes to `report`, so it must be a copy."""
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
    process = subprocess.run(command, capture_output=True, check=True)
    if not re.search(rb"^Name,", process.stdout, re.MULTILINE):
        return parse_projection((",".join(COLUMNS) + "\n").encode())
    return parse_projection(process.stdout[process.stdout.index(b"Name,") :])


def merge_devices(projections: pl.DataFrame) -> pl.DataFrame:
    """Merge our rows (one per range and device) into one per range, as NVIDIA's, by range_id."""
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
