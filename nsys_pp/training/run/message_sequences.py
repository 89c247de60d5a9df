"""Pairing of sends with receives, channel by channel.

A channel is the sequence of messages from one lane to another (in one direction), which keep their order. Its n-th
send is paired with receive n + shift, where the shift is due to messages that are missing on either side. Some pairs
are recognised first, by micro-batch or by time, and define the shift at their positions; sends between two recognised
pairs with the same shift also have this shift.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, find_distinct, index_rows, numbers, pack, whole_numbers
from nsys_pp.arrays.order import order_rows
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.frames.clock import CLOCK, SKEW_NS, is_comparable, relative_bound
from nsys_pp.frames.training import DIRECTION
from nsys_pp.training.run.end_evidence import CLEAR, Times, describe_sends, score_pairs
from nsys_pp.training.run.step_positions import PositionFinder, number_in_steps

_ENOUGH = 0.3  # ends are used for a channel if they recognise at least this share of its sends
_MOSTLY_NAMED = 0.5  # names are used for a channel if at least this share of its messages has a micro-batch
_NONE = -(1 << 62)  # no shift; less than any shift
_BALANCED = 0.65  # least ratio of sends and receives of a channel
_COUNTED = 6  # messages of a channel from which this ratio is known
_UNSEEN = 1.0  # evidence of a channel without messages to compare: doubtful, unless another shift has some
_RIVALS = (0, -2, -1, 1, 2)  # shifts that are compared, the recognised one first


class Matches(Struct, frozen=True, kw_only=True):
    """Pairs of sends and receives, as rows of the frame of messages, in order of the sends.

    Attributes:
        send: Row of the send.
        receive: Row of the receive.
        channel: Number of the channel.
        is_doubtful: Whether messages one earlier or later fit nearly as well.
    """

    send: Int64s
    receive: Int64s
    channel: Int64s
    is_doubtful: Bools


def match_messages(messages: pl.DataFrame) -> Matches:
    """Match sends with receives.

    Channels with micro-batches in names are matched by them; others by positions in steps; where steps are incomplete,
    by ends or, if sends are buffered and end before their receive, by the first receive that ends after the start of a
    send. Times match only lanes with comparable clocks, and no channel where messages one or two later fit better.

    Args:
        messages: As returned by `find_peers`.
    """
    sends, receives = _split_sides(messages)
    bound = _relate_clocks(messages, sends, receives)
    is_named, is_linked = _mark_named(messages, sends, receives)
    shift = _recognise_names(messages, sends, receives, is_named, is_linked)
    rest, is_timed = ~is_named, np.zeros(len(is_named), np.bool_)
    for recognise, by_time in (
        (_recognise_positions, False),
        (partial(_recognise_ends, bound=bound), True),
        (partial(_recognise_arrivals, bound=bound), True),
    ):
        selected = rest & (bound >= 0) if by_time else rest
        if selected.any():
            recognised = recognise(messages, sends, receives, selected)
            votes = np.bincount(sends.channel[recognised != _NONE], minlength=len(rest))
            is_seen = selected & (votes / np.maximum(sends.count, 1) >= _ENOUGH)
            shift = np.where(is_seen[sends.channel], recognised, shift)
            is_timed |= is_seen & by_time
            rest = rest & ~is_seen
    shift = _fill_shifts(sends, shift)
    margin = _compare_shifts(messages, sends, receives, shift, np.where(is_timed, bound, -1))
    to = sends.position + shift
    is_usable = (margin > 0) & (is_named | _mark_balanced(messages, sends, receives, bound))
    is_inside = (to >= 0) & (to < receives.count[sends.channel]) & is_usable[sends.channel]
    send, receive = sends.row[is_inside], receives.row[(receives.first[sends.channel] + to)[is_inside]]
    order, channel = np.argsort(send), sends.channel[is_inside]
    return Matches(
        send=send[order],
        receive=receive[order],
        channel=channel[order],
        is_doubtful=(margin[channel] < CLEAR)[order],
    )


class _Side(Struct, frozen=True, kw_only=True):
    """The sends, or the receives, of all channels, by channel and launch.

    Attributes:
        row: Row of the frame of messages.
        channel: Number of the channel, the same for sends and receives.
        position: Position in the channel, from 0.
        first: Index of the first message of each channel.
        count: Number of messages of each channel.
    """

    row: Int64s
    channel: Int64s
    position: Int64s
    first: Int64s
    count: Int64s


def _split_sides(messages: pl.DataFrame) -> tuple[_Side, _Side]:
    """Split messages with a known peer into sends and receives, and number their channels.

    The messages from one lane to another form one channel, or one per direction if all their directions are known.
    """
    peer = whole_numbers(messages["peer_lane"])
    rows = np.flatnonzero((peer >= 0) & messages["verb"].is_not_null().to_numpy())
    lane, peer = whole_numbers(messages["lane"])[rows], peer[rows]
    is_send = (messages["verb"] == "send").fill_null(value=False).to_numpy()[rows]
    distinct, pair = find_distinct(pack(np.where(is_send, lane, peer), np.where(is_send, peer, lane)))
    direction = whole_numbers(messages["direction"])[rows]
    is_directed = np.bincount(pair[direction < 0], minlength=len(distinct)) == 0
    ways = 1 + len(DIRECTION.categories)
    channel = pair * ways + np.where(is_directed[pair], direction + 1, 0)
    issue_ns = messages["issue_ns"].to_numpy()[rows]

    def side(chosen: Int64s) -> _Side:
        order = chosen[order_rows(channel[chosen], issue_ns[chosen])]
        count = np.bincount(channel[order], minlength=ways * len(distinct))
        first = np.cumsum(count) - count
        position = np.arange(len(order)) - np.repeat(first, count)
        return _Side(row=rows[order], channel=channel[order], position=position, first=first, count=count)

    return side(np.flatnonzero(is_send)), side(np.flatnonzero(~is_send))


def _mark_named(messages: pl.DataFrame, sends: _Side, receives: _Side) -> tuple[Bools, Bools]:
    """Return the mask of channels with micro-batches in names, and of channels with links for all of these."""
    row, channel = np.append(sends.row, receives.row), np.append(sends.channel, receives.channel)
    has_number = messages["micro_batch"].is_not_null().to_numpy()[row]
    lacks_link = has_number & messages["link"].is_null().to_numpy()[row]
    named, unlinked = (
        np.bincount(channel[mask], minlength=len(sends.count)) for mask in (has_number, lacks_link)
    )
    return named >= _MOSTLY_NAMED * (sends.count + receives.count), unlinked == 0


def _recognise_names(
    messages: pl.DataFrame, sends: _Side, receives: _Side, is_selected: Bools, is_linked: Bools
) -> Int64s:
    """Recognise pairs of the same micro-batch, step and link.

    Args:
        messages: Messages of both sides.
        sends: All sends.
        receives: All receives.
        is_selected: Mask of the channels.
        is_linked: Mask of the channels whose named messages have a link, the virtual stage of the sender.

    Returns:
        The shift from the position of each send to the position of its receive; `_NONE` where unknown.
    """
    number, step = whole_numbers(messages["micro_batch"]), numbers(messages["step"])
    link = np.where(messages["link"].is_null().to_numpy(), 0, numbers(messages["link"]))
    keyed = []
    for side in (sends, receives):
        at = np.flatnonzero(is_selected[side.channel] & (number[side.row] >= 0))
        row, channel = side.row[at], side.channel[at]
        keys = (channel, number[row], step[row], np.where(is_linked[channel], link[row], 0))
        names = ("channel", "number", "step", "link")
        columns = [pl.Series(name, key) for name, key in zip(names, keys, strict=True)]
        ends = index_rows(messages[["end_ns"]], row)
        keyed.append(ends.hstack([*columns, pl.Series("at", at)]).sort("end_ns"))
    by = ["channel", "number", "step", "link"]
    others = keyed[1].rename({"at": "to"}).with_columns(to_ns="end_ns")
    near = keyed[0].join_asof(others, on="end_ns", by=by, strategy="nearest", check_sortedness=False)
    apart = (pl.col("end_ns") - pl.col("to_ns")).abs()
    return _keep_agreeing(sends, receives, near.with_columns(apart_ns=apart).drop_nulls("to"))


def _recognise_positions(messages: pl.DataFrame, sends: _Side, receives: _Side, is_selected: Bools) -> Int64s:
    """Recognise pairs at the same position of the same step; arguments and result as in `_recognise_names`."""
    columns = ["step", "issue_ns", "has_first", "has_last"]
    rows, numbered = [], []
    for side in (sends, receives):
        at = np.flatnonzero(is_selected[side.channel])
        rows.append(at)
        numbered.append(
            number_in_steps(messages[columns][side.row[at]].hstack([pl.Series("route", side.channel[at])]))
        )
    channels = np.flatnonzero(is_selected)
    pairs = PositionFinder(*numbered).pair(channels, channels)
    at, to = rows[0][pairs.send], rows[1][pairs.receive]
    return _keep_agreeing(sends, receives, pl.DataFrame({"at": at, "to": to, "apart_ns": np.zeros_like(at)}))


def _recognise_ends(
    messages: pl.DataFrame, sends: _Side, receives: _Side, is_selected: Bools, bound: Int64s
) -> Int64s:
    """Recognise pairs with ends at the same time; arguments and result as in `_recognise_names`.

    Args:
        messages: Messages of both sides.
        sends: All sends.
        receives: All receives.
        is_selected: Mask of the channels.
        bound: Error bound of the clocks of each channel.
    """
    sides = []
    for side in (sends, receives):
        at = np.flatnonzero(is_selected[side.channel])
        keys = [pl.Series("channel", side.channel[at]), pl.Series("at", at)]
        sides.append(messages[["end_ns"]][side.row[at]].hstack(keys).sort("end_ns"))
    others = sides[1].rename({"at": "to"}).with_columns(to_ns="end_ns")
    near = sides[0].join_asof(others, on="end_ns", by="channel", strategy="nearest", check_sortedness=False)
    close = near.with_columns(apart_ns=(pl.col("end_ns") - pl.col("to_ns")).abs()).drop_nulls("to")
    reach = pl.Series(SKEW_NS + bound[close["channel"].to_numpy()])
    return _keep_agreeing(sends, receives, close.filter(close["apart_ns"] <= reach))


def _recognise_arrivals(
    messages: pl.DataFrame, sends: _Side, receives: _Side, is_selected: Bools, bound: Int64s
) -> Int64s:
    """Recognise pairs of a send and the first receive that ends after its start, if soon enough.

    A receive that waited ends as soon as its message arrives; a receive that started late ends later. Arguments and
    result as in `_recognise_ends`.
    """
    own, others = (np.flatnonzero(is_selected[side.channel]) for side in (sends, receives))
    ends = messages[["end_ns"]][receives.row[others]].hstack(
        [pl.Series("channel", receives.channel[others]), pl.Series("to", others)]
    )
    channel = pl.Series("channel", sends.channel[own])
    begin = pl.col("start_ns") - pl.Series(bound[sends.channel[own]])
    first = (
        messages[["start_ns"]][sends.row[own]]
        .select(channel, pl.Series("at", own), begin_ns=begin)
        .sort("begin_ns")
        .join_asof(
            ends.sort("end_ns"), left_on="begin_ns", right_on="end_ns", by="channel", strategy="forward",
            check_sortedness=False, coalesce=False,
        )
    )  # fmt: skip
    apart = pl.col("end_ns") - pl.col("begin_ns")
    soon = 2 * apart.quantile(0.1).over("channel") + SKEW_NS
    pairs = first.drop_nulls("to").filter(apart <= soon).with_columns(apart_ns=apart)
    return _keep_agreeing(sends, receives, pairs)


def _keep_agreeing(sends: _Side, receives: _Side, pairs: pl.DataFrame) -> Int64s:
    """Keep the nearest send of each receive, and the shifts with agreeing neighbours.

    A shift is kept if the next or the previous recognised message of the channel has the same shift.

    Args:
        sends: All sends.
        receives: All receives.
        pairs: `at` and `to`, indices of the sends and the receives, and `apart_ns`.

    Returns:
        As `_recognise_names`.
    """
    agreed = np.full(len(sends.row), _NONE)
    if pairs.is_empty():
        return agreed
    nearest = pairs.sort("apart_ns", maintain_order=True).reverse()
    send_of = np.full(len(receives.row), -1)
    send_of[nearest["to"].to_numpy()] = nearest[
        "at"
    ].to_numpy()  # numpy keeps the last of several values assigned to one index
    receive = np.flatnonzero(send_of >= 0)
    order = np.argsort(send_of[receive])
    send, receive = send_of[receive][order], receive[order]
    shift, channel = receives.position[receive] - sends.position[send], sends.channel[send]
    is_like_next = (shift[1:] == shift[:-1]) & (channel[1:] == channel[:-1])
    is_agreed = np.append(is_like_next, False) | np.append(False, is_like_next)
    is_agreed |= np.bincount(channel)[channel] == 1
    agreed[send[is_agreed]] = shift[is_agreed]
    return agreed


def _fill_shifts(sends: _Side, shift: Int64s) -> Int64s:
    """Fill unknown shifts from the nearest known shifts of the channel; `_NONE` where these differ."""
    index, is_known = np.arange(len(shift)), shift != _NONE
    first = sends.first[sends.channel]
    last = first + sends.count[sends.channel] - 1
    before = np.maximum.accumulate(np.where(is_known, index, -1))
    after = np.minimum.accumulate(np.where(is_known, index, len(shift))[::-1])[::-1]
    above = np.where(before >= first, shift[before], _NONE)
    below = np.where(after <= last, shift[np.minimum(after, len(shift) - 1)], _NONE)
    return np.where((above == _NONE) | (above == below), below, np.where(below == _NONE, above, _NONE))


def _relate_clocks(messages: pl.DataFrame, sends: _Side, receives: _Side) -> Int64s:
    """Return the error bound of the clocks of both lanes of each channel, relative to each other; -1: not comparable."""
    bound = np.full(len(sends.count), -1)
    both = np.flatnonzero((sends.count > 0) & (receives.count > 0))
    if len(both):
        own, other = (messages[list(CLOCK)][side.row[side.first[both]]] for side in (sends, receives))
        related = own.hstack(other.rename({name: f"{name}_of_other" for name in CLOCK}))
        usable = pl.when(is_comparable("_of_other")).then(relative_bound("_of_other"))
        bound[both] = whole_numbers(related.select(usable).to_series())
    return bound


def _mark_balanced(messages: pl.DataFrame, sends: _Side, receives: _Side, bound: Int64s) -> Bools:
    """Return the mask of channels with about as many sends as receives in the time when both lanes have messages.

    If one side has many more, it also exchanges messages with another lane. Few messages, and lanes with clocks that
    cannot be compared, are not counted.
    """
    end, size = messages["end_ns"].to_numpy(), len(bound)
    first, last = np.full(size, NEVER), np.full(size, -NEVER)
    for side in (sends, receives):
        edges = np.full(size, -NEVER), np.full(size, NEVER)
        np.minimum.at(edges[0], side.channel, end[side.row])
        np.maximum.at(edges[1], side.channel, end[side.row])
        first, last = np.maximum(first, edges[0]), np.minimum(last, edges[1])
    slack = SKEW_NS + np.maximum(bound, 0)
    counts = []
    for side in (sends, receives):
        since, until = (first - slack)[side.channel], (last + slack)[side.channel]
        is_common = (end[side.row] >= since) & (end[side.row] <= until)
        counts.append(np.bincount(side.channel, is_common, size))
    most = np.maximum(*counts)
    mask: Bools = (np.minimum(*counts) >= _BALANCED * most) | (most < _COUNTED) | (bound < 0)
    return mask


def _compare_shifts(
    messages: pl.DataFrame, sends: _Side, receives: _Side, shift: Int64s, bound: Int64s
) -> Floats:
    """Compare shifts with shifts by up to two messages more or less.

    Args:
        messages: Messages of both sides.
        sends: All sends.
        receives: All receives.
        shift: Of each send.
        bound: Error bound of the clocks of each channel to compare; -1 for other channels.

    Returns:
        The evidence by which the shift exceeds that of the others, for each channel; infinite for other channels.
    """
    is_timed = bound >= 0
    size, count = len(is_timed), len(_RIVALS)
    margin = np.full(size, np.inf)
    at = np.flatnonzero(is_timed[sends.channel] & (shift != _NONE))
    if not len(at):
        return margin
    at, rival = np.repeat(at, count), np.tile(np.arange(count), len(at))
    to = sends.position[at] + shift[at] + np.array(_RIVALS)[rival]
    is_inside = (to >= 0) & (to < receives.count[sends.channel[at]])
    at, rival, to = at[is_inside], rival[is_inside], to[is_inside]
    send, receive = sends.row[at], receives.row[receives.first[sends.channel[at]] + to]
    start, end = (messages[name].to_numpy() for name in ("start_ns", "end_ns"))
    times = Times(
        send_start=start[send], send_end=end[send], receive_start=start[receive], receive_end=end[receive]
    )
    hypothesis = sends.channel[at] * count + rival
    waits, transfer_ns = describe_sends(sends.channel, start[sends.row], end[sends.row], size)
    (evidence,) = score_pairs(
        hypothesis,
        times,
        waits=np.repeat(waits, count),
        reaches_ns=[np.repeat(SKEW_NS + bound.astype(np.float64), count)],
        transfer_ns=np.repeat(transfer_ns, count),
        with_contrast=False,
    )
    scores, counts = evidence.score.reshape(size, count), np.maximum(evidence.count.reshape(size, count), 1)
    common = np.minimum(counts, counts[:, :1])
    of_rivals = np.where(evidence.count.reshape(size, count) > 0, common * scores / counts, -np.inf)
    best = of_rivals[:, 1:].max(axis=1, initial=0.0)
    own = np.where(evidence.count.reshape(size, count)[:, 0] > 0, scores[:, 0], _UNSEEN)
    margin[is_timed] = (own - np.maximum(best, 0.0))[is_timed]
    return margin
