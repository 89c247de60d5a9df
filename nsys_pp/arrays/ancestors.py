"""Rows that point at the row above them: questions about whole lines of ancestors.

Both answers come by doubling: after k rounds every row has looked 2**k rows up, so a forest of
any depth takes as many rounds as its depth has bits.
"""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.types import Bools, Int64s


def count_ancestors(parent: Int64s) -> Int64s:
    """Count the rows above each row.

    Args:
        parent: Row of the parent, -1 at a root; no cycles.

    >>> count_ancestors(np.array([-1, 0, 1, 1, -1]))
    array([0, 1, 2, 2, 0])
    """
    depth = (parent >= 0).astype(np.int64)
    ancestor = parent.copy()
    rows = np.flatnonzero(ancestor >= 0)
    while len(rows):
        via = ancestor[rows]
        depth[rows] += depth[via]
        ancestor[rows] = ancestor[via]
        rows = rows[ancestor[rows] >= 0]
    return depth


def has_marked_line(parent: Int64s, marked: Bools) -> Bools:
    """Say of each row whether it or a row above it is marked.

    >>> has_marked_line(np.array([-1, 0, 1, 0]), np.array([False, True, False, False]))
    array([False,  True,  True, False])
    """
    marked, ancestor = marked.copy(), parent.copy()
    rows = np.flatnonzero(ancestor >= 0)
    while len(rows):
        via = ancestor[rows]
        marked[rows] |= marked[via]
        ancestor[rows] = ancestor[via]
        rows = rows[(ancestor[rows] >= 0) & ~marked[rows]]
    return marked
