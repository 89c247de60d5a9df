"""Summary tables of the real `nsys stats`, with uniform column names."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import polars as pl

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
COLUMNS = {  # our column -> pattern of NVIDIA's columns, without units
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
STATS = pl.Schema({column: pl.String() for column in COLUMNS}) | {
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
        for ours, pattern in COLUMNS.items()
    }
    return table.select(
        (pl.lit(None) if column is None else pl.col(column)).cast(STATS[ours]).alias(ours)
        for ours, column in columns.items()
    )
