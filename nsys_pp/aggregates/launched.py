"""The launching call of each operation."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.types import Int64s


def find_calls(gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame) -> Int64s:
    """Find the launching call of each operation; the earliest of several.

    Args:
        gpu_ops: `GPU_OPS`, all of them.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.

    Returns:
        Row of `API_CALLS` per operation; -1 without a known call.
    """
    op, row = (launches[name].to_numpy() for name in ("op_id", "call_row"))
    if (op[1:] == op[:-1]).any():
        last_first = np.argsort(api_calls["start_ns"].to_numpy()[row], kind="stable")[::-1]
        op, row = op[last_first], row[last_first]
    calls = np.full(len(gpu_ops), -1)
    calls[op] = row  # the last assignment counts
    return calls
