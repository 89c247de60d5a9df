"""Ancestors of rows in a forest.

Both functions double their reach: after k rounds every row has seen 2**k ancestors, so the number of rounds is the
logarithm of the depth.
"""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.types import Bools, Int64s


def count_ancestors(parent: Int64s) -> Int64s:
    """Count the ancestors of each row.

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
    """Return the mask of rows that are marked or have a marked ancestor.

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
