"""Summary tables of the real `nsys stats`, with the same columns whatever they are called there."""

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
COLUMNS = {  # ours -> theirs, without units
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
ANSWER = pl.Schema({column: pl.String() for column in COLUMNS}) | {
    **dict.fromkeys(WHOLE, pl.Int64()),
    **dict.fromkeys(("mean", "median", "std"), pl.Float64()),
}


def ask(nsys: str, report: Path) -> dict[str, pl.DataFrame]:
    """Let `nsys stats` make all tables of a report (`ANSWER`), rows of no name included; none is missing.

    Args:
        nsys: The program.
        report: Written to, so it must be a copy; the tables are written beside it.
    """
    output = report.with_suffix("")
    command: list[str | Path] = [
        *(nsys, "stats", "--quiet", "--force-overwrite=true"),
        *("--format", "csv:mem=B", "--output", output),
        *("--report", ",".join(TABLES), report),
    ]
    subprocess.run(command, capture_output=True, check=True)
    return {table: parse(output.with_name(f"{output.name}_{table}.csv").read_bytes()) for table in TABLES}


def parse(csv: bytes) -> pl.DataFrame:
    """Read one table (`ANSWER`); a report without such data gives no rows."""
    if not csv.strip():
        return pl.DataFrame(schema=ANSWER)
    table = pl.read_csv(io.BytesIO(csv), infer_schema=False)
    theirs = {re.sub(r" \((?:ns|B)\)$", "", column): column for column in table.columns}
    found = {
        ours: next((theirs[name] for name in theirs if re.fullmatch(pattern, name)), None)
        for ours, pattern in COLUMNS.items()
    }
    return table.select(
        (pl.lit(None) if column is None else pl.col(column)).cast(ANSWER[ours]).alias(ours)
        for ours, column in found.items()
    )
