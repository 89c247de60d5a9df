"""Positions of messages in their steps: the n-th send of a step belongs to the n-th receive of the step.

A capture that begins inside a step lacks its first messages, so positions are counted from the last message there.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, find_distinct, numbers, pack, whole_numbers
from nsys_pp.arrays.order import order_rows
from nsys_pp.arrays.search import RowIndex
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Bools, Int64s

POSITION_COLUMNS = ("step", "from_first", "from_last", "has_first", "has_last")
_EDGES = ("first", "last")


def mark_step_edges(messages: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Mark the messages of steps that begin, or end, inside the capture of their lane.

    Args:
        messages: With lane and step.
        steps: `RUN_STEPS`.

    Returns:
        The messages, in order, with has_first and has_last; both are false for messages outside all steps.
    """
    # by time, as numbers repeat after a restart
    is_first = pl.col("start_ns") == pl.col("start_ns").min().over("lane")
    is_last = pl.col("start_ns") == pl.col("start_ns").max().over("lane")
    edges = steps.select(
        "lane",
        "step",
        has_first=~(pl.col("is_partial") & (is_first | ~is_last)),
        has_last=~(pl.col("is_partial") & (is_last | ~is_first)),
    )
    return messages.join(edges, on=["lane", "step"], how="left", maintain_order="left").with_columns(
        pl.col("has_first", "has_last").fill_null(False)
    )


def number_in_steps(messages: pl.DataFrame) -> pl.DataFrame:
    """Number the messages of each route in each step.

    Args:
        messages: With step, route and issue_ns.

    Returns:
        The messages, in order, with from_first (0 for the first message of the route in the step) and from_last (0
        for the last one).
    """
    if messages.is_empty():
        return messages.with_columns(from_first=pl.lit(0, pl.Int64), from_last=pl.lit(0, pl.Int64))
    group = pack(*(_compact(messages[name]) for name in ("route", "step")))
    order = order_rows(find_distinct(group)[1], messages["issue_ns"].to_numpy())
    ordered = group[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    count = np.diff(np.append(first, len(order)))
    from_first, from_last = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    from_first[order] = position = np.arange(len(order)) - np.repeat(first, count)
    from_last[order] = np.repeat(count, count) - 1 - position
    return messages.with_columns(pl.Series("from_first", from_first), pl.Series("from_last", from_last))


class PositionPairs(Struct, frozen=True, kw_only=True):
    """Pairs of messages.

    Attributes:
        candidate: Position of the candidate.
        send: Row of the frame of sends.
        receive: Row of the frame of receives.
    """

    candidate: Int64s
    send: Int64s
    receive: Int64s


class PositionFinder:
    """Sends and receives by their positions in steps.

    Args:
        sends: route (whole numbers) and `POSITION_COLUMNS`, as from `number_in_steps` and `mark_step_edges`.
        receives: The same.
    """

    def __init__(self, sends: pl.DataFrame, receives: pl.DataFrame) -> None:
        self._sends, self._receives = _read_positions(sends), _read_positions(receives)
        steps = np.append(self._sends.step, self._receives.step)
        _, step = find_distinct(np.where(steps == NEVER, steps.max(initial=0), steps))
        longest = max(int(side.from_first.max(initial=-1)) for side in (self._sends, self._receives)) + 1
        slot = step * longest  # of the first position of the step
        self._slots = (int(step.max(initial=-1)) + 1) * longest
        self._send_slot, receive_slot = slot[: len(sends)], slot[len(sends) :]
        # rows of sends by route
        usable = np.flatnonzero((self._sends.step != NEVER) & (self._sends.has_first | self._sends.has_last))
        route = self._sends.route[usable]
        self._rows = usable[np.argsort(route, kind="stable")]
        count = np.bincount(route, minlength=1)
        self._until = np.cumsum(count)
        self._since = self._until - count
        self._index = {}
        for edge in _EDGES:
            marked = np.flatnonzero((self._receives.step != NEVER) & self._receives.is_marked(edge))
            key = self._receives.route[marked] * self._slots + receive_slot[marked]
            self._index[edge] = marked, RowIndex(key + self._receives.position(edge)[marked])

    def pair(self, send_route: Int64s, receive_route: Int64s) -> PositionPairs:
        """Pair the sends of a route with the receives of another, at the same position of the same step.

        Positions are counted from the first message where both captures contain the begin of the step, else from the last
        one. A step that both captures contain, with different numbers of messages, has no pairs.

        Args:
            send_route: Of each candidate.
            receive_route: Of each candidate.
        """
        is_known = send_route < len(self._since)
        route = np.where(is_known, send_route, 0)
        since, until = self._since[route], np.where(is_known, self._until[route], self._since[route])
        candidate = np.repeat(np.arange(len(route)), until - since)
        send = self._rows[expand_windows(since, until)]
        parts = []
        for edge, other in zip(_EDGES, _EDGES[::-1], strict=True):
            marked, index = self._index[edge]
            own = np.flatnonzero(self._sends.is_marked(edge)[send]) if len(marked) else marked
            key = receive_route[candidate[own]] * self._slots + self._send_slot[send[own]]
            at = index.find(key + self._sends.position(edge)[send[own]])
            own, at = own[at >= 0], at[at >= 0]
            mine, its = send[own], marked[at]
            is_kept = ~(self._sends.is_marked(other)[mine] & self._receives.is_marked(other)[its])
            if edge == "first":
                is_kept |= self._sends.position(other)[mine] == self._receives.position(other)[its]
            parts.append((candidate[own][is_kept], mine[is_kept], its[is_kept]))
        return PositionPairs(
            **{
                name: np.concatenate(column)
                for name, column in zip(
                    PositionPairs.__struct_fields__, zip(*parts, strict=True), strict=True
                )
            }
        )


class _Positions(Struct, frozen=True, kw_only=True):
    """Columns of messages; `step` is `NEVER` for null."""

    route: Int64s
    step: Int64s
    from_first: Int64s
    from_last: Int64s
    has_first: Bools
    has_last: Bools

    def position(self, edge: str) -> Int64s:
        """Position from the first or the last message."""
        return self.from_first if edge == "first" else self.from_last

    def is_marked(self, edge: str) -> Bools:
        """Mask of the messages whose capture contains the begin or the end of their step."""
        return self.has_first if edge == "first" else self.has_last


def _read_positions(messages: pl.DataFrame) -> _Positions:
    return _Positions(
        route=whole_numbers(messages["route"]),
        step=numbers(messages["step"]),
        **{name: messages[name].to_numpy() for name in POSITION_COLUMNS[1:]},
    )


def _compact(column: pl.Series) -> Int64s:
    """Return the values of a column, with a null less than all by 1."""
    values = numbers(column)
    is_null = values == NEVER
    if not is_null.any():
        return values
    least = int(values.min(where=~is_null, initial=0))
    return np.where(is_null, least - 1, values)
