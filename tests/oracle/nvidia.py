"""NVIDIA's projection of a report (`nvtx_gpu_proj_trace`), in columns comparable with ours."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
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


_FRAMES_OF_RECIPES = """
import sqlite3, sys
from contextlib import closing
import pandas as pd
from nsys_recipe.lib.nvtx import project_nvtx_onto_gpu

ranges = (
    "select cast(rowid as text) as text, start, end, globalTid, endGlobalTid, globalTid >> 24 & 0xFFFFFF as pid"
    " from NVTX_EVENTS where eventType in (59, 60, 70, 71)"
)
calls = (
    "select r.start, r.end, r.globalTid, o.start as gpu_start, o.end as gpu_end"
    " from CUPTI_ACTIVITY_KIND_RUNTIME r join CUPTI_ACTIVITY_KIND_{} o"
    " on o.correlationId = r.correlationId and o.globalPid >> 24 = r.globalTid >> 24"
)
report, output = sys.argv[1:]
with closing(sqlite3.connect(f"file:{report}?immutable=1", uri=True)) as database:
    tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
    kinds = [kind for kind in ("KERNEL", "MEMCPY", "MEMSET") if f"CUPTI_ACTIVITY_KIND_{kind}" in tables]
    if not kinds or not {"NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"} <= tables:
        sys.exit()
    nvtx = pd.read_sql_query(ranges, database)
    launches = pd.read_sql_query(" union all ".join(map(calls.format, kinds)), database)
if not nvtx.empty and not launches.empty:
    project_nvtx_onto_gpu(nvtx, launches)[["text", "start", "end"]].astype("int64").to_parquet(output)
"""


def run_recipe_projection(nsys: str, report: Path, folder: Path) -> pl.DataFrame | None:
    """Run the projection of NVIDIA's recipes (2024.2 or newer): a sweep over pandas frames, of its own rows and code.

    Args:
        nsys: Path of nsys; its Python packages are imported by a process of their own.
        report: SQLite export; one without ranges or without GPU operations has no result.
        folder: Folder for the result.

    Returns:
        range_id, gpu_start_ns, gpu_end_ns, by range_id.
    """
    output = folder / "projection.parquet"
    side = Path(nsys).resolve().parent
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FRAMES_OF_RECIPES, report, output],
        env={**os.environ, "PYTHONPATH": str(side / "python" / "packages"), "NSYS_DIR": str(side.parent)},
        capture_output=True,
        check=True,
    )
    names = {"text": "range_id", "start": "gpu_start_ns", "end": "gpu_end_ns"}
    if not output.exists():
        return None
    return pl.read_parquet(output).select(pl.col(t).alias(o) for t, o in names.items()).sort("range_id")


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


TABLES = (
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_mem_size_sum",
    "cuda_api_sum",
    "osrt_sum",
    "nvtx_sum",
    "nvtx_pushpop_sum",
    "nvtx_gpu_proj_sum",
)


SUM_COLUMNS = {  # our column -> pattern of NVIDIA's columns, without units
    "name": r"Name|Operation|Range",
    "style": r"Style",
    "count": r"Instances|Num Calls|Count|Range Instances",
    "total": r"Total Time|Total|Total Proj Time",
    "mean": r"(?:Proj )?Avg",
    "median": r"(?:Proj )?Med",
    "min": r"(?:Proj )?Min",
    "max": r"(?:Proj )?Max",
    "std": r"(?:Proj )?StdDev",
    "call_count": r"Total GPU Ops",
}


WHOLE = ("count", "total", "min", "max", "call_count")


STATS = pl.Schema({column: pl.String() for column in SUM_COLUMNS}) | {
    **dict.fromkeys(WHOLE, pl.Int64()),
    **dict.fromkeys(("mean", "median", "std"), pl.Float64()),
}


def run_stats(nsys: str, report: Path) -> dict[str, pl.DataFrame]:
    """Run `nsys stats` and return all tables of a report (`STATS`), including rows without a name.

    Args:
        nsys: Path of nsys.
        report: A copy of the report: nsys writes to it, and the tables next to it.
    """
    output = report.with_suffix("")
    command: list[str | Path] = [
        *(nsys, "stats", "--quiet", "--force-overwrite=true"),
        *("--format", "csv:mem=B", "--output", output),
        *("--report", ",".join(TABLES), report),
    ]
    subprocess.run(command, capture_output=True, check=True)
    return {
        table: parse_table(output.with_name(f"{output.name}_{table}.csv").read_bytes()) for table in TABLES
    }


def parse_table(csv: bytes) -> pl.DataFrame:
    """Parse one table (`STATS`); without data it has no rows."""
    if not csv.strip():
        return pl.DataFrame(schema=STATS)
    table = pl.read_csv(io.BytesIO(csv), infer_schema=False)
    theirs = {re.sub(r" \((?:ns|B)\)$", "", column): column for column in table.columns}
    columns = {
        ours: next((theirs[name] for name in theirs if re.fullmatch(pattern, name)), None)
        for ours, pattern in SUM_COLUMNS.items()
    }
    return table.select(
        (pl.lit(None) if column is None else pl.col(column)).cast(STATS[ours]).alias(ours)
        for ours, column in columns.items()
    )
