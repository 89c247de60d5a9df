"""Order of rows, and search for rows: by keys and ids, in windows of positions, and for the nearest events.

Reports nearly always hold their events in order of time. Grouping the rows by owner (a thread, a process)
then suffices; a full sort is needed only where it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.columns import HALF_OF_INT64, NEVER, find_distinct, list_distinct, pack
from nsys_pp.arrays.types import Int64s

K = TypeVar("K")
V = TypeVar("V")


def group_pairs(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Group values by key, both in order: of few things, not of rows.

    >>> group_pairs([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def order_rows(group: Int64s, values: Int64s) -> Int64s:
    """Sort rows by group, then value, stable: `np.lexsort((values, group))`.

    One sort of mostly sorted numbers needs a tenth of the time.

    >>> order_rows(np.array([1, 0, 1]), np.array([5, 9, 3]))
    array([1, 2, 0])
    """
    return np.argsort(pack(group, values), kind="stable")


def sort_rows(*keys: Int64s) -> Int64s:
    """Sort rows by the first key, then the second and so on, stable.

    It is fast where all rows are in order, as usual.

    >>> sort_rows(np.array([0, 0, 1]), np.array([2, 2, 1])), sort_rows(np.array([1, 0]))
    (array([0, 1, 2]), array([1, 0]))
    """
    is_equal = np.ones(max(len(keys[0]) - 1, 0), dtype=np.bool_)
    is_in_order = ~is_equal
    for key in keys:
        is_in_order |= is_equal & (key[1:] > key[:-1])
        is_equal &= key[1:] == key[:-1]
    return np.arange(len(keys[0])) if (is_in_order | is_equal).all() else np.lexsort(keys[::-1])


def order_by_number(number: Int64s, limit: int) -> tuple[Int64s, Int64s]:
    """Order rows by number, stable; also count the rows with a smaller number, for each number up to `limit`.

    >>> order_by_number(np.array([1, 0, 1]), 2)
    (array([1, 0, 2]), array([0, 1, 3]))
    """
    before = np.concatenate([[0], np.cumsum(np.bincount(number, minlength=limit))])
    narrow = number.astype(np.uint16) if limit <= 1 << 16 else number  # numpy sorts 16-bit integers by radix
    return np.argsort(narrow, kind="stable"), before


def list_groups(group: Int64s, count: int) -> list[Int64s]:
    """List the rows of each group, in order.

    Args:
        group: Group of each row, from 0.
        count: Number of groups.

    >>> [rows.tolist() for rows in list_groups(np.array([1, 0, 1]), 3)]
    [[1], [0, 2], []]
    """
    order, before = order_by_number(group, count)
    return np.split(order, before[1:-1]) if count else []


def running_maximum(segment: Int64s, values: Int64s) -> Int64s:
    """Compute the running maximum of `values` within each segment.

    Values are shifted by segment, so that one running maximum suffices; values with too large a span are
    replaced by their ranks.

    Args:
        segment: Not negative, ascending.
        values: Any integers.

    >>> running_maximum(np.array([0, 0, 0, 4, 4]), np.array([5, 3, 7, 1, 2]))
    array([5, 5, 7, 1, 2])
    """
    if not len(values):
        return values
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span * (int(segment[-1]) + 1) < HALF_OF_INT64:
        shift = segment * span - least
        return np.maximum.accumulate(values + shift) - shift
    by_value, rank = np.unique(values, return_inverse=True)
    shift = segment * len(by_value)
    return by_value[np.maximum.accumulate(rank + shift) - shift]


def expand_windows(first: Int64s, last: Int64s) -> Int64s:
    """List the positions of all windows `[first, last)`, one window after the other.

    >>> expand_windows(np.array([4, 0, 9]), np.array([6, 0, 10]))
    array([4, 5, 9])
    """
    count = last - first
    ends = np.cumsum(count)
    shift = np.repeat(first - ends + count, count)
    return shift + np.arange(len(shift))


def divide_groups(group: Int64s, weight: Int64s, most: int) -> list[slice]:
    """Divide rows into blocks of whole groups, each with a weight of about `most`, or one group.

    Args:
        group: Rows of a group follow each other.
        weight: Of each row, as the memory of what is computed for it.
        most: Greatest weight of a block.

    >>> divide_groups(np.array([0, 0, 1, 2]), np.array([1, 2, 2, 9]), 4)
    [slice(0, 3, None), slice(3, 4, None)]
    """
    if not len(group):
        return []
    begins = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    number = np.append(0, np.cumsum(weight))[begins] // most
    edges = begins[np.append(True, number[1:] != number[:-1])].tolist()
    return [slice(*edge) for edge in zip(edges, [*edges[1:], len(group)], strict=True)]


def order_by_time(owner: Int64s, time: Int64s, second_key: Int64s) -> Int64s:
    """Return the stable order of rows by (owner, time, second key).

    >>> order_by_time(np.array([7, 3, 7, 3]), np.array([0, 5, 1, 4]), np.array([0, 0, 0, 0]))
    array([3, 1, 0, 2])
    """
    order = order_by_owner(owner)
    owners, times, second_keys = owner[order], time[order], second_key[order]
    is_ascending = (times[1:] > times[:-1]) | (
        (times[1:] == times[:-1]) & (second_keys[1:] >= second_keys[:-1])
    )
    if (is_ascending | (owners[1:] != owners[:-1])).all():
        return order
    return np.lexsort((second_key, time, owner))


def order_by_owner(owner: Int64s) -> Int64s:
    """Return the stable order of rows by owner.

    >>> order_by_owner(np.array([7, 3, 7, 3]))
    array([1, 3, 0, 2])
    """
    if (owner[1:] >= owner[:-1]).all():
        return np.arange(len(owner))
    owners = list_distinct(owner[np.append(True, owner[1:] != owner[:-1])])
    return order_by_number(np.searchsorted(owners, owner), len(owners))[0]


_SPARSEST = 8  # numbers from the least id to the greatest, for each id, in a table


def number_rows(columns: Sequence[pl.Series]) -> tuple[Int64s, npt.NDArray[np.uint32]]:
    """Find the first row of each distinct row of some columns, ascending.

    The second result is the number of each row among these.

    Args:
        columns: Integers; at least one, all of one length.

    >>> first, number = number_rows([pl.Series([7, 3, 7, 7]), pl.Series([1, 1, 1, None])])
    >>> first.tolist(), number.tolist()
    ([0, 1, 3], [0, 1, 0, 2])
    """
    frame = pl.DataFrame([column.alias(str(place)) for place, column in enumerate(columns)])
    row = frame.with_row_index("row").select(pl.col("row").first().over(frame.columns)).to_series().to_numpy()
    is_first = row == np.arange(len(row), dtype=np.uint32)
    return np.flatnonzero(is_first), (np.cumsum(is_first, dtype=np.uint32) - 1)[row]


def number_keys(keys: Int64s) -> tuple[Int64s, npt.NDArray[np.uint32]]:
    """Find the first row of each distinct key, ascending, and the number of each row's key among these.

    Fast for few keys.

    >>> first, number = number_keys(np.array([7, 3, 7, 9, 3]))
    >>> first.tolist(), number.tolist()
    ([0, 1, 3], [0, 1, 0, 2, 1])
    """
    first, rank = find_distinct(keys)
    order = np.argsort(first)
    number = np.empty(len(first), dtype=np.uint32)
    number[order] = np.arange(len(first), dtype=np.uint32)
    return first[order], number[rank]


def find_rows(ids: Int64s, wanted: Int64s) -> Int64s:
    """Find the row of each wanted id among ids, the first of several; -1 without one.

    >>> find_rows(np.array([7, 5, 7]), np.array([5, 6, 7]))
    array([ 1, -1,  0])
    """
    least = int(ids.min()) if len(ids) else 0
    span = int(ids.max()) - least + 1 if len(ids) else 0
    if span <= _SPARSEST * len(ids):
        row_of = np.full(span + 1, -1)  # by id; the last is of all others
        row_of[ids[::-1] - least] = np.arange(len(ids))[::-1]  # the last assignment stays
        return row_of[np.where((wanted >= least) & (wanted < least + span), wanted - least, span)]
    order = np.argsort(ids, kind="stable")
    at = np.append(order, -1)[np.searchsorted(ids[order], wanted)]
    return np.where(np.append(ids, NEVER)[at] == wanted, at, -1)


def find_pairs(group: Int64s, ids: Int64s, wanted_group: Int64s, wanted_id: Int64s) -> Int64s:
    """Find the row of each wanted (group, id), the first of several; -1 without one.

    >>> find_pairs(np.array([0, 0, 1]), np.array([7, 5, 7]), np.array([1, 1]), np.array([7, 5]))
    array([ 2, -1])
    """
    if not len(ids):
        return np.full(len(wanted_id), -1)
    combined = pack(np.append(group, wanted_group), np.append(ids, wanted_id))
    return find_rows(combined[: len(ids)], combined[len(ids) :])


def find_equal_rows(columns: Sequence[Int64s], wanted: Sequence[Int64s]) -> Int64s:
    """Find the row of each wanted row among rows of some columns, the first of several; -1 without one.

    Several times as fast as a join on several columns.

    Args:
        columns: At least one; all of one length.
        wanted: The same columns of the wanted rows.

    >>> find_equal_rows([np.array([7, 5, 7]), np.array([1, 1, 1])], [np.array([7, 5]), np.array([1, 2])])
    array([ 0, -1])
    """
    count = len(columns[0])
    first, number = number_rows(
        [
            pl.Series("", np.append(of_rows, of_wanted))
            for of_rows, of_wanted in zip(columns, wanted, strict=True)
        ]
    )
    row = first[number[count:]]
    return np.where(row < count, row, -1)


def find_last(
    group: Int64s, time: Int64s, of_group: Int64s, of_time: Int64s, *, is_before: bool = False
) -> Int64s:
    """Find the last event of the same group at or before each time.

    Args:
        group: Group of each time.
        time: Times to search for.
        of_group: Group of each event.
        of_time: Time of each event, ascending within each group.
        is_before: Events at the same time do not count.

    Returns:
        Index of the event, the last of equal ones; -1 without one.

    >>> find_last(np.array([0, 0, 1]), np.array([4, 5, 9]), np.array([0, 1, 0]), np.array([5, 9, 7]))
    array([-1,  0,  1])
    """
    side: Literal["left", "right"] = "left" if is_before else "right"
    return _find(group, time, of_group, of_time, side=side, step=-1)


def find_first(group: Int64s, time: Int64s, of_group: Int64s, of_time: Int64s) -> Int64s:
    """Find the first event of the same group at or after each time.

    Of equal ones it is the first. `find_last` is its mirror.
    """
    return _find(group, time, of_group, of_time, side="left", step=0)


def _find(
    group: Int64s,
    time: Int64s,
    of_group: Int64s,
    of_time: Int64s,
    *,
    side: Literal["left", "right"],
    step: int,
) -> Int64s:
    if not len(of_group):
        return np.full(len(group), -1)
    count = len(of_group)
    _, number = find_distinct(np.append(of_group, group))
    combined = pack(number, np.append(of_time, time))
    order = np.argsort(combined[:count], kind="stable")
    at = np.searchsorted(combined[:count], combined[count:], side=side, sorter=order) + step
    row = order[at.clip(0, count - 1)]
    return np.where((at >= 0) & (at < count) & (number[row] == number[count:]), row, -1)
