"""Sends and receives: those of each point-to-point kernel of a report, and their pairs over all lanes.

A pair needs a peer and an order. The peer of a message is the rank that NCCL recorded, or that its name
holds; else the lane of the same slice in the stage that the message comes from or goes to. Of two lanes
alone, each is the other's peer. Directions, parts of the model and micro-batches that names do not tell are
those of jobs, which send and receive in their order. Messages from one lane to another keep their order, so
the n-th send belongs to the n-th receive, but for messages that one side lacks: captures begin and end at
different times, or lose events. Micro-batches, positions in steps, or ends tell how many are missing.

One test checks the result: the kernels of a send and of its receive end together. Where `--layout`, names or
NCCL tell the peer, pairs are dropped if their ends contradict it. Where several lanes may be the peer, or
stages are inferred, pairs are kept only if their ends agree, and those of no other lane do. A wrong pair is
worse than none. Calls of MPI are paired by communicator, ranks, tag and order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    gather_rows,
    is_among,
    numbers,
    pick,
)
from nsys_pp.arrays.intervals import find_unmarked
from nsys_pp.arrays.search import find_last, find_rows
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.clock import CLOCK, SKEW_NS, is_comparable, is_same_clock, relative_bound
from nsys_pp.frames.conform import build_frame, conform
from nsys_pp.frames.report import POINT_TO_POINT
from nsys_pp.frames.roster import list_missing_ranks
from nsys_pp.frames.training import (
    DIRECTION,
    DOUBTFUL,
    DOUBTFUL_TEXTS,
    FIRST_FORWARDS,
    MESSAGE_KINDS,
    MESSAGES,
    MPI_PAIRS,
    TRANSFERS,
    UNPAIRED,
)
from nsys_pp.training.jobs import find_step_rows
from nsys_pp.training.lanes import count_stages, find_nccl_peers
from nsys_pp.training.launched import DEVICE, LaunchedOps
from nsys_pp.training.names import HALVES
from nsys_pp.units import format_count

_OF_OPERATION = ("process_key", "device_id", "context_id", "stream_id", "op_id", "start_ns", "end_ns")
_NAMED = ("direction", "micro_batch", "chunk", "virtual_stage")


def find_messages(
    launched_ops: LaunchedOps,
    *,
    requests: pl.DataFrame,
    jobs: pl.DataFrame,
    halves: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Find the sends and receives of each point-to-point kernel.

    The verb is from the NCCL request; where none is recorded, from the innermost message job around the
    kernel's launch. Direction and micro-batch are from the name of this job. A job that both sends and
    receives has them for each half, which are unknown for a kernel with several sends or receives.

    Args:
        launched_ops: Operations of the report.
        requests: `REQUESTS`.
        jobs: `JOBS`.
        halves: `HALVES`, of the names of jobs that both send and receive; None: these are unknown.

    Returns:
        `MESSAGES` by start; `step` is null. A kernel without a request and without a job has one row
        without a verb. Empty without point-to-point kernels.
    """
    verbs = {"Send": "send", "Recv": "receive"}
    requested = requests.filter(pl.col("call").cast(pl.String).is_in(list(verbs))).select(
        *("op_id", "communicator", "rank", "peer", "size_bytes"),
        verb=pl.col("call").cast(pl.String).replace_strict(verbs, default=None),
        source=pl.lit("NCCL"),
    )
    is_message = launched_ops.names.match(POINT_TO_POINT)
    is_message[requested["op_id"].to_numpy()] = True
    rows = np.flatnonzero(is_message & launched_ops.is_communication & launched_ops.is_kernel)
    if not len(rows):
        return MESSAGES.to_frame()
    rows = rows[np.argsort(launched_ops.start[rows], kind="stable")]
    job = _find_jobs(rows, jobs, launched_ops)
    kind = pl.col("kind").cast(pl.String)
    is_both = (kind == "send_receive").fill_null(value=False)
    kernels = (
        build_frame(
            [
                *gather_rows(launched_ops.gpu_ops, _OF_OPERATION, rows),
                as_numbers("launch_ns", launched_ops.launch[rows]),
                *gather_rows(jobs, ("kind", "name", *_NAMED, "own_rank", "peer"), job),
            ]
        )
        .rename({"own_rank": "named_rank", "peer": "named_peer"})
        .with_row_index("kernel")
        .with_columns(
            pl.col("name").cast(pl.String), *(pl.when(~is_both).then(name).alias(name) for name in _NAMED)
        )
    )
    by_name = pl.when(is_both).then(pl.lit("send receive")).when(kind == "receive").then(kind)
    named = kernels.join(requested, on="op_id", how="anti").with_columns(
        verb=by_name.when(kind.is_not_null()).then(pl.lit("send")).str.split(" "),
        source=pl.when(kind.is_not_null()).then(pl.lit("name")),
    )
    both = pl.concat([kernels.join(requested, on="op_id"), named.explode("verb")], how="diagonal")
    of_kernel = pl.col("verb").n_unique().over("kernel"), pl.len().over("kernel")
    both = both.sort("kernel", maintain_order=True).with_columns(
        half=pl.when(is_both, *(count == 2 for count in of_kernel)).then("verb")
    )
    of_halves = pl.concat(
        (HALVES.to_frame() if halves is None else halves).select(
            pl.col("name").cast(pl.String),
            *(pl.col(f"{verb}_{name}").alias(name) for name in _NAMED),
            half=pl.lit(verb),
        )
        for verb in verbs.values()
    )
    return (
        both.join(of_halves, on=["name", "half"], how="left", maintain_order="left", suffix="_of_half")
        .with_columns(
            *(pl.coalesce(name, f"{name}_of_half").alias(name) for name in _NAMED),
            *(
                pl.when(pl.col("communicator").is_null()).then(f"named_{name}").otherwise(name).alias(name)
                for name in ("rank", "peer")
            ),
            step=pl.lit(None, pl.Int64),
        )
        .pipe(conform, MESSAGES)
    )


def assign_message_steps(messages: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Assign each message to the step in which its kernel was launched.

    A receive that is posted early begins before the first kernel of its step. Where the launch is unknown, or
    before all steps, as in a step whose begin is not recorded, the start of the kernel counts.

    Args:
        messages: `MESSAGES`.
        steps: `STEPS`.

    Returns:
        The same rows in the same order with `step`, null outside all steps.
    """
    row = find_step_rows(messages.hstack([messages["launch_ns"].alias("host_start_ns")]), steps)
    row[numbers(messages["launch_ns"]) == NEVER] = -1
    if (row < 0).any():  # of most runs, none: a second search of all messages
        first = steps.group_by(DEVICE).agg(first_ns=pl.col("host_start_ns").min())
        begun = messages.join(first, on=DEVICE, how="left", nulls_equal=True, maintain_order="left")
        is_outside = (pl.col("launch_ns") >= pl.col("first_ns")).fill_null(value=False)
        is_open = (row < 0) & ~begun.select(is_outside).to_series().to_numpy()
        row = np.where(is_open, find_step_rows(messages, steps), row)
    return messages.with_columns(as_numbers("step", pick(numbers(steps["step"]), row, NEVER)))


def _find_jobs(rows: Int64s, jobs: pl.DataFrame, ops: LaunchedOps) -> Int64s:
    """Find the innermost message job around the launch of each operation: a row of `JOBS`, -1 without one."""
    thread, launch, launch_end = ops.thread[rows], ops.launch[rows], ops.launched[rows]
    range_id = numbers(jobs["range_id"])
    ranges = np.flatnonzero(
        np.diff(range_id, prepend=range_id[:1] - 1)
    )  # one row of each range, which has a row per device
    columns = ("thread_key", "host_start_ns", "host_end_ns", "outer_id")
    of_thread, start, end, outer_id = (numbers(jobs[name])[ranges] for name in columns)
    nearest = find_last(thread, launch, of_thread, start)
    above = find_rows(range_id[ranges], outer_id)
    is_message = is_among(jobs["kind"], MESSAGE_KINDS)[ranges]
    around = np.append(find_unmarked(above, ~is_message), -1)
    row = np.where(np.append(is_message, True)[nearest], nearest, around[nearest])
    row[np.append(end, NEVER)[row] < launch_end] = -1  # messages are not inside each other
    return np.append(ranges, -1)[row]


_NCCL_PEER, _NAMED_PEER = "peer and order", "named peer and order"
_ONLY, _STAGES = "only peer and order", "stages and order"
_SLICE = ("replica", "tensor")
_OTHER = "_of_receive"  # suffix of the columns of the receive of a pair
# Least share of the pairs of a channel, or of two streams, that end together if it is right. A kernel of
# several messages does not.
MOSTLY = 0.8
_FEW = 5  # pairs below which ends that differ, or agree, may be chance
_RECOGNISED = (
    0.3  # share of the sends of a channel whose receive is recognised, from which the rest is counted
)
_MOST_LANES = 16  # lanes that may be the peer of one message: more are not tried, for memory
_OF_PAIR = (  # a message may have many candidates: their other columns would take most of the memory
    *("row", "lane", "stage", "verb", "direction", "micro_batch", "size_bytes", "link", "is_grouped"),
    *("step", "has_first", "has_last", "issue_ns", "start_ns", "end_ns", *CLOCK),
)
_COMPARED = (
    "send_wait_ns",
    "receive_wait_ns",
    "transfer_ns",
    "is_buffered",
    "bound_ns",
)  # times of both lanes
_MPI_CHANNEL = ["communicator", "sender", "receiver", "tag"]
_MPI_SIDE = [*_MPI_CHANNEL, "is_send"]
_RECORD = ", or record NCCL's peers with `nsys profile --trace=cuda,nvtx,nccl`"


class Topology(Struct, frozen=True, kw_only=True):
    """Order in which a micro-batch visits the stages.

    Attributes:
        stages: Number of stages; 0 where the stage of a lane is unknown.
        is_line: The model is surely not cut into more parts than stages: messages are between neighbours, and
            none leaves the first or the last stage outward.
        is_folded: The model runs along the stages and back (DualPipeV). Neither line nor folded: it loops.
        is_sure: Chunks are known where the model is cut into more parts than stages.
    """

    stages: int
    is_line: bool = False
    is_folded: bool = False
    is_sure: bool = True


def pair_messages(
    *, lanes: pl.DataFrame, messages: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame
) -> tuple[pl.DataFrame, list[str]]:
    """Pair sends and receives of all lanes.

    The wait of a kernel is its time before the start of the peer's kernel; the rest of a receive is the
    transfer. The send of a small message may be buffered: it ends before the receive begins, and has no wait.

        send       [ wait |              )
        receive           [   transfer   )

    Args:
        lanes: `LANES`.
        messages: `LANE_MESSAGES`.
        steps: `RUN_STEPS`.
        jobs: `RUN_JOBS`, for the layout of the model along the stages.

    Returns:
        `TRANSFERS` by send_start_ns, and notes on messages without a pair.
    """
    if messages.is_empty():
        return TRANSFERS.to_frame(), []
    topology = find_topology(lanes, messages, jobs, steps)
    is_named = messages["direction"].count() > 0
    expected = _expect_messages(jobs, lanes, topology, is_named=is_named)
    named = _name_by_jobs(messages, steps, expected, ["lane", "verb", *["direction"] * is_named])
    located = _mark_step_edges(_locate(lanes, named, topology), steps)
    # in a fold, and where jobs overlap, messages of both directions to a lane overtake each other
    is_ordered = not topology.is_folded and not is_among(jobs["kind"], ("forward_backward",)).any()
    peers = _list_peers(located, lanes, topology)
    matched = _match(located.select(_OF_PAIR).join(peers, on="row", maintain_order="left"))
    pairs = _check(matched.with_columns(pl.col("is_sure") & (pl.col("direction").is_not_null() | is_ordered)))
    agreeing = pairs.filter(~pl.col("is_refuted"))
    # of several lanes that may be the peer, one may fit, for all messages
    is_one = pl.col("is_sure") | (pl.col(f"lane{_OTHER}").n_unique().over("lane", f"stage{_OTHER}") == 1)
    is_one &= pl.col("is_sure") | (pl.col("lane").n_unique().over(f"lane{_OTHER}", "stage") == 1)
    single = agreeing.filter(is_one, *(pl.len().over(name) == 1 for name in ("row", f"row{_OTHER}")))
    transfers = _build_transfers(single)
    return transfers, _describe(located, peers, pairs, transfers, lanes)


def find_topology(
    lanes: pl.DataFrame, messages: pl.DataFrame, jobs: pl.DataFrame, steps: pl.DataFrame
) -> Topology:
    """Find the order of the stages: a line, a loop, or a fold.

    Second chunks run back if their virtual stages do or, where these are unknown, if all forward sends of the
    last stage are from its second chunk. In a line, the last stage sends nothing forward, and the first
    receives nothing. In a loop, the first stage sends more forward in a step than it receives, and the last
    one less; in a fold, both send as much as they receive.

    Args:
        lanes: `LANES`.
        messages: `LANE_MESSAGES`.
        jobs: `RUN_JOBS`.
        steps: `RUN_STEPS`.
    """
    count = 0 if lanes["stage"].has_nulls() else count_stages(lanes)
    stages = lanes.select("lane", "stage")
    for frame in (jobs, messages) if count else ():
        second = frame.select("lane", "virtual_stage").filter(pl.col("virtual_stage") >= count)
        if len(second):
            is_back = pl.col("virtual_stage") == 2 * count - 1 - pl.col("stage")
            share = second.join(stages, on="lane").select(is_back.mean()).item()
            return Topology(stages=count, is_folded=share > 0.5)
    forward = (
        messages.select("lane", "step", "verb", "direction", "chunk")
        .filter(direction="forward")
        .join(stages, on="lane")
    )
    last = forward.filter(verb="send", stage=count - 1)
    if count == 0 or len(last):
        chunks = last["chunk"].drop_nulls()
        is_folded = len(chunks) > 0 and bool((chunks == 1).all())
        whole = forward.join(steps.filter(~pl.col("is_partial")), on=["lane", "step"], how="semi")
        way = pl.when(pl.col("stage") == 0).then(1).when(pl.col("stage") == count - 1).then(-1)
        excess = way * pl.when(pl.col("verb") == "send").then(1).when(pl.col("verb") == "receive").then(-1)
        ends = whole.filter(way.is_not_null()).group_by("lane", "step").agg(excess=excess.sum())
        is_loop = len(ends) > 0 and bool((ends["excess"] > 0).all())
        return Topology(stages=count, is_folded=is_folded, is_sure=len(chunks) > 0 or is_loop)
    has_chunks = any(bool((frame["chunk"] > 0).any()) for frame in (jobs, messages))
    is_known = len(forward) > 0 or jobs["chunk"].max() == 0
    is_line = is_known and not has_chunks and forward.filter(verb="receive", stage=0).is_empty()
    return Topology(stages=count, is_line=is_line)


def _name_by_jobs(
    messages: pl.DataFrame, steps: pl.DataFrame, expected: pl.DataFrame, keys: list[str]
) -> pl.DataFrame:
    """Fill what names do not tell: direction, virtual stage and micro-batch.

    The n-th send of a step is of its n-th job that sends, and the n-th receive of its n-th job that receives.
    No message of a step is, where one is sent before its job begins, or received after it ends.

    Args:
        messages: `LANE_MESSAGES`.
        steps: `RUN_STEPS`.
        expected: From `_expect_messages`.
        keys: Columns whose messages are counted together.
    """
    rows = messages.with_row_index("row").with_columns(issue_ns=pl.coalesce("launch_ns", "start_ns"))
    marked = [_mark_step_edges(side.drop_nulls(keys), steps) for side in (rows, expected)]
    # else those of a capture and a step that contain as many messages as jobs
    equal = [
        side.with_columns(
            pl.col("step").fill_null(-1), has_first=pl.lit(value=True), has_last=pl.lit(value=True)
        )
        for side in marked
    ]
    found = pl.concat(_join_positions(sent, made, keys) for sent, made in (marked, equal)).unique(
        "row", keep="first", maintain_order=True
    )
    is_late = pl.col("start_ns") >= pl.col(f"start_ns{_OTHER}")
    is_early = pl.col("end_ns") <= pl.col(f"end_ns{_OTHER}")
    is_possible = pl.when(verb="send").then(is_late).otherwise(is_early)
    found = found.filter(is_possible.all().over(*keys, "step"))
    names = ("direction", "virtual_stage", "micro_batch")
    found = found.select("row", *(f"{name}{_OTHER}" for name in names))
    joined = rows.join(found, on="row", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce(name, f"{name}{_OTHER}").alias(name) for name in names).select(
        messages.columns
    )


def _expect_messages(
    jobs: pl.DataFrame, lanes: pl.DataFrame, topology: Topology, *, is_named: bool
) -> pl.DataFrame:
    """List the messages that jobs send and receive: columns as in messages, with the times of the job.

    The first forwards along the model receive nothing, and the last ones send nothing; in a fold, nor do
    those whose results stay on their stage. A job that is a forward and a backward sends in an unknown order:
    without directions in names, the messages of its step are unknown.
    """
    parts = pl.concat(
        jobs.filter(pl.col("kind").is_in(kinds)).select(
            *("lane", "step", "kind", "start_ns", "end_ns"),
            *(pl.col(f"{of_part}{name}").alias(name) for name in ("virtual_stage", "micro_batch")),
            issue_ns="start_ns",
            direction=pl.lit(direction, DIRECTION),
        )
        for direction, kinds, of_part in (
            ("forward", ("forward", "forward_backward"), ""),
            ("backward", ("backward",), ""),
            ("backward", ("forward_backward",), "backward_"),
        )
    ).join(lanes.select("lane", "stage"), on="lane", maintain_order="left")
    count, virtual = topology.stages, pl.col("virtual_stage")
    if topology.is_folded:
        position, last = virtual % count, pl.lit(count - 1)
    else:
        position = pl.coalesce(virtual, pl.when(topology.is_line).then("stage"))
        last = virtual.max().fill_null(0) // count * count + count - 1
    parts = parts.with_columns(position=position, last=last)
    if not is_named:
        is_known = (pl.col("kind") != "forward_backward") & pl.col("position").is_not_null()
        parts = parts.filter(is_known.all().over("lane", "step"))
    is_forward = pl.col("direction") == "forward"
    return pl.concat(
        parts.filter(
            pl.col("position") != pl.when(is_forward == (verb == "send")).then("last").otherwise(0)
        ).with_columns(verb=pl.lit(verb, MESSAGES["verb"]))
        for verb in ("send", "receive")
    )


def _locate(lanes: pl.DataFrame, messages: pl.DataFrame, topology: Topology) -> pl.DataFrame:
    """Find the stage of each message, its link, and the stage of its peer.

    Returns:
        The messages, in order, with row, issue_ns (launch, or start where it is unknown), stage, `CLOCK`,
        `SLICE`, link (virtual stage of the sender) and target (stage of the peer); null where unknown.
    """
    located = messages.with_row_index("row").join(
        lanes.select("lane", "stage", *CLOCK, *_SLICE), on="lane", how="left", maintain_order="left"
    )
    count, stage, is_send = topology.stages, pl.col("stage"), pl.col("verb") == "send"
    located = located.with_columns(
        issue_ns=pl.coalesce("launch_ns", "start_ns"), is_grouped=pl.len().over("lane", "op_id") > 1
    )
    chunk = pl.col("chunk")
    back = pl.when(chunk == 0).then(stage).when(chunk > 0).then(2 * count - 1 - stage)
    virtual = pl.coalesce("virtual_stage", back if topology.is_folded else chunk * count + stage)
    along = pl.when(pl.col("direction") == "forward").then(1).when(pl.col("direction") == "backward").then(-1)
    toward = pl.when(is_send).then(along).otherwise(-along)  # from the message to its peer
    if topology.is_folded:
        ahead, distance = virtual + toward, toward.abs()
        at_end = pl.when(stage == 0).then(distance).when(stage == count - 1).then(stage - distance)
        target = at_end.when(ahead < count).then(ahead).otherwise(2 * count - 1 - ahead)
    else:
        target = stage + toward
        target = target if topology.is_line else target % max(count, 1)
    return located.with_columns(
        link=pl.when(along.is_not_null()).then(pl.when(is_send).then(virtual).otherwise(virtual - along)),
        target=pl.when(target.is_between(0, count - 1) & pl.lit(count > 1)).then(target).cast(pl.Int64),
    )


def _mark_step_edges(messages: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add has_first and has_last: the step of a message begins, or ends, inside the capture of its lane."""
    # by time, as numbers repeat after a restart
    is_first = pl.col("start_ns") == pl.col("start_ns").min().over("lane")
    is_last = pl.col("start_ns") == pl.col("start_ns").max().over("lane")
    edges = steps.select(
        "lane",
        "step",
        has_first=~(pl.col("is_partial") & (is_first | ~is_last)),
        has_last=~(pl.col("is_partial") & (is_last | ~is_first)),
    )
    marked = messages.join(edges, on=["lane", "step"], how="left", maintain_order="left")
    return marked.with_columns(pl.col("has_first", "has_last").fill_null(value=False))


def _list_peers(messages: pl.DataFrame, lanes: pl.DataFrame, topology: Topology) -> pl.DataFrame:
    """List the lanes that may be the peer of each message.

    Args:
        messages: From `_locate`.
        lanes: `LANES`.
        topology: Of the stages.

    Returns:
        row, peer_lane, peer_source and is_sure; several rows of a message with several lanes. peer_lane is
        null where NCCL's peer has no lane.
    """
    ranks, known = lanes["rank"].drop_nulls(), messages.drop_nulls("verb")
    is_whole = len(ranks) == 0 or bool(ranks.max() == len(lanes) - 1)
    by_nccl = find_nccl_peers(messages, lanes).with_columns(
        peer_source=pl.lit(_NCCL_PEER), is_sure=pl.lit(value=True)
    )
    told = known.filter(pl.col("communicator").is_null()).drop_nulls(["rank", "peer"])
    places = told.select("lane", *_SLICE, place=pl.concat_str("rank", "peer", separator=" ")).unique()
    told = told.with_columns(target=pl.concat_str("peer", "rank", separator=" "))
    by_name = _list_neighbours(told, places, is_sure=True, is_whole=is_whole)
    rest = known.join(pl.concat([by_nccl, told.select("row")], how="diagonal"), on="row", how="anti")
    # neither stages nor their order are inferred from times
    is_sure = topology.is_sure and not (lanes["stage_source"] == FIRST_FORWARDS).any()
    places = lanes.select("lane", *_SLICE, place="stage")
    by_stage = _list_neighbours(rest.drop_nulls("target"), places, is_sure=is_sure, is_whole=is_whole)
    parts = [
        by_nccl,
        by_name.with_columns(peer_source=pl.lit(_NAMED_PEER)),
        by_stage.with_columns(peer_source=pl.lit(_STAGES)),
    ]
    both = messages["lane"].unique().sort()
    if len(both) == 2 and is_whole:
        is_sure = sorted(lanes["rank"].fill_null(-1)) == [0, 1]
        others = pl.DataFrame({"lane": both, "peer_lane": both.reverse()})
        found = rest.filter(pl.col("target").is_null()).join(others, on="lane")
        parts += [found.select("row", "peer_lane", peer_source=pl.lit(_ONLY), is_sure=pl.lit(is_sure))]
    return pl.concat(part.select("row", "peer_lane", "peer_source", "is_sure") for part in parts)


def _list_neighbours(
    messages: pl.DataFrame, places: pl.DataFrame, *, is_sure: bool, is_whole: bool
) -> pl.DataFrame:
    """List the lanes at the target of each message that may be of its slice: row, peer_lane and is_sure.

    Args:
        messages: From `_locate`, with `target`.
        places: lane, slice and place, which targets are.
        is_sure: Places and targets are known.
        is_whole: No rank of the run is missing: a place of one lane needs no slice.
    """
    own = messages.select("lane", "target", *_SLICE).unique()
    others = places.rename({"lane": "peer_lane"})
    pairs = own.join(others, left_on="target", right_on="place", suffix=_OTHER).filter(
        pl.col("lane") != pl.col("peer_lane"),
        *((pl.col(name) == pl.col(f"{name}{_OTHER}")).fill_null(value=True) for name in _SLICE),
        pl.len().over("lane", "target") <= _MOST_LANES,
    )
    is_single = is_whole and bool(places["place"].is_unique().all())
    is_known = pl.all_horizontal(pl.col(name).is_not_null() for name in _SLICE) | is_single
    found = messages.select("row", "lane", "target").join(
        pairs.with_columns(is_sure=is_known & is_sure), on=["lane", "target"]
    )
    return found.select("row", "peer_lane", "is_sure")


def _match(messages: pl.DataFrame) -> pl.DataFrame:
    """Join sends with their receives, with columns `*_of_receive`.

    The messages from one lane to another form a channel, or one per direction if all have one. Its n-th send
    is paired with receive n + shift. Pairs that are recognised define the shift, by the first way that
    recognises enough of the channel; sends between two of them with the same shift have it, too.

    Args:
        messages: From `_locate` and `_mark_step_edges`, with the columns of `_list_peers`.
    """
    is_send, ends = pl.col("verb") == "send", ["sender", "receiver"]
    known = messages.drop_nulls(["peer_lane", "verb"]).with_columns(
        sender=pl.when(is_send).then("lane").otherwise("peer_lane"),
        receiver=pl.when(is_send).then("peer_lane").otherwise("lane"),
    )
    way = pl.when(pl.col("direction").is_not_null().all().over(ends)).then("direction")
    sides = (
        known.with_columns(channel=pl.struct(*ends, way).rank("dense"))
        .drop(ends)
        .sort("channel", "issue_ns", maintain_order=True)
        .with_columns(at=pl.int_range(pl.len()).over("channel", "verb"))
    )
    sends, receives = (sides.filter(verb=verb) for verb in ("send", "receive"))
    shifts = sends.select("channel", "at", shift=pl.lit(None, pl.Int64)).clear()
    for recognise, share in ((_pair_names, 0), (_pair_positions, _RECOGNISED), (_pair_ends, _RECOGNISED)):
        rest = sends.join(shifts, on="channel", how="anti")
        agreed = _keep_agreeing(recognise(rest, receives))
        sizes = rest.group_by("channel").agg(size=pl.len())
        counts = agreed.group_by("channel").len("count").join(sizes, on="channel")
        enough = counts.filter(pl.col("count") >= share * pl.col("size"))
        shifts = pl.concat([shifts, agreed.join(enough, on="channel", how="semi")])
    above, below = (
        pl.col("shift").forward_fill().over("channel"),
        pl.col("shift").backward_fill().over("channel"),
    )
    shift = pl.when(above.is_null() | (above == below)).then(below).when(below.is_null()).then(above)
    filled = sends.join(shifts, on=["channel", "at"], how="left", maintain_order="left")
    return filled.with_columns(to=pl.col("at") + shift).join(
        receives, left_on=["channel", "to"], right_on=["channel", "at"], suffix=_OTHER, maintain_order="left"
    )


def _pair_names(sends: pl.DataFrame, receives: pl.DataFrame) -> pl.DataFrame:
    """Pair messages of the same micro-batch, step and link, the nearest of several.

    Channel, at, to, apart_ns.
    """
    # a link distinguishes messages of a channel where all have one
    sides = pl.concat([side.select("channel", "micro_batch", "link") for side in (sends, receives)])
    is_unlinked = pl.col("micro_batch").is_not_null() & pl.col("link").is_null()
    unlinked = sides.filter(is_unlinked)["channel"].unique().implode()
    keys = ["channel", "micro_batch", "step", "link"]
    own, others = (
        side.drop_nulls("micro_batch")
        .select(*keys, "at", "end_ns")
        .with_columns(
            pl.col("step").fill_null(-1),
            link=pl.when(pl.col("channel").is_in(unlinked)).then(-1).otherwise("link"),
        )
        .sort("end_ns")
        for side in (sends, receives)
    )
    others = others.rename({"at": "to"}).with_columns(other_ns="end_ns")
    near = own.join_asof(others, on="end_ns", by=keys, strategy="nearest", check_sortedness=False)
    apart = (pl.col("end_ns") - pl.col("other_ns")).abs()
    return near.drop_nulls("to").select("channel", "at", "to", apart_ns=apart)


def _pair_positions(sends: pl.DataFrame, receives: pl.DataFrame) -> pl.DataFrame:
    """Pair messages of a channel at the same position of the same step: channel, at, to, apart_ns."""
    pairs = _join_positions(sends, receives, ["channel"])
    return pairs.select("channel", "at", to=f"at{_OTHER}", apart_ns=pl.lit(0, pl.Int64))


def _join_positions(sends: pl.DataFrame, receives: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Join rows at the same position of the same step.

    Positions are counted from the first row where both captures contain the begin of the step, else from the
    last one. A step that both captures contain, with different numbers of rows, has no pairs.

    Args:
        sends: With step, issue_ns, and has_first and has_last of `_mark_step_edges`.
        receives: The same.
        by: Columns whose rows are counted together.
    """
    keys = [*by, "step"]
    position = pl.int_range(pl.len()).over(keys)
    numbered = [
        side.drop_nulls("step")
        .sort("issue_ns", maintain_order=True)
        .with_columns(from_first=position, from_last=pl.len().over(keys) - 1 - position)
        for side in (sends, receives)
    ]
    parts = []
    for edge, opposite in (("first", "last"), ("last", "first")):
        own, others = (side.filter(f"has_{edge}") for side in numbered)
        is_cut = ~(pl.col(f"has_{opposite}") & pl.col(f"has_{opposite}{_OTHER}"))
        is_same = (
            (pl.col("from_last") == pl.col(f"from_last{_OTHER}")) if edge == "first" else pl.lit(value=False)
        )
        joined = own.join(others, on=[*keys, f"from_{edge}"], suffix=_OTHER, coalesce=False)
        parts.append(joined.filter(is_cut | is_same))
    return pl.concat(parts)


def _pair_ends(sends: pl.DataFrame, receives: pl.DataFrame) -> pl.DataFrame:
    """Pair messages of a channel that end at the same time: channel, at, to, apart_ns."""
    others = receives.select("channel", "end_ns", *CLOCK, to="at", other_ns="end_ns").sort("end_ns")
    near = sends.sort("end_ns").join_asof(
        others, on="end_ns", by="channel", strategy="nearest", check_sortedness=False, suffix=_OTHER
    )
    apart = (pl.col("end_ns") - pl.col("other_ns")).abs()
    is_together = is_comparable(_OTHER) & (apart <= SKEW_NS + relative_bound(_OTHER))
    return near.drop_nulls("to").filter(is_together).select("channel", "at", "to", apart_ns=apart)


def _keep_agreeing(pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep the nearest send of each receive, and shifts that a neighbouring pair of the channel has, too."""
    nearest = pairs.sort("apart_ns", maintain_order=True).unique(
        ["channel", "to"], keep="first", maintain_order=True
    )
    shift = pl.col("shift")
    is_agreed = (
        (shift == shift.shift(1).over("channel"))
        | (shift == shift.shift(-1).over("channel"))
        | (pl.len().over("channel") == 1)
    )
    shifts = nearest.sort("channel", "at").select("channel", "at", shift=pl.col("to") - pl.col("at"))
    return shifts.filter(is_agreed.fill_null(value=False))


def _check(pairs: pl.DataFrame) -> pl.DataFrame:
    """Test the ends of each channel.

    Those of a send and its receive are together, within the error of the clocks.

    Not those of a buffered send, which ends before its receive begins. Kernels with several messages end with
    the last one, and sends that all take as long may be buffered, too: their ends are evidence for a guessed
    peer, but not against a known one.

    Returns:
        The pairs, in order, with is_refuted, and is_displaced: right only if the clocks are wrong by more
            than their
        bounds, as ends are a constant apart.
    """
    bound, is_tested = relative_bound(_OTHER), is_comparable(_OTHER)
    is_grouped = pl.col("is_grouped") | pl.col(f"is_grouped{_OTHER}")
    is_buffered = pl.col("end_ns") < pl.col(f"start_ns{_OTHER}")
    is_early = is_tested & (pl.col(f"end_ns{_OTHER}") + bound < pl.col("start_ns"))
    length = pl.col("end_ns") - pl.col("start_ns")
    measured = pairs.with_columns(
        is_early=is_early.fill_null(value=False),
        apart_ns=pl.when(is_tested & ~is_buffered & ~(is_grouped & pl.col("is_sure"))).then(
            pl.col(f"end_ns{_OTHER}") - pl.col("end_ns")
        ),
        waits=length.quantile(0.9).over("channel") > 2 * length.min().over("channel") + SKEW_NS,
    ).with_columns(center_ns=pl.col("apart_ns").median().over("channel"))
    has_few = pl.col("apart_ns").count().over("channel") < _FEW
    is_near = (pl.col("apart_ns") - pl.col("center_ns")).abs() <= SKEW_NS
    is_constant = ~has_few & (is_near.mean().over("channel") >= MOSTLY)
    agrees = is_constant & (pl.col("center_ns").abs() <= SKEW_NS + bound)
    is_against = ~has_few & ~agrees & pl.col("waits") & (pl.col("peer_source") != _NCCL_PEER)
    is_against |= pl.col("is_early").mean().over("channel") > 1 - MOSTLY
    is_against = is_against.fill_null(value=False)
    # lanes that are no neighbours exchange in both directions, and ends tell where sends wait; an error of
    # the clocks delays messages of one direction, and advances those of the other
    lanes = [bound_of("lane", f"lane{_OTHER}") for bound_of in (pl.min_horizontal, pl.max_horizontal)]
    of_lanes = is_against.any().over(lanes)
    is_shifted = is_constant.all().over(lanes) & (pl.col("center_ns").mean().over(lanes).abs() <= SKEW_NS)
    is_displaced = of_lanes & pl.col("is_sure") & is_shifted.fill_null(value=False) & ~is_same_clock(_OTHER)
    is_wrong = pl.when("is_sure").then(of_lanes).otherwise(is_against | ~agrees.fill_null(value=False))
    return measured.with_columns(
        is_refuted=(is_wrong | pl.col("is_early")) & ~is_displaced, is_displaced=is_displaced
    )


def _build_transfers(pairs: pl.DataFrame) -> pl.DataFrame:
    named = pairs.rename(
        {"lane": "sender", f"lane{_OTHER}": "receiver", "start_ns": "send_start_ns", "end_ns": "send_end_ns"}
        | {f"{edge}_ns{_OTHER}": f"receive_{edge}_ns" for edge in ("start", "end")}
    )
    is_buffered = pl.col("send_end_ns") < pl.col("receive_start_ns")
    send_wait = pl.min_horizontal("receive_start_ns", "send_end_ns") - pl.col("send_start_ns")
    receive_wait = pl.min_horizontal("send_start_ns", "receive_end_ns") - pl.col("receive_start_ns")
    return (
        named.with_columns(
            direction=pl.coalesce("direction", "direction_of_receive"),
            micro_batch=pl.coalesce("micro_batch", "micro_batch_of_receive"),
            size_bytes=pl.coalesce("size_bytes", "size_bytes_of_receive"),
            send_wait_ns=pl.when(is_buffered).then(0).otherwise(send_wait.clip(0)),
            receive_wait_ns=receive_wait.clip(0),
            is_buffered=pl.when(is_comparable("_of_receive")).then(is_buffered),
            bound_ns=relative_bound("_of_receive"),
            is_comparable=is_comparable("_of_receive"),
            source=pl.coalesce("peer_source", "peer_source_of_receive"),
            doubtful=pl.when("is_displaced").then(pl.lit("clocks", DOUBTFUL)),
        )
        .with_columns(
            transfer_ns=pl.col("receive_end_ns") - pl.col("receive_start_ns") - pl.col("receive_wait_ns")
        )
        .with_columns(pl.when("is_comparable").then(pl.col(name)).alias(name) for name in _COMPARED)
        .pipe(conform, TRANSFERS)
        .sort("send_start_ns", "sender", "receiver")
    )


def _describe(
    messages: pl.DataFrame,
    peers: pl.DataFrame,
    pairs: pl.DataFrame,
    transfers: pl.DataFrame,
    lanes: pl.DataFrame,
) -> list[str]:
    verbs = messages["verb"].count()
    no_peer = verbs - messages.drop_nulls("verb").join(peers, on="row", how="semi").height
    refuted = pl.concat(
        [pairs.filter("is_refuted").select(row=name) for name in ("row", f"row{_OTHER}")]
    ).unique()
    kept = pairs.filter(~pl.col("is_refuted"))
    kept_rows = pl.concat([kept.select(row=name) for name in ("row", f"row{_OTHER}")]).unique()
    dropped = refuted.join(kept_rows, on="row", how="anti").height + kept_rows.height - 2 * len(transfers)
    alone = verbs - no_peer - dropped - 2 * len(transfers)
    missing = len(list_missing_ranks(lanes))
    places = lanes.select("stage", *_SLICE)
    is_laid_out = not places["stage"].has_nulls() and (missing > 0 or not places.is_duplicated().any())
    absent = (
        f" ({format_count(missing, 'rank')} of the run {'is' if missing == 1 else 'are'} missing)"
        if missing
        else ""
    )
    stages = lanes["stage"].n_unique() - lanes["stage"].has_nulls()
    is_whole = stages > 1 and not missing
    example = f" (`pp={stages}`; tp times dp is {len(lanes) // stages})" if is_whole else ""
    layout = f"; specify `--layout`{example}, with `--rank-from` where no rank is recorded"
    layout += _RECORD * (not (messages["source"] == "NCCL").any())
    hint = "" if is_laid_out else layout
    counts = (
        (
            len(messages) - verbs,
            "point-to-point kernels have no known verb (send or receive), and are not paired",
        ),
        (no_peer, f"sends and receives have no known peer{absent}, and are not paired{hint}"),
        (
            dropped,
            "sends and receives end together with no presumed peer, or with several, and are not "
            f"paired{layout}",
        ),
        (alone, "sends and receives have no other side, or it is not recognised, and are not paired"),
        (transfers["doubtful"].count(), f"messages are paired with doubt: {DOUBTFUL_TEXTS['clocks']}"),
    )
    return [f"{count:,} {text}" for count, text in counts if count > 0]


def pair_mpi_messages(messages: pl.DataFrame) -> pl.DataFrame:
    """Pair the sends and receives of all reports.

    Args:
        messages: `RUN_MPI_MESSAGES`.

    Returns:
        `MPI_PAIRS`. Empty in, empty out.
    """
    rows = messages.with_row_index("row").with_columns(
        sender=pl.when("is_send").then("rank").otherwise("peer"),
        receiver=pl.when("is_send").then("peer").otherwise("rank"),
        unpaired=pl.lit(None, UNPAIRED),
    )
    rows = _mark_unpaired(rows, pl.col("communicator").is_null(), "unknown communicator")
    is_twice = pl.struct("report", "process_key").n_unique().over("communicator", "rank") > 1
    rows = _mark_unpaired(rows, is_twice.any().over("communicator"), "a rank with several processes")
    rows = _find_wildcards(rows)
    is_open = pl.col("unpaired").is_null()
    is_threaded = is_open & (pl.col("thread_key").n_unique().over(_MPI_SIDE) > 1)
    rows = _mark_unpaired(rows, is_threaded.any().over(_MPI_CHANNEL), "several threads")
    open_rows = rows.filter(is_open).sort("start_ns", maintain_order=True)
    numbered = open_rows.with_columns(number=pl.int_range(pl.len()).over(_MPI_SIDE))
    receives = numbered.filter(~pl.col("is_send"))
    pairs = numbered.filter("is_send").join(
        receives, on=[*_MPI_CHANNEL, "number"], how="inner", suffix="_of_receive", maintain_order="left"
    )
    pairs = _check_channels(pairs)
    return _collect(rows, pairs)


def _mark_unpaired(rows: pl.DataFrame, condition: pl.Expr, reason: str) -> pl.DataFrame:
    holds = condition.fill_null(value=False) & pl.col("unpaired").is_null()
    return rows.with_columns(
        unpaired=pl.when(holds).then(pl.lit(reason, UNPAIRED)).otherwise(pl.col("unpaired"))
    )


def _find_wildcards(rows: pl.DataFrame) -> pl.DataFrame:
    """Assign receives of any sender or tag to their channel.

    Add `is_shared`: such a receive may belong to the channel.
    """
    is_open = pl.col("unpaired").is_null()
    is_wild = is_open & ~pl.col("is_send") & (pl.col("sender").is_null() | pl.col("tag").is_null())
    pattern = ["communicator", "receiver", "sender", "tag"]
    patterns = rows.filter(is_wild).select(pattern).unique(maintain_order=True).with_row_index("pattern")
    channels = rows.filter(is_open & pl.col("is_send")).select(_MPI_CHANNEL).unique(maintain_order=True)
    fits = (
        patterns.join(channels, on=["communicator", "receiver"], how="inner", suffix="_of_send")
        .filter(
            pl.col("sender").is_null() | (pl.col("sender") == pl.col("sender_of_send")),
            pl.col("tag").is_null() | (pl.col("tag") == pl.col("tag_of_send")),
        )
        .with_columns(count=pl.len().over("pattern"))
    )
    whole = rows.group_by("communicator").agg(
        is_complete=pl.col("rank").n_unique() == pl.col("member_count").max()
    )
    fits = fits.join(whole, on="communicator", how="left")
    is_sure = (pl.col("count") == 1) & pl.col("is_complete")
    sure = fits.filter(is_sure).select("pattern", "sender_of_send", "tag_of_send")
    shared = fits.filter(~is_sure).select(
        "communicator", "receiver", sender="sender_of_send", tag="tag_of_send", is_shared=pl.lit(value=True)
    )
    found = patterns.join(sure, on="pattern", how="left", maintain_order="left")
    filled = rows.join(found, on=pattern, how="left", nulls_equal=True, maintain_order="left").with_columns(
        sender=pl.coalesce("sender", "sender_of_send"), tag=pl.coalesce("tag", "tag_of_send")
    )
    filled = filled.join(
        shared.unique(_MPI_CHANNEL), on=_MPI_CHANNEL, how="left", maintain_order="left"
    ).with_columns(pl.col("is_shared").fill_null(value=False))
    is_any = ~pl.col("is_send") & (pl.col("sender").is_null() | pl.col("tag").is_null())
    return _mark_unpaired(filled, is_any, "any sender or tag").drop(
        "pattern", "sender_of_send", "tag_of_send"
    )


def _check_channels(pairs: pl.DataFrame) -> pl.DataFrame:
    """Add to pairs `problem`: the reason that the messages of their channel are no pairs.

    Null where they are.
    """
    size, buffer = pl.col("size_bytes"), pl.col("size_bytes_of_receive")
    fits = pl.when(pl.col("has_size_of_receive")).then(size == buffer).otherwise(size <= buffer)
    is_late = pl.col("end_ns_of_receive") + relative_bound("_of_receive") < pl.col("start_ns")
    comparable = is_comparable("_of_receive")
    is_wrong = ~fits.fill_null(value=True) | (comparable & is_late).fill_null(value=False)
    return pairs.with_columns(
        problem=pl.when(is_wrong.any().over(_MPI_CHANNEL))
        .then(pl.lit("sizes or times that do not fit", UNPAIRED))
        .when(~comparable)
        .then(pl.lit("clocks that cannot be compared", UNPAIRED))
    )


def _collect(rows: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Build `MPI_PAIRS` of the numbered pairs, leaving out channels whose order is unknown."""
    is_open = pl.col("unpaired").is_null()
    sent = (pl.col("is_send") & is_open).sum().over(_MPI_CHANNEL)
    received = (~pl.col("is_send") & is_open).sum().over(_MPI_CHANNEL)
    # from the first message on, a channel may have more on one side at its end; one that others may share may
    # not
    is_first = pl.col("is_whole").all().over(_MPI_CHANNEL)
    counted = rows.with_columns(
        sent=sent, received=received, is_first=is_first, from_first=is_first & ~pl.col("is_shared")
    )
    has_other = (pl.col("sent") > 0) & (pl.col("received") > 0)
    differs = has_other & (pl.col("sent") != pl.col("received")) & ~pl.col("from_first")
    counted = _mark_unpaired(counted, differs, "different counts")
    other = np.full(len(rows), -1)
    good = pairs.filter(pl.col("problem").is_null())
    other[good["row"].to_numpy()] = good["row_of_receive"].to_numpy()
    other[good["row_of_receive"].to_numpy()] = good["row"].to_numpy()
    bad = pairs.drop_nulls("problem")
    problems = pl.concat(
        [bad.select("row", "problem"), bad.select("problem", row="row_of_receive").select("row", "problem")]
    )
    joined = counted.join(problems, on="row", how="left", maintain_order="left")
    partner = pl.Series("other", other)
    joined = joined.with_columns(partner.set(partner < 0, None)).with_columns(
        other=pl.when(pl.col("unpaired").is_null()).then("other")
    )
    reason = pl.coalesce("unpaired", "problem", pl.lit("no counterpart", UNPAIRED))
    return joined.select(
        "other",
        unpaired=pl.when(pl.col("other").is_null()).then(reason),
        is_guess=pl.when(pl.col("other").is_not_null()).then(~pl.col("is_first")),
    ).pipe(conform, MPI_PAIRS)
