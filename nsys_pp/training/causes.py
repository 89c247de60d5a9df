"""Causes of bubbles: what each lane does at every moment of a step, and which other lane it waits for.

Waits of a report say which operation held a gap (`waits.py`). Its peers, on other lanes, decide how much of a
message or a collective is waiting: until the last one of them began.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import (
    NEVER,
    find_distinct,
    gather,
    gather_rows,
    has_value,
    index_rows,
    keep_rows,
    numbers,
    pick,
    whole_numbers,
)
from nsys_pp.arrays.intervals import unite
from nsys_pp.arrays.search import (
    divide_groups,
    expand_windows,
    find_equal_rows,
    find_last,
    find_pairs,
    order_rows,
)
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.clock import SKEW_NS, keep_comparable, number_comparable, relative_bound
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import CAUSE, COVER, COVERAGE, IS_STEPLESS, LANE_STATES, NEED, POSITION, RUN_PART
from nsys_pp.training.messages import MOSTLY
from nsys_pp.training.waits import replace_cause


def cut_loading(states: pl.DataFrame, loads: pl.DataFrame, *, owner: str) -> pl.DataFrame:
    """Cut data loading out of the states with cause "host" or "idle".

    Args:
        states: `owner`, cause (null where unknown), start_ns, end_ns, and any other columns.
        loads: `owner`, host_start_ns and host_end_ns of data loading jobs.
        owner: Column of integers: states are cut by the loads of the same owner.

    Returns:
        The same columns, in any order; the parts that are cut out have cause "data". No state is empty.
    """
    loading = unite(*(numbers(loads[name]) for name in (owner, "host_start_ns", "host_end_ns")))
    if not len(loading.owner):
        return states
    is_free = states["cause"].is_in(["host", "idle"]).fill_null(value=False)
    free = states.filter(is_free)
    cut = replace_cause(free, numbers(free[owner]), loading, "data")
    return pl.concat([states.filter(~is_free), cut]).filter(pl.col("start_ns") < pl.col("end_ns"))


_STEP = ["lane", "step"]
# causes of each need
_WAITING, _TRANSFERRING, _EITHER = (
    pl.Series([f"{need}{state}" for need in NEED.categories], dtype=CAUSE)
    for state in ("_wait", "_transfer", "")
)
_POSITIONS = pl.Series("position", [*POSITION.categories, None], dtype=POSITION)
_SPAN_OF_NEED = ["need_start_ns", "need_end_ns"]
_OPERATION = ["lane", *_SPAN_OF_NEED]
_MAX_OPEN = (
    0.5  # share of an operation in which the peer may have begun, for all errors of the clocks within bounds
)


def build_lane_states(
    *,
    lanes: pl.DataFrame,
    steps: pl.DataFrame,
    compute_segments: pl.DataFrame,
    waits: pl.DataFrame,
    jobs: pl.DataFrame,
    data_jobs: pl.DataFrame,
    messages: pl.DataFrame,
    transfers: pl.DataFrame,
    anchors: pl.DataFrame,
) -> pl.DataFrame:
    """Build the states of each lane at every moment of every step.

    While a message or collective runs, the cause is that its peers have not begun theirs, until the start of
    the last peer, and then its transfer; where that start is not known, or the error of the clocks leaves
    most of the operation open, or another peer may begin later, it is either of the two.
    `nsys_pp.frames.training` defines all causes.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`.
        waits: `LANE_WAITS`.
        jobs: `RUN_JOBS`; forwards and backwards define positions.
        data_jobs: lane, host_start_ns and host_end_ns of data loading jobs.
        messages: `LANE_MESSAGES`: a kernel with an unpaired message may wait for another peer.
        transfers: `TRANSFERS`.
        anchors: `LANE_ANCHORS`.

    Returns:
        `LANE_STATES` by lane and start; `position` is null in steps without forwards and backwards.
    """
    if steps.is_empty():  # reports without a training
        return LANE_STATES.to_frame()
    inside = _clip_to_steps(steps, compute_segments)
    waits = keep_rows(waits, has_value(waits["step"]) & (_find_steps(steps, waits) >= 0))
    known = keep_comparable(transfers, lanes, "sender", "receiver")
    of_messages = _find_message_peers(waits.filter(pl.col("need") == "message"), known, messages)
    needed = keep_rows(waits[[*_OPERATION]], has_value(waits["need"])).unique(maintain_order=True)
    peers = pl.concat([of_messages, find_last_members(needed, lanes=lanes, anchors=anchors)], how="diagonal")
    row = find_equal_rows(_read_needs(peers), _read_needs(waits))
    matched = waits.hstack(gather_rows(peers, ["peer_start_ns", "bound_ns", "waits_for", "is_complete"], row))
    computes = inside.select(
        *_STEP, "start_ns", "end_ns", cause=pl.lit("compute", CAUSE), waits_for=pl.lit(None, pl.UInt32)
    )
    lane_states = pl.concat([computes, _split_waits(matched)]).filter(pl.col("start_ns") < pl.col("end_ns"))
    return _cut_at_positions(cut_loading(lane_states, data_jobs, owner="lane"), jobs).pipe(
        conform, LANE_STATES
    )


def measure_cover(*, steps: pl.DataFrame, compute_segments: pl.DataFrame) -> pl.DataFrame:
    """Split the compute states of each step into kernels and the pauses between them.

    Args:
        steps: `RUN_STEPS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`.

    Returns:
        `COVER`: one row per lane and step of `steps`; by step, lane.
    """
    inside = _clip_to_steps(steps, compute_segments)
    length = pl.col("end_ns") - pl.col("start_ns")
    sums = inside.group_by(_STEP).agg(pl.col("compute_ns").sum(), length_ns=length.sum())
    return (
        steps.select(*_STEP)
        .join(sums, on=_STEP, how="left", maintain_order="left")
        .with_columns(
            pl.col("compute_ns").fill_null(0),
            pause_ns=(pl.col("length_ns") - pl.col("compute_ns")).fill_null(0),
        )
        .pipe(conform, COVER)
    )


def measure_coverage(
    lanes: pl.DataFrame, steps: pl.DataFrame, compute_segments: pl.DataFrame, pauses: pl.DataFrame
) -> pl.DataFrame:
    """Measure what the steps of each lane hold of the capture, and what lies outside them.

    Args:
        lanes: `LANES`.
        steps: `LANE_STEPS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`, also those outside all steps.
        pauses: `PAUSES`: a stretch with one is no part of the capture.

    Returns:
        `COVERAGE` of the lanes with steps. The times of a lane add up to the capture of its report, its
        compute to that of all its segments.
    """
    first, last = pl.col("first_op_ns").min(), pl.col("last_op_ns").max()
    spans = (
        steps.sort("lane", "start_ns")
        .with_columns(ended_ns=pl.col("end_ns").cum_max().over("lane"))
        .with_columns(until_ns=pl.col("ended_ns").shift().over("lane"))
        .with_columns(start_ns=pl.max_horizontal("start_ns", "until_ns"))
    )
    run = spans.group_by("lane", maintain_order=True).agg(
        first_ns=pl.min_horizontal(first, pl.col("start_ns").first()),
        last_ns=pl.max_horizontal(last, pl.col("ended_ns").last()),
        start_ns=pl.col("start_ns").first(),
        end_ns=pl.col("ended_ns").last(),
    )
    whole = run.join(lanes.select("lane", "report"), on="lane").with_columns(
        since_ns=pl.col("first_ns").min().over("report"), until_ns=pl.col("last_ns").max().over("report")
    )
    parts = pl.concat(
        frame.select("lane", pl.lit(part, RUN_PART).alias("part"), start_ns=start, end_ns=end)
        for frame, part, start, end in (
            (spans.filter(~IS_STEPLESS), "steps", "start_ns", "ended_ns"),
            (spans.filter(IS_STEPLESS), "unknown", "start_ns", "ended_ns"),
            (spans, "between", "until_ns", "start_ns"),
            (run, "before", "first_ns", "start_ns"),
            (run, "after", "end_ns", "last_ns"),
            (whole, "absent", "since_ns", "first_ns"),
            (whole, "absent", "last_ns", "until_ns"),
        )
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
    computed = (
        compute_segments.select("lane", "start_ns", "compute_ns")
        .sort("start_ns")
        .join_asof(parts.sort("start_ns"), on="start_ns", by="lane", check_sortedness=False)
        .group_by("lane", "part")
        .agg(pl.col("compute_ns").sum())
    )
    begun = pauses.select("lane", pause_ns="start_ns")
    paused = parts.join(begun, on="lane").filter(pl.col("pause_ns").is_between("start_ns", "end_ns"))
    length = pl.col("end_ns") - pl.col("start_ns")
    return (
        parts.join(paused, on=parts.columns, how="anti")
        .sort(length)
        .group_by("lane", "part", maintain_order=True)
        .agg(
            time_ns=length.sum(),
            longest_start_ns=pl.col("start_ns").last(),
            longest_end_ns=pl.col("end_ns").last(),
        )
        .join(computed, on=["lane", "part"], how="left")
        .with_columns(pl.col("compute_ns").fill_null(0))
        .sort("lane", "part")
        .pipe(conform, COVERAGE)
    )


def _clip_to_steps(steps: pl.DataFrame, compute_segments: pl.DataFrame) -> pl.DataFrame:
    """Keep the compute segments inside steps, with the run's step numbers; by lane and start."""
    steps = steps.sort("lane", "start_ns")  # numbers repeat after a restart, so they are no order
    lane, start = whole_numbers(compute_segments["lane"]), compute_segments["start_ns"].to_numpy()
    step = find_last(lane, start, whole_numbers(steps["lane"]), steps["start_ns"].to_numpy())
    until = steps["end_ns"].to_numpy()
    rows = order_rows(lane, start)
    rows = rows[step[rows] >= 0]
    rows = rows[start[rows] < until[step[rows]]]
    end_ns = np.minimum(compute_segments["end_ns"].to_numpy()[rows], until[step[rows]])
    spans = index_rows(steps.select("step"), step[rows])
    kept = index_rows(compute_segments[["lane", "start_ns", "compute_ns"]], rows)
    return kept.hstack([pl.Series("end_ns", end_ns), *spans])


def _find_message_peers(waits: pl.DataFrame, transfers: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Find the peer lane of each needed message, the start of its kernel, and the error of that time.

    For a kernel with several messages, the last peer to start counts; a buffered send has no wait.

    Args:
        waits: For messages.
        transfers: Between lanes whose times can be compared.
        messages: `LANE_MESSAGES`.
    """
    received = transfers.select(
        lane="receiver", need_start_ns="receive_start_ns", need_end_ns="receive_end_ns",
        peer_start_ns="send_start_ns", bound_ns="bound_ns", waits_for="sender",
    )  # fmt: skip
    sent = transfers.filter(~pl.col("is_buffered")).select(
        lane="sender", need_start_ns="send_start_ns", need_end_ns="send_end_ns",
        peer_start_ns="receive_start_ns", bound_ns="bound_ns", waits_for="receiver",
    )  # fmt: skip
    sides = pl.concat([received, sent])
    wait = find_equal_rows(_read_needs(waits), _read_needs(sides))
    needed = np.flatnonzero(wait >= 0)
    start, lane = (numbers(sides[name])[needed] for name in ("peer_start_ns", "waits_for"))
    order = needed[np.lexsort((-lane, start))]  # of peers that began together, the first lane is the last
    last = np.full(len(waits), -1)
    last[wait[order]] = order  # numpy keeps the last of several values assigned to one index
    ends = [
        transfers.select(lane=role, need_start_ns=f"{verb}_start_ns", need_end_ns=f"{verb}_end_ns")
        for role, verb in (("sender", "send"), ("receiver", "receive"))
    ]
    paired = pl.concat(ends).group_by(_OPERATION).agg(paired=pl.len())
    kernels = messages.group_by("lane", need_start_ns="start_ns", need_end_ns="end_ns").agg(count=pl.len())
    partial = kernels.join(paired, on=_OPERATION).filter(pl.col("paired") < pl.col("count"))
    return index_rows(sides, last[last >= 0]).join(
        partial.select(*_OPERATION, is_complete=pl.lit(value=False)),
        on=_OPERATION,
        how="left",
        maintain_order="left",
    )


def _read_needs(rows: pl.DataFrame) -> list[Int64s]:
    """Return lane, start and end of the operation of each row."""
    return [numbers(rows[name]) for name in _OPERATION]


def _find_steps(steps: pl.DataFrame, rows: pl.DataFrame) -> Int64s:
    """Find the step with lane and number of each row, the first of several; -1 without one."""
    (of_lane, of_step), (lane, step) = (
        (whole_numbers(frame["lane"]), whole_numbers(frame["step"])) for frame in (steps, rows)
    )
    return find_pairs(of_lane, of_step, lane, step)


def _split_waits(waits: pl.DataFrame) -> pl.DataFrame:
    """Split the waits for messages and collectives at the start of the peer's kernel, if it is well known."""
    start, end = pl.col("need_start_ns"), pl.col("need_end_ns")
    first, last = (pl.col("peer_start_ns") + sign * pl.col("bound_ns") for sign in (-1, 1))
    open_ns = last.clip(start, end) - first.clip(start, end)
    is_known = (open_ns <= _MAX_OPEN * (end - start)).fill_null(value=False)
    is_complete = pl.col("is_complete").fill_null(value=True)
    need = whole_numbers(waits["need"])
    waiting, transferring, either = (gather(causes, need) for causes in (_WAITING, _TRANSFERRING, _EITHER))
    edges = waits.with_columns(
        waiting=waiting,
        cause=pl.coalesce("cause", pl.when(is_known & is_complete).then(transferring).otherwise(either)),
        wait_end_ns=pl.when(is_known).then("peer_start_ns").otherwise("start_ns").clip("start_ns", "end_ns"),
    )
    return pl.concat(
        [
            edges.select(*_STEP, "start_ns", end_ns="wait_end_ns", cause="waiting", waits_for="waits_for"),
            edges.select(
                *_STEP, "end_ns", start_ns="wait_end_ns", cause="cause", waits_for=pl.lit(None, pl.UInt32)
            ),
        ],
        how="diagonal",
    )


def _cut_at_positions(lane_states: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Sort states, cut them at changes of position, and join equal neighbours."""
    start, end = (lane_states[name].to_numpy() for name in ("start_ns", "end_ns"))
    order = order_rows(whole_numbers(lane_states["lane"]), start)
    warm, cool, is_known = _find_position_changes(lane_states, jobs)
    edges = np.stack([start[order], warm[order], cool[order], end[order]], axis=1)
    piece, position = np.divmod(np.flatnonzero(edges[:, :-1] < edges[:, 1:]), edges.shape[1] - 1)
    start, end = edges[piece, position], edges[piece, position + 1]
    state = order[piece]
    position = np.where(is_known[state], position, len(_POSITIONS) - 1)
    is_new = np.append(-1, end)[:-1] != start
    for values in (
        position,
        *(whole_numbers(lane_states[name])[state] for name in (*_STEP, "cause", "waits_for")),
    ):
        is_new[1:] |= values[1:] != values[:-1]
    first = np.flatnonzero(is_new)
    last = np.append(first[1:], len(start))[: len(first)] - 1
    return index_rows(lane_states[[*_STEP, "cause", "waits_for"]], state[first]).hstack(
        [
            pl.Series("start_ns", start[first]),
            pl.Series("end_ns", end[last]),
            gather(_POSITIONS, position[first]),
        ]
    )


def _find_position_changes(lane_states: pl.DataFrame, jobs: pl.DataFrame) -> tuple[Int64s, Int64s, Bools]:
    """Find the changes of position inside each state: first backward and end of the last forward of its step.

    Returns:
        Start of the steady position, start of the cool-down, and mask of states in steps with forwards or
        backwards.
    """
    is_backward = pl.col("kind").is_in(["backward", "forward_backward"])
    is_forward = pl.col("kind").is_in(["forward", "forward_backward"])
    turns = (
        jobs.select(*_STEP, "kind", "compute_start_ns", "start_ns", "compute_end_ns", "end_ns")
        .filter((is_backward | is_forward) & pl.col("step").is_not_null())
        .group_by(_STEP)
        .agg(
            first_ns=pl.coalesce("compute_start_ns", "start_ns").filter(is_backward).min(),
            last_ns=pl.coalesce("compute_end_ns", "end_ns").filter(is_forward).max(),
        )
    )
    row = _find_steps(turns, lane_states)
    first, last = (pick(numbers(turns[name]), row, NEVER) for name in ("first_ns", "last_ns"))
    start, end = (lane_states[name].to_numpy() for name in ("start_ns", "end_ns"))
    warm, cool = (
        np.where(turn == NEVER, absent, turn).clip(start, end)
        for turn, absent in ((first, start), (last, end))
    )
    return warm, np.maximum(warm, cool), (first != NEVER) | (last != NEVER)


# greatest error of two clocks for the search of members: a wider one would join unrelated collectives
MAX_BOUND_NS = 250_000

_CLOSE_NS = 5_000
_SAMPLE = 40  # collectives of a stream compared to find its members
_ENOUGH = 10  # of them to measure how closely they end together
_BLOCK_ROWS = 1 << 20  # pairs of collectives that are compared at a time, for memory
_CLOCKS = ("clock", "bound_ns", "clock_set")


def pair_members(events: pl.DataFrame, captured: pl.DataFrame) -> pl.DataFrame:
    """Pair streams of different lanes with the same collectives (stream, other).

    Only collectives that ended during the capture of the other lane count.

    Args:
        events: Collectives by end: stream, lane, name, communicator, end_ns, clock, bound_ns, clock_set.
        captured: lane, first_ns, last_ns: span of the capture of each lane.
    """
    recorded = _list_streams(events).filter(pl.col("communicator").is_not_null())
    pairs = recorded.join(recorded, on=["communicator", "name"], suffix="_of_other")
    same_communicator = pairs.filter(pl.col("lane") != pl.col("lane_of_other")).select(
        "stream", other="stream_of_other"
    )
    unrecorded = events.filter(pl.col("communicator").is_null())
    if unrecorded.is_empty():
        return same_communicator
    most = _count_common(unrecorded, captured)
    # members end closest together, except for a constant offset of their clocks within the bounds
    for name in ("apart_ns", "spread_ns"):
        least = most.group_by("stream").agg(pl.col(name).min(), pl.col("sampled").first())
        # Few collectives may be close together by chance; other streams show the usual distance.
        usual_ns = least.select(pl.col(name).filter(pl.col("sampled") >= _ENOUGH).median()).item()
        of_few = SKEW_NS / pl.col("sampled") if usual_ns is None else pl.lit(4 * usual_ns)
        margin = pl.when(pl.col("sampled") < _ENOUGH).then(of_few).otherwise(0)
        most = most.filter(pl.col(name) <= 4 * pl.col(name).min().over("stream") + _CLOSE_NS + margin)
    return pl.concat([same_communicator, most.select("stream", "other")])


def list_hidden(events: pl.DataFrame) -> pl.DataFrame:
    """List the streams that may have further members, on clocks that are not known well enough.

    Stream, is_hidden.
    """
    streams = (
        _list_streams(events).filter(pl.col("communicator").is_null()).select("stream", "name", *_CLOCKS)
    )
    clocks = streams.drop("stream").unique()  # of many lanes, few are distinct
    is_near = relative_bound("_of_other") <= MAX_BOUND_NS
    is_near &= pl.col("clock_set") == pl.col("clock_set_of_other")
    pairs = clocks.join(clocks, on="name", suffix="_of_other").filter(~is_near)
    hidden = streams.join(pairs.select("name", *_CLOCKS).unique(), on=["name", *_CLOCKS], nulls_equal=True)
    return hidden.select("stream", is_hidden=pl.lit(value=True)).unique()


def _list_streams(events: pl.DataFrame) -> pl.DataFrame:
    """List the streams of events: stream, lane, name, communicator, clock, bound_ns, clock_set."""
    first, _ = find_distinct(numbers(events["stream"]))
    return index_rows(events.select(("stream", "lane", "name", "communicator", *_CLOCKS)), first)


def _count_common(events: pl.DataFrame, captured: pl.DataFrame) -> pl.DataFrame:
    """Compare sampled collectives of each stream with collectives of other lanes that end at the same time.

    Args:
        events: Collectives without a communicator; as in `pair_members`.
        captured: As in `pair_members`.

    Returns:
        stream, other, of streams whose collectives mostly end together: apart_ns (usual distance of the ends,
            without the error of
        the clocks), spread_ns (of these distances), sampled (number of compared collectives).
    """
    _, name = find_distinct(numbers(events["name"]))
    lane, stream, end, clock, bound, clock_set = (
        numbers(events[column]) for column in ("lane", "stream", "end_ns", *_CLOCKS)
    )
    reach = SKEW_NS + MAX_BOUND_NS
    # by name, then end; as far apart as no two ends of one name that are compared
    span = int(end.max()) - int(end.min()) + 2 * reach + 2
    place = name * span + (end - end.min())
    order = np.argsort(place, kind="stable")
    ordered = place[order]
    number, count = pl.int_range(pl.len()).over("stream"), pl.len().over("stream").cast(pl.Int64)
    turn, before = ((at * _SAMPLE) // count for at in (number, number - 1))
    is_sampled = events.select((number == 0) | (turn != before)).to_series()  # evenly
    sample = np.flatnonzero(is_sampled.to_numpy())
    sample = sample[np.argsort(stream[sample], kind="stable")]
    first = np.searchsorted(ordered, place[sample] - reach)
    last = np.searchsorted(ordered, place[sample] + reach, side="right")
    sampled = events[["stream", "end_ns"]][sample]
    spans = events.select("lane", other="stream").unique().join(captured, on="lane").drop("lane")
    parts = []
    for block in divide_groups(stream[sample], last - first, _BLOCK_ROWS):
        own = np.repeat(sample[block], (last - first)[block])
        to = order[expand_windows(first[block], last[block])]
        is_other = (lane[own] != lane[to]) & (clock_set[own] == clock_set[to])
        own, to = own[is_other], to[is_other]
        error = np.where(clock[own] == clock[to], 0, bound[own] + bound[to]).clip(max=MAX_BOUND_NS)
        common = {
            "own": own,
            "stream": stream[own],
            "other": stream[to],
            "apart_ns": end[own] - end[to],
            "error_ns": error,
        }
        parts.append(_compare(pl.DataFrame(common), sampled, spans))
    return pl.concat(parts)


def _compare(common: pl.DataFrame, sampled: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Compare the ends of common collectives of each two streams; result as `_count_common`.

    Args:
        common: Collectives of a stream and another one that end near each other: own (number of the first
            one), stream, other, apart_ns, error_ns.
        sampled: stream and end_ns of all sampled collectives.
        spans: other, first_ns, last_ns: span of the capture of each stream.
    """
    pair, apart = ["stream", "other"], pl.col("apart_ns")
    pairs = (
        common.cast(dict.fromkeys(pair, pl.UInt32))
        .filter(apart.abs() <= SKEW_NS + pl.col("error_ns"))
        .filter(apart.abs() == apart.abs().min().over("own", "other"))  # buckets may follow each other soon
        .group_by(pair)
        .agg(
            pl.col("error_ns").first(),
            usual_ns=apart.abs().median(),
            spread_ns=(apart - apart.median()).abs().median(),
            count=pl.len(),
        )
        .join(spans, on="other")
    )
    is_common = pl.col("end_ns").is_between("first_ns", "last_ns")
    counts = sampled.join(pairs, on="stream").group_by(pair).agg(sampled=is_common.sum().cast(pl.Int64))
    mostly = pairs.join(counts, on=pair).filter(pl.col("count") >= (MOSTLY * pl.col("sampled")).floor())
    usual = (pl.col("usual_ns") - pl.col("error_ns")).clip(0)
    return mostly.sort(pair).select(*pair, "spread_ns", "sampled", apart_ns=usual)


_CHANNEL = ["lane", "channel", "name", "communicator"]
LAST_MEMBERS = build_schema(
    {  # one row per collective of which a member is found
        "lane": pl.UInt32,
        "need_start_ns": pl.Int64,
        "need_end_ns": pl.Int64,
        "peer_start_ns": pl.Int64,  # start of the last other member found
        "bound_ns": pl.Int64,  # error of that start on the clock of `lane`
        "waits_for": pl.UInt32,  # its lane
        "is_complete": pl.Boolean,  # no further member is in the reports
    },
    name="LAST_MEMBERS",
)
_REQUESTED = (
    *("request", "stream", "ordinal", "need_start_ns", "need_end_ns"),
    *("clock", "bound_ns", "clock_set"),
)
_LAST = build_schema(
    {  # one row per request of which a member is found
        "request": pl.UInt32,
        "peer_start_ns": pl.Int64,
        "waits_for": pl.UInt32,
        "its_clock": pl.UInt32,
        "its_bound": pl.Int64,
        "member_count": pl.UInt32,
    },
    name="_LAST",
)


def find_last_members(needed: pl.DataFrame, *, lanes: pl.DataFrame, anchors: pl.DataFrame) -> pl.DataFrame:
    """Find the last other member to start each collective, and the start of its kernel (`LAST_MEMBERS`).

    The members are the lanes of the NCCL communicator; where it is not recorded, the streams of other lanes
    with collectives of the same name that nearly always end at the same time.

    Args:
        needed: lane, need_start_ns, need_end_ns of collectives.
        lanes: `LANES`.
        anchors: `LANE_ANCHORS`. Kernels that send and receive are not asked: ranks that exchange with others
            in lockstep end together, too.
    """
    of_kind = anchors.filter(pl.col("kind") == "collective")
    if of_kind.is_empty() or needed.is_empty():
        return LAST_MEMBERS.to_frame()
    events = _list_events(of_kind, lanes)
    captured = anchors.group_by("lane").agg(first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())
    members = pair_members(events, captured).sort("stream", maintain_order=True)
    requested = needed.join(
        events,
        left_on=["lane", *_SPAN_OF_NEED],
        right_on=["lane", "start_ns", "end_ns"],
        maintain_order="left",
    ).with_row_index("request")
    counts = np.bincount(numbers(requested["stream"]), minlength=len(events))
    own = numbers(members["stream"])
    last = pl.concat(
        [
            _LAST.to_frame(),
            *(
                _find_last(members[block], requested, events)
                for block in divide_groups(own, counts[own], _BLOCK_ROWS)
            ),
        ]
    )
    known = members.group_by("stream").agg(known_count=pl.len())
    found = (
        requested.join(last, on="request", maintain_order="left")
        .join(known, on="stream", maintain_order="left")
        .join(list_hidden(events), on="stream", how="left", maintain_order="left")
    )
    return found.with_columns(
        bound_ns=_sum_bounds(),
        is_complete=(pl.col("member_count") == pl.col("known_count")) & pl.col("is_hidden").is_null(),
    ).pipe(conform, LAST_MEMBERS)


def number_collectives(anchors: pl.DataFrame, *, lanes: pl.DataFrame) -> pl.DataFrame:
    """Number the collectives of all lanes: equal for the members of one, as `find_last_members` finds them.

    Args:
        anchors: `LANE_ANCHORS` of collectives. An exchange of all with all is one, too, if it ends together.
        lanes: `LANES`.

    Returns:
        lane, start_ns, end_ns, number; in any order.
    """
    events = _list_events(anchors, lanes).with_row_index("request")
    captured = anchors.group_by("lane").agg(first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())
    leaders = pair_members(events, captured).group_by("stream").agg(pl.col("other").min())
    matched = _match(
        leaders.filter(pl.col("other") < pl.col("stream")),
        events.rename({"start_ns": "need_start_ns", "end_ns": "need_end_ns"}),
        events,
    )
    led = matched.join(
        events.select("stream", "ordinal", number="request"),
        left_on=["other", "at"],
        right_on=["stream", "ordinal"],
    )
    number = np.arange(len(events))
    number[led["request"].to_numpy()] = led["number"].to_numpy()
    while (number != number[number]).any():  # the first stream may be led by another one
        number = number[number]
    return events.select("lane", "start_ns", "end_ns", number=pl.Series(number))


def _list_events(anchors: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """List collectives by end, with their stream, its clock, and their ordinal in it."""
    clocks = lanes.select(
        "lane", "clock", pl.col("bound_ns").fill_null(0), clock_set=number_comparable(lanes)
    )
    keyed = anchors.join(clocks, on="lane", maintain_order="left")
    streams = keyed.select(_CHANNEL).unique(maintain_order=True).with_row_index("stream")
    keyed = keyed.join(streams, on=_CHANNEL, nulls_equal=True, maintain_order="left").select(
        "stream", "lane", "name", "communicator", "start_ns", "end_ns", "clock", "bound_ns", "clock_set"
    )
    # by start, so that equal rows of two streams keep a fixed order
    numbered = keyed.sort("start_ns", maintain_order=True).with_columns(
        ordinal=pl.int_range(pl.len()).over("stream")
    )
    return numbered.sort("end_ns", maintain_order=True)


def _sum_bounds() -> pl.Expr:
    """Return the error of times of the other member on the clock of a request: 0 on one clock."""
    return (
        pl.when(pl.col("clock") == pl.col("its_clock"))
        .then(0)
        .otherwise(pl.col("bound_ns") + pl.col("its_bound"))
    )


_MATCHED = ("other", "at", "peer_start_ns", "waits_for", "its_clock", "its_bound")


def _find_last(members: pl.DataFrame, requested: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Find the last member of each request (`_LAST`): of members that began together, the first lane.

    Arguments as `_match`.
    """
    matched = _match(members, requested, events).select(
        "request", *(name for name in _LAST if name in _MATCHED)
    )
    return (
        matched.filter(pl.col("peer_start_ns") == pl.col("peer_start_ns").max().over("request"))
        .sort("waits_for")
        .unique("request", keep="first", maintain_order=True)
        .join(matched.group_by("request").agg(member_count=pl.len()), on="request")
        .pipe(conform, _LAST)
    )


def _match(members: pl.DataFrame, requested: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Match collectives with those of other streams: request, and the columns `_MATCHED` of the other one.

    The kernel of another member ends together with the request. A few end much later than others: such a
    collective is as far after (or before) the last (or next) matched collective of its stream as that of the
    other member in the other stream.

    Args:
        members: stream, other: streams, and for each another stream with the same collectives.
        requested: Collectives, with their stream and ordinal.
        events: All collectives, by end.
    """
    pairs = ["stream", "other"]
    others = events.select(
        other="stream", at="ordinal", peer_start_ns="start_ns", peer_end_ns="end_ns", waits_for="lane",
        its_clock="clock", its_bound="bound_ns", its_set="clock_set",
    )  # fmt: skip
    rows = members.join(requested.select(_REQUESTED), on="stream").sort("need_end_ns")
    near = rows.join_asof(
        others, left_on="need_end_ns", right_on="peer_end_ns", by="other", strategy="nearest",
        check_sortedness=False, coalesce=False,
    )  # fmt: skip
    near = near.filter(pl.col("clock_set") == pl.col("its_set")).with_columns(
        reach_ns=SKEW_NS + _sum_bounds().clip(upper_bound=MAX_BOUND_NS)
    )
    is_same = (pl.col("need_end_ns") - pl.col("peer_end_ns")).abs() <= pl.col("reach_ns")
    same = near.filter(is_same)
    # few pairs of streams have others
    apart = near.join(near.filter(~is_same).select(pairs).unique(), on=pairs, how="semi").sort(
        *pairs, "ordinal"
    )
    shifts = apart.with_columns(shift=pl.when(is_same).then(pl.col("at") - pl.col("ordinal")))
    before, after = pl.col("shift").forward_fill().over(pairs), pl.col("shift").backward_fill().over(pairs)
    shift = pl.when(before.is_null() | (before == after)).then(after).when(after.is_null()).then(before)
    rest = shifts.select(*rows.columns, "reach_ns", "shift", to=pl.col("ordinal") + shift).filter(
        pl.col("shift").is_null()
    )
    late = rest.join(others, left_on=["other", "to"], right_on=["other", "at"], coalesce=False).filter(
        pl.col("peer_start_ns") - pl.col("reach_ns") <= pl.col("need_end_ns"),
        pl.col("peer_end_ns") + pl.col("reach_ns") >= pl.col("need_start_ns"),
    )
    return pl.concat([matched.select("request", *_MATCHED) for matched in (same, late)])
