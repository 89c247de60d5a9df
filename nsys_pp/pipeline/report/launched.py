"""Which call launched each operation."""

from __future__ import annotations

import numpy as np
import polars as pl

_CALL = {"thread_key": "thread_key", "launch_ns": "start_ns", "launch_end_ns": "end_ns"}
_NO_OP = np.uint32((1 << 32) - 1)


def find_first_calls(op_id: pl.Series, *, api_calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Look up the first call that launched each operation.

    Args:
        op_id: Of the operations, any order.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES`, at least of these operations.

    Returns:
        thread_key, launch_ns and launch_end_ns of the call, one row per operation, in order; null where no
        call is known.
    """
    known = np.append(launches["op_id"].to_numpy(), _NO_OP)
    at = np.searchsorted(known, op_id.to_numpy())
    is_known = pl.Series(known[at] == op_id.to_numpy())
    row = pl.Series(np.append(launches["call_row"].to_numpy(), np.uint32(0))[at]).set(~is_known, None)
    return api_calls.select(pl.col(name).gather(row).alias(ours) for ours, name in _CALL.items())
