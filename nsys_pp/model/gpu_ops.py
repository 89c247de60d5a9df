"""Kernels, copies, sets and whole graphs -> GPU_OPS and OP_DETAILS."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.columns import (
    NEVER,
    fill_null,
    find_distinct,
    gather,
    has_value,
    index_column,
    index_rows,
    numbers,
    whole_numbers,
)
from nsys_pp.arrays.names import is_matched
from nsys_pp.arrays.scratch_frames import join_frames
from nsys_pp.arrays.search import number_rows
from nsys_pp.arrays.series import build_column
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.columns import build_frame, select_columns
from nsys_pp.frames.conform import conform, conform_part
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.op_details import OP_DETAILS, OpDetails
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import GPU_OPS, NAME, OP_KIND
from nsys_pp.model.names import resolve

# NCCL and RCCL (which keeps NCCL's names), HCCL, NVSHMEM and MSCCL
_COMMUNICATION = r"(?i)\b(?:nccl|rccl|hccl|nvshmem|msccl)"
OP_TABLES = {  # raw frame -> kind of its operations, in the order of the result
    "kernels": "kernel",
    "copies": "memcpy",
    "decompressions": "memcpy",
    "sets": "memset",
    "graphs": "graph",
}
_KERNEL_DETAILS = (
    *("name_id", "full_name_id", "registers", "static_shared", "dynamic_shared"),
    *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
)
_COMMA = pl.Series([","])  # polars builds this column for each text


def build_gpu_ops(raw: RawReport) -> pl.DataFrame:
    """Build one frame of all operations on GPUs.

    Returns:
        `GPU_OPS`, kernels first, each kind in the order of the export.
    """
    tables = {table: raw[table] for table in OP_TABLES}
    has_unknown_process = any(ops["process"].has_nulls() for ops in tables.values())
    process = _only_process(raw) if has_unknown_process else 0
    parts = [_build_ops(table, ops, raw, process) for table, ops in tables.items() if not ops.is_empty()]
    if not parts:
        return GPU_OPS.to_frame()
    gpu_ops = join_frames(parts)
    is_communication = build_column("is_communication", is_matched(gpu_ops["name"], _COMMUNICATION))
    return conform(gpu_ops.hstack([is_communication]).with_row_index("op_id"), GPU_OPS)


def _build_ops(table: str, ops: pl.DataFrame, raw: RawReport, process: int) -> pl.DataFrame:
    """Build the operations of one table: `GPU_OPS` without numbers; an unknown process is `process`."""
    columns = {
        "kind": _name_kind(table).new_from_index(0, ops.height),
        "process_key": fill_null(ops["process"], process),
        "device_id": fill_null(ops["device"], 0),
        "context_id": ops["context"],
        "stream_id": ops["stream"],
        "correlation_id": ops["correlation"],
        "start_ns": ops["start"],
        "end_ns": ops["end"],
        "name": _name(table, ops, raw),
        "graph_id": _find_graph(ops),
    }
    return build_frame(column.alias(name) for name, column in columns.items())


@cache
def _name_kind(table: str) -> pl.Series:
    return pl.Series([OP_TABLES[table]], dtype=OP_KIND)


def _find_graph(ops: pl.DataFrame) -> pl.Series:
    """Return the graph of each operation, or else its node; null for 0."""
    if ops["graph"].null_count() + ops["graph_node"].null_count() == 2 * len(ops):
        return ops["graph"]
    return ops.select(pl.coalesce(_unless_zero("graph"), _unless_zero("graph_node"))).to_series()


def build_op_details(raw: RawReport) -> OpDetails:
    """Build the details of operations; of a report read without group "details", the names of kernels only.

    Returns:
        The details, for operations in the order of `build_gpu_ops`.
    """
    parts, rows, count = [OP_DETAILS.to_frame()], [np.zeros(0, dtype=np.uint32)], 0
    for table in OP_TABLES:
        ops = raw[table]
        if ops.is_empty():
            continue
        columns = _KERNEL_DETAILS if table == "kernels" else ("bytes",) if "bytes" in ops.columns else ()
        first, number = _number_distinct(ops, columns)
        details = (
            _kernel_details(index_rows(select_columns(ops, columns), first), raw)
            if table == "kernels"
            else _size_details(ops, first)
        )
        parts.append(conform_part(details, OP_DETAILS))
        rows.append(number if not count else number + np.uint32(count))
        count += len(first)
    return OpDetails(distinct=pl.concat(parts, rechunk=True), row=np.concatenate(rows))


def _number_distinct(ops: pl.DataFrame, columns: Sequence[str]) -> tuple[Int64s, npt.NDArray[np.uint32]]:
    """Find the first operation of each distinct set of details, and the number of the set of each operation."""
    recorded = [ops[column] for column in columns if ops[column].null_count() < ops.height]
    if not recorded:
        return np.arange(min(ops.height, 1)), np.zeros(ops.height, dtype=np.uint32)
    return number_rows(recorded)


def _kernel_details(kernels: pl.DataFrame, raw: RawReport) -> pl.DataFrame:
    """Describe launches of kernels (`OP_DETAILS` without sizes)."""
    full_id = numbers(kernels["full_name_id"])
    is_other = (full_id != numbers(kernels["name_id"])) & (full_id != NEVER) & has_value(kernels["name_id"])
    names = resolve(kernels["full_name_id"], raw["strings"])
    columns = {
        "full_name": gather(names, np.where(is_other, np.arange(len(names)), -1)),
        "registers_per_thread": kernels["registers"],
        "static_shared_bytes": kernels["static_shared"],
        "dynamic_shared_bytes": kernels["dynamic_shared"],
    }
    details = build_frame(column.alias(name) for name, column in columns.items())
    if "details" in raw.groups:
        details = details.hstack([_format_dimensions(kernels, prefix) for prefix in ("grid", "block")])
    return details


def _size_details(ops: pl.DataFrame, first: Int64s) -> pl.DataFrame:
    """Describe copies and sets, and operations without a size (`OP_DETAILS` without details of kernels)."""
    if "bytes" not in ops.columns:
        return pl.DataFrame({"size_bytes": [None] * len(first)}, schema={"size_bytes": pl.Int64})
    return gather(ops["bytes"], first).alias("size_bytes").to_frame()


def _unless_zero(column: str) -> pl.Expr:
    return pl.when(pl.col(column) != 0).then(pl.col(column))


def _only_process(raw: RawReport) -> int:
    """Return the process of operations without one: the only process of the report, else 0."""
    threads = pl.concat([raw["calls"]["thread"], raw["nvtx"]["thread"]]).drop_nulls()
    processes = process_key(threads).unique()
    return int(processes.item()) if len(processes) == 1 else 0


def _name(table: str, ops: pl.DataFrame, raw: RawReport) -> pl.Series:
    """Name the operations of one table."""
    if table == "kernels":
        return resolve(ops["name_id"], raw["strings"])
    if table == "copies":
        first, direction = find_distinct(whole_numbers(ops["direction"]))
        words = index_column(ops["direction"], first).to_list()
        names = ["Memcpy" if word is None else f"Memcpy {word}" for word in words]
        return gather(pl.Series(names, dtype=NAME), direction)
    if table == "graphs":
        return ops.select(
            (pl.lit("CUDA graph ") + pl.col("graph").cast(pl.String)).fill_null("CUDA graph").cast(NAME)
        ).to_series()
    name = "Memset" if table == "sets" else "Decompress"
    return pl.Series([name], dtype=NAME).new_from_index(0, ops.height)


def _format_dimensions(kernels: pl.DataFrame, prefix: str) -> pl.Series:
    """Format `x,y,z` (column `prefix`); null where a dimension is."""
    x, y, z = (kernels[f"{prefix}_{axis}"].cast(pl.String) for axis in "xyz")
    return (x + _COMMA + y + _COMMA + z).cast(NAME).alias(prefix)
