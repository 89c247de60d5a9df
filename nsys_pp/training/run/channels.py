"""Pairing of sends with receives, channel by channel.

A channel is the sequence of messages from one lane to another (in one direction), which keep their order. Its n-th
send is paired with receive n + shift, where the shift is due to messages that are missing on either side. Some pairs
are recognised first, by micro-batch or by time, and define the shift at their positions; sends between two recognised
pairs with the same shift also have this shift.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import numbers, whole_numbers
from nsys_pp.arrays.order import order_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.clock import SKEW_NS
from nsys_pp.frames.training import DIRECTION

_ENOUGH = 0.3  # ends are used for a channel if they recognise at least this share of its sends
_MOSTLY_NAMED = 0.5  # names are used for a channel if at least this share of its messages has a micro-batch
_NONE = -(1 << 62)  # no shift; less than any shift


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Pairs of sends and receives, as rows of the frame of messages, in order of the sends.

    Attributes:
        send: Row of the send.
        receive: Row of the receive.
        channel: Number of the channel.
    """

    send: Int64s
    receive: Int64s
    channel: Int64s


def match_messages(messages: pl.DataFrame) -> Matches:
    """Match sends with receives.

    Channels with micro-batches in names are matched by them; others by ends or, where sends are buffered and end
    before their receive, by the first receive that ends after the start of a send.

    Args:
        messages: As returned by `find_peers`.
    """
    sends, receives = _split_sides(messages)
    is_named, is_linked = _mark_named(messages, sends, receives)
    shift = _recognise(messages, sends, receives, is_named, is_linked=is_linked)
    if not is_named.all():
        by_end = _recognise(messages, sends, receives, ~is_named)
        votes = np.bincount(sends.channel[by_end != _NONE], minlength=len(is_named))
        is_seen = ~is_named & (votes / np.maximum(sends.count, 1) >= _ENOUGH)
        arrived = _recognise_arrivals(messages, sends, receives, ~is_named & ~is_seen)
        shift = np.where(is_seen[sends.channel], by_end, np.maximum(shift, arrived))
    to = sends.position + _fill_shifts(sends, shift)
    is_inside = (to >= 0) & (to < receives.count[sends.channel])
    send, receive = sends.row[is_inside], receives.row[(receives.first[sends.channel] + to)[is_inside]]
    order = np.argsort(send)
    return Matches(send=send[order], receive=receive[order], channel=sends.channel[is_inside][order])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The sends, or the receives, of all channels, by channel and end.

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
    ends = np.where(is_send, lane << 32 | peer, peer << 32 | lane)
    distinct, pair = np.unique(ends, return_inverse=True)
    direction = whole_numbers(messages["direction"])[rows]
    is_directed = np.bincount(pair[direction < 0], minlength=len(distinct)) == 0
    ways = 1 + len(DIRECTION.categories)
    channel = pair * ways + np.where(is_directed[pair], direction + 1, 0)
    end_ns = messages["end_ns"].to_numpy()[rows]

    def side(chosen: Int64s) -> _Side:
        order = chosen[order_rows(channel[chosen], end_ns[chosen])]
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


def _recognise(
    messages: pl.DataFrame,
    sends: _Side,
    receives: _Side,
    is_selected: Bools,
    *,
    is_linked: Bools | None = None,
) -> Int64s:
    """Recognise pairs of the same micro-batch and link, or with ends at the same time.

    Args:
        messages: Messages of both sides.
        sends: All sends.
        receives: All receives.
        is_selected: Mask of the channels.
        is_linked: Mask of the channels whose named messages have a link, the virtual stage of the sender; None: match
            by ends, not by names.

    Returns:
        The shift from the position of each send to the position of its receive; `_NONE` where unknown.
    """
    number, link = whole_numbers(messages["micro_batch"]), numbers(messages["link"], null=0)
    link = link - link.min(initial=0)
    number_count, link_count = int(number.max(initial=0)) + 1, int(link.max(initial=0)) + 1

    def keyed(side: _Side) -> pl.DataFrame:
        rows = np.flatnonzero(is_selected[side.channel])
        key = side.channel[rows]
        if is_linked is not None:
            rows = rows[number[side.row[rows]] >= 0]
            row, channel = side.row[rows], side.channel[rows]
            key = (channel * number_count + number[row]) * link_count + np.where(
                is_linked[channel], link[row], 0
            )
        chosen = messages[["end_ns", "bound_ns"]][side.row[rows]]
        return chosen.hstack([pl.Series("key", key), pl.Series("at", rows)]).sort("end_ns")

    others = keyed(receives).rename({"at": "to", "bound_ns": "to_bound_ns"}).with_columns(to_ns="end_ns")
    near = keyed(sends).join_asof(others, on="end_ns", by="key", strategy="nearest", check_sortedness=False)
    close = near.with_columns(apart_ns=(pl.col("end_ns") - pl.col("to_ns")).abs()).drop_nulls("to")
    if is_linked is None:
        close = close.filter(pl.col("apart_ns") <= SKEW_NS + pl.sum_horizontal("bound_ns", "to_bound_ns"))
    return _keep_agreeing(sends, receives, close)


def _recognise_arrivals(messages: pl.DataFrame, sends: _Side, receives: _Side, is_selected: Bools) -> Int64s:
    """Recognise pairs of a send and the first receive that ends after its start, if soon enough.

    A receive that waited ends as soon as its message arrives; a receive that started late ends later. Arguments and
    result as in `_recognise`.
    """
    own, others = (np.flatnonzero(is_selected[side.channel]) for side in (sends, receives))
    ends = messages[["end_ns"]][receives.row[others]].hstack(
        [pl.Series("channel", receives.channel[others]), pl.Series("to", others)]
    )
    begin = pl.col("start_ns") - pl.col("bound_ns").fill_null(0)
    first = (
        messages[["start_ns", "bound_ns"]][sends.row[own]]
        .select(pl.Series("channel", sends.channel[own]), pl.Series("at", own), begin_ns=begin)
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
        As `_recognise`.
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
