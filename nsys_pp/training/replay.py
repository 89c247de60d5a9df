"""Replay of a run: when each lane would reach each moment, if some durations were others.

The graph has a moment for each of

    the end of a piece     of a lane's time: a state, cut where jobs begin and end, or time between steps
    the start of a kernel  of communication
    the end of a kernel    of communication
    a meeting              of the kernels of one message or collective: the last of them has started

A moment is reached when the last of those that it depends on is, plus a delay that was measured. A piece in
which a lane waits for communication has no duration of its own: it ends when the kernels that ended in it
have, plus the delay behind the last one. So waits are never stored, and the replay of what was recorded gives
the recorded moments, but for messages that seem to arrive before they are sent.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, find_distinct, keep_rows, numbers, pick, whole_numbers
from nsys_pp.arrays.intervals import split_at
from nsys_pp.arrays.search import expand_windows, find_equal_rows, find_last, order_rows
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.frames.clock import keep_comparable
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import CAUSES, SCHEDULED_KINDS
from nsys_pp.training.causes import number_collectives
from nsys_pp.training.launched import LATE_NS
from nsys_pp.training.schedule import mark_top_level
from nsys_pp.training.waits import AT_ONCE_NS

KERNELS = build_schema(
    {  # one row per kernel of communication
        "lane": pl.UInt32,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "channel": pl.UInt32,  # kernels of one wait for each other, if they are on one stream
    },
    name="KERNELS",
)

MEMBERS = build_schema(
    {  # one row per kernel and message or collective that is part of it
        "kernel": pl.UInt32,  # row of `KERNELS`
        "group": pl.UInt32,  # equal for the members of a message or collective
        "peer": pl.UInt32,  # the other lane of a message; null for collectives
        "is_received": pl.Boolean,  # of a message; null for collectives
        "awaits": pl.Boolean,  # it ends after all members have begun: not so for buffered sends
        "job": pl.UInt32,  # of `RUN_JOBS`: it needs the message; null where unknown
    },
    name="MEMBERS",
)

# Code of the cause of time outside the steps of a lane.
BETWEEN = len(CAUSES)
_STATES = ("", "_wait", "_transfer")
# Codes of the causes that are communication.
COMMUNICATION = [CAUSES.index(f"{need}{state}") for need in ("message", "collective") for state in _STATES]
_HOST = CAUSES.index("host")

# first and last moment of the compute of a job, or of the job without any
_BEGIN = {"begin_ns": pl.coalesce("compute_start_ns", "start_ns")}
_END = {"until_ns": pl.coalesce("compute_end_ns", "end_ns")}


def list_communication(
    *, lanes: pl.DataFrame, anchors: pl.DataFrame, transfers: pl.DataFrame, jobs: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """List the kernels of communication, and the messages and collectives that they are part of.

    Args:
        lanes: `LANES`.
        anchors: `LANE_ANCHORS`.
        transfers: `TRANSFERS`.
        jobs: `RUN_JOBS`.

    Returns:
        `KERNELS` and `MEMBERS`. Messages and collectives of clocks that cannot be compared are left out.
    """
    channel = pl.struct("lane", "channel", "communicator").rank("dense")
    kernels = anchors.select("lane", "start_ns", "end_ns", channel=channel).pipe(conform, KERNELS)
    span = ["lane", "start_ns", "end_ns"]
    known = keep_comparable(transfers, lanes, "sender", "receiver").with_row_index("group")
    # where one send ended before its receive began, others of the size need not wait for theirs
    is_buffered = pl.col("is_buffered").any().over("sender", "receiver", "size_bytes")
    sides = (
        pl.concat(
            known.select(
                "group",
                "direction",
                "micro_batch",
                lane=own,
                peer=other,
                start_ns=f"{verb}_start_ns",
                end_ns=f"{verb}_end_ns",
                awaits=pl.lit(verb == "receive") | ~is_buffered,
                is_received=pl.lit(verb == "receive"),
            )
            for own, other, verb in (("sender", "receiver", "send"), ("receiver", "sender", "receive"))
        )
    ).with_columns(pl.col("direction").cast(pl.String))
    needing = pl.concat(
        jobs.filter(pl.col("kind").is_in([direction, "forward_backward"])).select(
            "lane",
            "job",
            **_BEGIN,
            direction=pl.lit(direction),
            micro_batch=pl.when(pl.col("kind") == direction).then("micro_batch").otherwise(batch),
        )
        for direction, batch in (("forward", "micro_batch"), ("backward", "backward_micro_batch"))
    )
    needed = (
        sides.filter("is_received")
        .drop_nulls(["direction", "micro_batch"])
        .sort("end_ns")
        .join_asof(
            needing.sort("begin_ns"),
            left_on="end_ns",
            right_on="begin_ns",
            by=["lane", "direction", "micro_batch"],
            strategy="forward",
            check_sortedness=False,
        )
        .select(*span, "group", "job")
    )
    collectives = number_collectives(anchors.join(sides, on=span, how="anti"), lanes=lanes).select(
        *span, group=pl.col("number") + len(known), awaits=pl.lit(value=True)
    )
    both = pl.concat(
        [sides.join(needed, on=[*span, "group"], how="left"), collectives], how="diagonal_relaxed"
    )
    row = find_equal_rows([numbers(kernels[name]) for name in span], [numbers(both[name]) for name in span])
    return kernels, both.with_columns(kernel=pl.Series(row)).filter(pl.col("kernel") >= 0).pipe(
        conform, MEMBERS
    )


class Pieces(Struct, frozen=True, kw_only=True):
    """Pieces of the time of lanes, by lane and start, without gaps."""

    lane: Int64s
    step: Int64s  # -1 outside steps
    cause: Int64s  # index of `CAUSES`, or `BETWEEN`
    job: Int64s  # row of `RUN_JOBS` around it; -1 without one
    start: Int64s
    end: Int64s


class Graph(Struct, frozen=True, kw_only=True):
    """Moments of a run, and what each depends on.

    Attributes:
        pieces: Pieces: the first moments are their ends, in order.
        kernels: `KERNELS` that start in pieces: the next moments are their starts, then their ends, in order.
        members: `MEMBERS` of these.
        source: Moment that each edge begins at; -1: the start of the run. Edges are in order of the moment
            that they end at, and these by level: no moment depends on one of its level.
        first: First edge of each moment.
        moment: That moment.
        levels: Bounds of the levels in `moment`.
        delay_ns: Of each edge.
        of_piece: Piece whose duration has the delay as a part; -1: none.
        of_kernel: Kernel whose transfer is the delay; -1: none.
        origin_ns: Start of the run.
        is_whole: All moments can be reached.
    """

    pieces: Pieces
    kernels: pl.DataFrame
    members: pl.DataFrame
    source: Int64s
    first: Int64s
    moment: Int64s
    levels: Int64s
    delay_ns: Int64s
    of_piece: Int64s
    of_kernel: Int64s
    origin_ns: int
    is_whole: bool

    @property
    def transfers(self) -> Floats:
        """Delay of the end of each kernel behind the last start of its members."""
        transfer = np.zeros(len(self.kernels) + 1)
        transfer[self.of_kernel] = self.delay_ns
        return transfer[:-1]

    @property
    def waits(self) -> tuple[Int64s, Int64s]:
        """Pieces that end with a kernel of communication, and this kernel."""
        moment = np.repeat(self.moment, np.diff(self.first, append=len(self.source)))
        kernel = self.source - len(self.pieces.end) - len(self.kernels)
        is_wait = (moment < len(self.pieces.end)) & (kernel >= 0) & (self.of_piece < 0)
        return moment[is_wait], kernel[is_wait]

    def replay(self, piece_factor: Floats, kernel_factor: Floats) -> Floats:
        """Compute the end of each piece, with durations times a factor, in ns.

        Args:
            piece_factor: Of each piece; without effect where it has no duration of its own.
            kernel_factor: Of the transfer of each kernel.
        """
        return self.reach(piece_factor, kernel_factor)[: len(self.pieces.end)]

    def reach(self, piece_factor: Floats, kernel_factor: Floats) -> Floats:
        """Compute the end of each piece, then the start and the end of each kernel, likewise."""
        scale = np.append(piece_factor, 1.0)[self.of_piece] * np.append(kernel_factor, 1.0)[self.of_kernel]
        delay = self.delay_ns * scale
        reached = np.zeros(len(self.moment) + 1)  # the last one: the start of the run
        stops = np.append(self.first, len(self.source))
        for begin, stop in zip(self.levels[:-1].tolist(), self.levels[1:].tolist(), strict=True):
            edges = slice(stops[begin], stops[stop])
            times = reached[self.source[edges]] + delay[edges]
            reached[self.moment[begin:stop]] = np.maximum.reduceat(
                times, self.first[begin:stop] - stops[begin]
            )
        return reached[: len(self.pieces.end) + 2 * len(self.kernels)] + self.origin_ns

    def find_starts(self, ends: Floats) -> Floats:
        """Return the start of each piece: the end of the one before it."""
        return np.where(np.diff(self.pieces.lane, prepend=-1) != 0, float(self.origin_ns), np.roll(ends, 1))

    def move(self, lane: Int64s, time: Int64s, ends: Floats) -> Int64s:
        """Move recorded times of lanes to where they are in a replay with these ends of pieces."""
        pieces, starts = self.pieces, self.find_starts(ends)
        places = _Places(self.origin_ns, int(pieces.end.max()) - self.origin_ns + 3)
        at = np.searchsorted(places.at(pieces.lane, pieces.start), places.at(lane, time), side="right") - 1
        share = np.clip((time - pieces.start[at]) / np.maximum(pieces.end - pieces.start, 1)[at], 0, 1)
        moved: Int64s = (starts[at] + share * (ends - starts)[at]).round().astype(np.int64)
        return moved


class _Places(Struct, frozen=True):
    """One number for each lane and time of a run, in their order."""

    origin: int
    width: int

    def at(self, lane: Int64s, time: Int64s) -> Int64s:
        return lane * self.width + np.clip(time - self.origin, -1, self.width - 2) + 1


class _Edges:
    """Edges of a graph: from a moment to another one, with a delay.

    Args:
        pieces: Number of pieces.
        kernels: Number of kernels.
    """

    def __init__(self, pieces: int, kernels: int) -> None:
        self.starts, self.ends, self.meetings = pieces, pieces + kernels, pieces + 2 * kernels
        self._parts: list[Int64s] = []

    def add(
        self,
        source: Int64s,
        to: Int64s,
        delay_ns: Int64s | int,
        *,
        piece: Int64s | int = -1,
        kernel: Int64s | int = -1,
    ) -> None:
        """Add edges; `piece` or `kernel`: what has the delay as a part of its duration."""
        self._parts.append(np.stack(np.broadcast_arrays(source, to, delay_ns, piece, kernel)))

    def build(self, pieces: Pieces, kernels: pl.DataFrame, members: pl.DataFrame, origin: int) -> Graph:
        """Sort the edges by the level of the moment that they end at, and this."""
        edges = np.concatenate(self._parts, axis=1)
        level = _find_levels(edges[0], edges[1], int(edges[1].max()) + 1)
        order = np.argsort(level[edges[1]] * len(level) + edges[1])
        source, to, delay_ns, of_piece, of_kernel = edges[:, order]
        first = np.flatnonzero(np.diff(to, prepend=-1))
        moment = to[first]
        return Graph(
            pieces=pieces,
            kernels=kernels,
            members=members,
            source=source,
            first=first,
            moment=moment,
            levels=np.append(np.flatnonzero(np.diff(level[moment], prepend=-2)), len(moment)),
            delay_ns=delay_ns,
            of_piece=of_piece,
            of_kernel=of_kernel,
            origin_ns=origin,
            is_whole=bool((level >= 0).all()),
        )


def _find_levels(source: Int64s, to: Int64s, count: int) -> Int64s:
    """Find the level of each moment: one more than the highest of those it depends on; -1 in a cycle."""
    inner = np.flatnonzero(source >= 0)
    inner = inner[np.argsort(source[inner], kind="stable")]
    stops = np.searchsorted(source[inner], np.arange(count + 1))
    missing = np.bincount(to[inner], minlength=count)
    level = np.full(count, -1)
    ready, at = np.flatnonzero(missing == 0), 0
    while len(ready):
        level[ready] = at
        then = to[inner[expand_windows(stops[ready], stops[ready + 1])]]
        np.subtract.at(missing, then, 1)
        ready, at = np.unique(then[missing[then] == 0]), at + 1
    return level


def build_graph(
    *, jobs: pl.DataFrame, lane_states: pl.DataFrame, kernels: pl.DataFrame, members: pl.DataFrame
) -> Graph:
    """Build the graph of a run.

    A message that no lane waited for is still needed by its job, and all communication of a lane that ended
    before the optimizer by the optimizer.

    Args:
        jobs: `RUN_JOBS`.
        lane_states: `LANE_STATES`, not empty.
        kernels: `KERNELS`.
        members: `MEMBERS`.
    """
    begin, end = (numbers(lane_states[name]) for name in ("start_ns", "end_ns"))
    places = _Places(int(begin.min()), int(end.max() - begin.min()) + 3)
    pieces, is_waiting = _list_pieces(lane_states, jobs, places)
    kernels, members = _keep_inside(pieces, kernels, members, places)
    edges = _Edges(len(pieces.lane), len(kernels))
    met = _add_pieces(edges, pieces, is_waiting, kernels, places)
    _add_starts(edges, pieces, met, kernels, places)
    _add_meetings(edges, kernels, members)
    _add_needs(edges, pieces, met, jobs, kernels, members, places)
    return edges.build(pieces, kernels, members, places.origin)


def _list_pieces(lane_states: pl.DataFrame, jobs: pl.DataFrame, places: _Places) -> tuple[Pieces, Bools]:
    """List the pieces, and the mask of those in which the lane waits for communication."""
    lane, start = whole_numbers(lane_states["lane"]), numbers(lane_states["start_ns"])
    order = order_rows(lane, start)
    lane, start, end = lane[order], start[order], numbers(lane_states["end_ns"])[order]
    step, cause = numbers(lane_states["step"])[order], whole_numbers(lane_states["cause"])[order]
    # what lies before and between the steps of a lane; the first one begins with the run
    previous = np.where(np.diff(lane, prepend=-1) != 0, places.origin, np.roll(end, 1))
    gap = np.flatnonzero(previous < start)
    lane, start, end = np.append(lane, lane[gap]), np.append(start, previous[gap]), np.append(end, start[gap])
    step, cause = np.append(step, np.full(len(gap), -1)), np.append(cause, np.full(len(gap), BETWEEN))
    order = np.argsort(places.at(lane, start), kind="stable")
    lane, start, end, step, cause = lane[order], start[order], end[order], step[order], cause[order]
    is_waiting = np.isin(cause, COMMUNICATION)
    # waits that follow each other are one
    is_same = is_waiting[1:] & is_waiting[:-1] & (lane[1:] == lane[:-1]) & (step[1:] == step[:-1])
    head = np.flatnonzero(np.append(True, ~is_same))
    end = end[np.append(head[1:], len(end)) - 1]
    lane, start, step, cause, is_waiting = lane[head], start[head], step[head], cause[head], is_waiting[head]

    row = np.flatnonzero(mark_top_level(jobs, [*SCHEDULED_KINDS, "recompute", "optimizer"]))
    since, until = (places.at(whole_numbers(jobs["lane"])[row], time[row]) for time in _span_jobs(jobs))
    cuts = np.unique(np.append(since, until))
    begins, ends = places.at(lane, start), places.at(lane, end)
    piece, begin, stops = split_at(begins, np.where(is_waiting, begins, ends), cuts)  # waits are not cut
    stops = np.where(is_waiting[piece], ends[piece], stops)
    by_start = np.argsort(since, kind="stable")
    job = pick(by_start, np.searchsorted(since[by_start], begin, side="right") - 1, -1)
    job = np.where(pick(until, job, -1) >= stops, job, -1)
    shift = places.origin - 1 - lane[piece] * places.width
    pieces = Pieces(
        lane=lane[piece],
        step=step[piece],
        cause=cause[piece],
        job=pick(row, job, -1),
        start=begin + shift,
        end=stops + shift,
    )
    return pieces, is_waiting[piece]


def _span_jobs(jobs: pl.DataFrame) -> tuple[Int64s, Int64s]:
    begin, end = jobs.select(**_BEGIN, **_END)
    return numbers(begin), numbers(end)


def _keep_inside(
    pieces: Pieces, kernels: pl.DataFrame, members: pl.DataFrame, places: _Places
) -> tuple[pl.DataFrame, pl.DataFrame]:
    lane, start = whole_numbers(kernels["lane"]), numbers(kernels["start_ns"])
    at = np.searchsorted(places.at(pieces.lane, pieces.start), places.at(lane, start), side="right") - 1
    is_inside = (at >= 0) & (pieces.lane[at] == lane) & (start >= pieces.start[at]) & (start < pieces.end[at])
    number = np.where(is_inside, np.cumsum(is_inside) - 1, -1)
    of_kernel = pl.Series("kernel", number[whole_numbers(members["kernel"])])
    return keep_rows(kernels, is_inside), members.with_columns(of_kernel).filter(of_kernel >= 0).pipe(
        conform, MEMBERS
    )


class _Met(Struct, frozen=True):
    # kernels that ended in pieces
    by_end: Int64s  # rows of the kernels, by lane and end
    ends: Int64s  # their places
    first: Int64s  # index in these of the first kernel that ended in each piece
    is_met: Bools  # the lane waited for these: the piece has no duration of its own
    previous: Int64s  # piece before each one on its lane; -1 for the first


def _add_pieces(
    edges: _Edges, pieces: Pieces, is_waiting: Bools, kernels: pl.DataFrame, places: _Places
) -> _Met:
    """Add the edges to the ends of pieces: from the piece before, and from the kernels that it waits for."""
    lane, end = whole_numbers(kernels["lane"]), numbers(kernels["end_ns"])
    by_end = np.argsort(places.at(lane, end), kind="stable")
    ends = places.at(lane, end)[by_end]
    first, stop = (
        np.searchsorted(ends, places.at(pieces.lane, time), side="right")
        for time in (pieces.start, pieces.end)
    )
    is_met = is_waiting & (first < stop)
    row, met, previous = np.arange(len(is_met)), np.flatnonzero(is_met), np.arange(-1, len(is_met) - 1)
    previous[np.diff(pieces.lane, prepend=-1) != 0] = -1
    delay = pieces.end - pieces.start
    delay[met] = pieces.end[met] - end[by_end[stop[met] - 1]]
    last = np.where(is_met, pick(by_end, stop - 1, -1), -1)
    edges.add(edges.ends + last[met], met, delay[met])
    # a launch after a wait is late because the host waited, too: not where the message had come before
    is_late = (pieces.cause == _HOST) & (previous >= 0) & is_met[previous]
    late = np.flatnonzero(is_late)
    since = previous[late]
    edges.add(edges.ends + last[since], late, delay[since] + delay[late], piece=late)
    source = np.where(is_late, previous[previous], previous)
    edges.add(source, row, np.where(is_late, 0, delay), piece=np.where(is_met | is_late, -1, row))
    return _Met(by_end, ends, first, is_met, previous)


def _add_starts(edges: _Edges, pieces: Pieces, met: _Met, kernels: pl.DataFrame, places: _Places) -> None:
    """Add the edges to the starts of kernels: from the lane's time, or the kernel that it waited for."""
    lane, start, end = (numbers(kernels[name]) for name in ("lane", "start_ns", "end_ns"))
    channel = numbers(kernels["channel"])
    by_end = order_rows(channel, end)
    before = pick(by_end, find_last(channel, start, channel[by_end], end[by_end]), -1)
    gap = start - pick(end, before, NEVER)
    held, free = np.flatnonzero(gap <= AT_ONCE_NS), np.flatnonzero(gap > AT_ONCE_NS)
    edges.add(edges.ends + before[held], edges.starts + held, gap[held])

    every, lane, start, moment = lane, lane[free], start[free], edges.starts + free
    place = places.at(lane, start)
    at = np.searchsorted(places.at(pieces.lane, pieces.start), place, side="right") - 1
    last = np.searchsorted(met.ends, place, side="right") - 1
    before = met.by_end[np.maximum(last, 0)]
    wait_ns = start - end[before]
    # a send behind a collective of its job begins at once, and the next job computes already
    is_near = (last >= 0) & (every[before] == lane) & (wait_ns <= AT_ONCE_NS)
    is_met = met.is_met[at]
    follows = is_near | (is_met & (last >= met.first[at]) & (wait_ns <= LATE_NS))
    delay = np.where(follows, 0, start - pieces.start[at])
    source = np.where(is_near & ~is_met, -1, met.previous[at])
    edges.add(source, moment, delay, piece=np.where(is_met, -1, at))
    after = met.by_end[last[follows]]
    edges.add(edges.ends + after, moment[follows], start[follows] - end[after])


def _add_meetings(edges: _Edges, kernels: pl.DataFrame, members: pl.DataFrame) -> None:
    # to the meetings of messages and collectives, and to the ends of kernels
    start, end = (numbers(kernels[name]) for name in ("start_ns", "end_ns"))
    kernel, (_, group) = whole_numbers(members["kernel"]), find_distinct(whole_numbers(members["group"]))
    met = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(met, group, start[kernel])
    # a message that seems to arrive before it is sent, or of which nothing is known, has its own duration
    awaits = members["awaits"].to_numpy().astype(np.bool_) & (met[group] <= end[kernel])
    last = start.copy()
    np.maximum.at(last, kernel[awaits], met[group[awaits]])
    transfer, every = end - last, np.arange(len(start))
    edges.add(edges.starts + kernel, edges.meetings + group, 0)
    kernel, group = kernel[awaits], group[awaits]
    edges.add(edges.meetings + group, edges.ends + kernel, transfer[kernel], kernel=kernel)
    edges.add(edges.starts + every, edges.ends + every, transfer, kernel=every)


def _add_needs(
    edges: _Edges,
    pieces: Pieces,
    met: _Met,
    jobs: pl.DataFrame,
    kernels: pl.DataFrame,
    members: pl.DataFrame,
    places: _Places,
) -> None:
    """Add the edges from communication that no lane waited for to the first piece of jobs that need it."""
    lane, begin, end = whole_numbers(jobs["lane"]), _span_jobs(jobs)[0], numbers(kernels["end_ns"])
    needed = members.drop_nulls("job")
    kernel, job = whole_numbers(needed["kernel"]), whole_numbers(needed["job"])
    channel = numbers(kernels["channel"])
    by_channel = order_rows(channel, end)
    first, _ = find_distinct(channel[by_channel])
    channels = pl.DataFrame(
        {"lane": kernels["lane"].gather(by_channel[first]), "channel": channel[by_channel[first]]}
    )
    updates = jobs.select("lane", "kind", job=pl.int_range(pl.len())).filter(kind="optimizer")
    both = updates.join(channels, on="lane")
    update = numbers(both["job"])
    last = find_last(numbers(both["channel"]), begin[update], channel[by_channel], end[by_channel])
    kernel, job = np.append(kernel, by_channel[last[last >= 0]]), np.append(job, update[last >= 0])
    at = np.searchsorted(places.at(pieces.lane, pieces.start), places.at(lane[job], begin[job]))
    at = np.minimum(at, len(pieces.lane) - 1)
    kept = (pieces.lane[at] == lane[job]) & ~met.is_met[at] & (end[kernel] <= pieces.start[at])
    at, kernel = at[kept], kernel[kept]
    edges.add(edges.ends + kernel, at, (pieces.end - pieces.start)[at], piece=at)
