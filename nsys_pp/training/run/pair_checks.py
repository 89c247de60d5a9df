"""Checks of pairs against the times of their kernels: a message neither arrives before it is sent, nor at any time after."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import find_distinct, pack
from nsys_pp.arrays.records import select_rows
from nsys_pp.arrays.search import number_rows
from nsys_pp.arrays.series import build_column
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.frames.clock import SKEW_NS, is_comparable, is_same_clock, relative_bound
from nsys_pp.training.run.end_evidence import CLEAR, Evidence, Times, describe_sends, score_pairs

ENDS = "ends"
"""Source of peers that only the ends of messages suggest."""
_OTHER = "_of_receive"  # suffix of the columns of the receiver
_ENOUGH = 5  # compared messages of two lanes that can refute a presumed peer
_ALIKE = 0.5  # greatest difference of two distances that the same error of clocks explains, relative to the greater one
_FEW = 0.2  # share of messages that arrive too early, up to which these are wrong pairs; else the clocks are wrong


def check_pairs(pairs: pl.DataFrame) -> pl.DataFrame:
    """Check the pairs of each channel and of each two lanes.

    A message that ends before it begins is no pair, where few do. Where many do, the clocks are wrong if the ends are
    a constant apart; else the lanes are no peers. Two lanes whose ends are not a constant apart are no peers either, nor
    are those whose messages come later by a job in both directions, unless the communicator names them. Where sends wait for their
    receives and most end together, kernels that do not overlap are pairs of different messages. Lanes with clocks that cannot be compared
    are not checked.

    Args:
        pairs: channel, is_guess, peer_source, and lane, start_ns, end_ns and `CLOCK` of both sides (`*_of_receive`).

    Returns:
        The pairs, in order, with is_refuted, and is_displaced: right only if the clocks are wrong by more than their
        bounds.
    """
    lane, other = (pairs[name].to_numpy().astype(np.int64) for name in ("lane", "lane_of_receive"))
    _, both = find_distinct(pack(np.minimum(lane, other), np.maximum(lane, other)))
    _, channel = find_distinct(pairs["channel"].to_numpy())
    bound, is_tested, is_exact = _relate_clocks(pairs)
    times = _read_times(pairs)
    waits, transfer_ns = describe_sends(
        channel, times.send_start, times.send_end, int(channel.max(initial=-1)) + 1
    )
    reach = _find_reaches(channel, bound, len(waits))
    tested = np.flatnonzero(is_tested)
    chosen = select_rows(times, tested)
    near, far = score_pairs(
        channel[tested],
        chosen,
        waits=waits,
        reaches_ns=(reach, np.full(len(waits), np.inf)),
        transfer_ns=transfer_ns,
        with_contrast=False,
    )
    of_both, is_forward = np.zeros(len(near.score), np.int64), np.zeros(len(near.score), np.bool_)
    of_both[channel], is_forward[channel] = both, lane < other
    scores = [np.bincount(of_both, evidence.score)[both] for evidence in (near, far)]
    count = np.bincount(of_both, far.count)[both]

    is_early = is_tested & (times.receive_end + bound < times.send_start)
    is_grouped, is_exchange = _mark_grouped(lane, other, times)
    is_odd = _mark_odd(times, bound, is_together=(waits & (near.score >= CLEAR))[channel])
    is_odd &= is_tested & (is_exchange | ~is_grouped)
    early_count, tested_count = (np.bincount(channel, mask & ~is_odd) for mask in (is_early, is_tested))
    share = early_count[channel] / np.maximum(tested_count[channel], 1)
    is_tight = scores[1] >= CLEAR
    sums_ns, greatest_ns = _sum_directions(far, of_both, is_forward)
    # An error of the clocks delays the messages of one direction and advances those of the other.
    is_constant = is_tight & (np.abs(sums_ns) <= _ALIKE * greatest_ns + SKEW_NS)[both]
    # Lanes with another lane between them receive later by a job in both directions, however wrong the clocks are. Where
    # these are known better than that, ends are evidence by themselves; those of grouped messages are later for other reasons.
    longest_ns = 2 * SKEW_NS + np.bincount(of_both, transfer_ns * ~waits)
    is_wide = np.bincount(of_both, reach > transfer_ns)[both] > 0
    has_groups = np.bincount(both, is_grouped)[both] > 0
    is_apart = (count >= _ENOUGH) & is_tight & is_wide & ~has_groups & (sums_ns > longest_ns)[both]
    # transfers of one slow direction are long, but not those of both
    is_slow = is_tight & (np.bincount(of_both, near.score > 0)[both] > 0)
    # the ends of messages that do not wait may be any time apart, but not a constant that is too long
    is_plain = is_tight | (np.bincount(of_both, waits)[both] > 0)
    is_unlike = (count >= _ENOUGH) & (scores[0] < 0) & is_plain & ~is_slow
    is_refuted = np.where(share > _FEW, ~is_constant, is_early)
    is_refuted |= is_odd
    is_refuted |= (is_unlike & ~is_constant | is_apart) & pairs["is_guess"].to_numpy()
    is_displaced = is_constant & (is_unlike | (share > _FEW))
    # one clock cannot be wrong, nor is there evidence of peers that only ends suggest if ends are apart
    if is_displaced.any():
        is_exact = is_exact | (pairs["peer_source"] == ENDS).fill_null(False).to_numpy()
        is_refuted |= is_displaced & is_exact
        is_displaced &= ~is_exact
    marks = {"is_refuted": is_refuted & is_tested, "is_displaced": is_displaced & is_tested}
    return pairs.hstack([build_column(name, mask) for name, mask in marks.items()])


def _find_reaches(channel: Int64s, bound: Int64s, size: int) -> Floats:
    """Find the greatest distance of ends that the error of the clocks explains, for each channel."""
    reach = np.zeros(size)
    # of arrays of two types, numpy takes ten times as long
    np.maximum.at(reach, channel, (SKEW_NS + bound).astype(np.float64))
    return reach


def _relate_clocks(pairs: pl.DataFrame) -> tuple[Int64s, Bools, Bools]:
    """Return the error bound of the clocks of each pair, and the masks of comparable and of equal clocks."""
    relation = pairs.select(
        bound=relative_bound(_OTHER).fill_null(0),
        is_tested=is_comparable(_OTHER),
        is_exact=is_same_clock(_OTHER).fill_null(False),
    )
    bound, is_tested, is_exact = (column.to_numpy() for column in relation)
    return bound, is_tested, is_exact


def _read_times(pairs: pl.DataFrame) -> Times:
    return Times(
        **{
            f"{side}_{edge}": pairs[f"{edge}_ns{suffix}"].to_numpy()
            for side, suffix in (("send", ""), ("receive", _OTHER))
            for edge in ("start", "end")
        }
    )


def _mark_odd(times: Times, bound: Int64s, *, is_together: Bools) -> Bools:
    """Mark the pairs whose kernels do not overlap, where sends wait for their receives and most end together.

    They are of different messages, unless a kernel waited for another message and its send was buffered.
    """
    apart_ns = np.maximum(times.receive_start - times.send_end, times.send_start - times.receive_end)
    mask: Bools = is_together & (apart_ns > bound + SKEW_NS)
    return mask


def _mark_grouped(lane: Int64s, other: Int64s, times: Times) -> tuple[Bools, Bools]:
    """Mark the pairs with a kernel of several messages, as of sends and receives in a group.

    Returns:
        Mask of the pairs; mask of these whose kernels exchange messages with each other.
    """
    sides = (
        (lane, other),
        (times.send_start, times.receive_start),
        (times.send_end, times.receive_end),
    )
    _, kernel = number_rows([build_column("", np.concatenate(columns)) for columns in sides])
    send, receive = kernel[: len(lane)], kernel[len(lane) :]
    is_shared = np.bincount(kernel) > 1
    _, exchange = find_distinct(pack(np.minimum(send, receive), np.maximum(send, receive)))
    return is_shared[send] | is_shared[receive], (np.bincount(exchange) > 1)[exchange]


def _sum_directions(evidence: Evidence, of_both: Int64s, is_forward: Bools) -> tuple[Floats, Floats]:
    """Add the distances of the ends in both directions of each pair of lanes.

    Args:
        evidence: Of each channel.
        of_both: Pair of lanes of each channel.
        is_forward: Whether the lane of the lower number sends.

    Returns:
        The sum, NaN unless both directions have messages, and the greater of both distances without sign.
    """
    size = int(of_both.max(initial=-1)) + 1
    sums, counts = (
        [np.bincount(of_both[mask], values[mask], size) for mask in (is_forward, ~is_forward)]
        for values in (evidence.center_ns * evidence.count, evidence.count)
    )
    centers = [total / np.maximum(count, 1) for total, count in zip(sums, counts, strict=True)]
    has_both = (counts[0] > 0) & (counts[1] > 0)
    return np.where(has_both, centers[0] + centers[1], np.nan), np.maximum(*np.abs(centers))
