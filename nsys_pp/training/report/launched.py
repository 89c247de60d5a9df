"""First launching call of each operation."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, numbers
from nsys_pp.arrays.types import Int64s


def find_first_calls(op_id: pl.Series, *, launches: pl.DataFrame) -> Int64s:
    """Find the first call that launched each operation.

    Args:
        op_id: Of the operations, any order.
        launches: `LAUNCHES`, at least of these operations.

    Returns:
        Row of `API_CALLS` per operation, in order; -1 where no call is known.
    """
    launched, wanted = launches["op_id"].to_numpy(), op_id.to_numpy()
    first = np.full(max(int(launched.max(initial=0)), int(wanted.max(initial=0))) + 1, -1)
    # of several values for one index numpy keeps the last
    first[launched[::-1]] = launches["call_row"].to_numpy()[::-1]
    row: Int64s = first[wanted]
    return row


def gather_calls(column: pl.Series, row: Int64s) -> Int64s:
    """Gather the values of a column of `API_CALLS`; `NEVER` where the row is -1."""
    values: Int64s = np.append(numbers(column), NEVER)[row]
    return values
