"""Ancestors of rows in a forest.

All functions double their reach: after k rounds every row has seen 2**k ancestors, so the number of rounds is the
logarithm of the depth. More rounds mean that some parents form a cycle, which is an error instead of an endless loop.
"""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.types import Bools, Int64s


def count_ancestors(parent: Int64s) -> Int64s:
    """Count the ancestors of each row.

    Args:
        parent: Row of the parent, -1 at a root.

    Raises:
        ValueError: Some parents form a cycle.

    >>> count_ancestors(np.array([-1, 0, 1, 1, -1]))
    array([0, 1, 2, 2, 0])
    """
    depth = (parent >= 0).astype(np.int64)
    ancestor = parent.copy()
    rows = np.flatnonzero(ancestor >= 0)
    rounds = 0
    while len(rows):
        rounds = _count_round(rounds, parent)
        via = ancestor[rows]
        depth[rows] += depth[via]
        ancestor[rows] = ancestor[via]
        rows = rows[ancestor[rows] >= 0]
    return depth


def has_marked_line(parent: Int64s, marked: Bools) -> Bools:
    """Return the mask of rows that are marked or have a marked ancestor.

    Raises:
        ValueError: Some parents form a cycle.

    >>> has_marked_line(np.array([-1, 0, 1, 0]), np.array([False, True, False, False]))
    array([False,  True,  True, False])
    """
    marked, ancestor = marked.copy(), parent.copy()
    rows = np.flatnonzero(ancestor >= 0)
    rounds = 0
    while len(rows):
        rounds = _count_round(rounds, parent)
        via = ancestor[rows]
        marked[rows] |= marked[via]
        ancestor[rows] = ancestor[via]
        rows = rows[(ancestor[rows] >= 0) & ~marked[rows]]
    return marked


def find_unmarked(parent: Int64s, marked: Bools) -> Int64s:
    """Find the nearest ancestor of each row that is not marked; -1 without one.

    Raises:
        ValueError: Some parents form a cycle.

    >>> find_unmarked(np.array([-1, 0, 1, 2]), np.array([False, True, True, False]))
    array([-1,  0,  0,  0])
    """
    # a marked row leads to its parent, any other one to itself
    onward = np.where(marked, parent, np.arange(len(parent)))
    rows = np.flatnonzero(marked & (onward >= 0))
    rounds = 0
    while len(rows):
        rounds = _count_round(rounds, parent)
        onward[rows] = onward[onward[rows]]
        rows = rows[(onward[rows] >= 0) & marked[onward[rows]]]
    return np.where(parent >= 0, onward[parent], -1)


def check_forest(parent: Int64s) -> None:
    """Check that no parents form a cycle, before they are climbed one by one.

    Raises:
        ValueError: Some parents form a cycle.
    """
    rows, ancestor = np.flatnonzero(parent >= 0), parent
    rounds = 0
    while len(rows):
        rounds = _count_round(rounds, parent)
        ancestor = np.where(ancestor >= 0, ancestor[ancestor], -1)
        rows = rows[ancestor[rows] >= 0]


def _count_round(rounds: int, parent: Int64s) -> int:
    """Return the number of rounds with the next one, which sees 2**rounds ancestors of each row."""
    if rounds > len(parent).bit_length():
        raise ValueError("the parents of some rows form a cycle")
    return rounds + 1
