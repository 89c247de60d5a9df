"""API calls in order of their thread and time, which several steps of a projection need."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.time_order import order_by_time
from nsys_pp.arrays.types import Bools, Int64s


class OrderedCalls(Struct, frozen=True, kw_only=True):
    """Calls by (owner, start, end); the owner of a call is its thread or its process."""

    rows: Int64s  # of API_CALLS
    owner: Int64s
    start: Int64s
    end: Int64s

    def select(self, is_wanted: Bools) -> OrderedCalls:
        """Return some of the calls, by a mask of the rows of API_CALLS."""
        if is_wanted.all():
            return self
        kept = np.flatnonzero(is_wanted[self.rows])
        return OrderedCalls(
            rows=self.rows[kept], owner=self.owner[kept], start=self.start[kept], end=self.end[kept]
        )


def order_calls(api_calls: pl.DataFrame, scope: str, is_wanted: Bools | None = None) -> OrderedCalls:
    """Sort calls by (owner, start, end).

    Args:
        api_calls: `API_CALLS`, any order.
        scope: "thread" or "process": the owners.
        is_wanted: Mask of the calls to sort; None: all.
    """
    columns = [api_calls[name].to_numpy() for name in (f"{scope}_key", "start_ns", "end_ns")]
    if is_wanted is None or is_wanted.all():
        order = order_by_time(*columns)
    else:
        rows = np.flatnonzero(is_wanted)
        order = rows[order_by_time(*(column[rows] for column in columns))]
    owner, start, end = (column[order] for column in columns)
    return OrderedCalls(rows=order, owner=owner, start=start, end=end)
