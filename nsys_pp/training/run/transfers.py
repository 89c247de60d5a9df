"""Messages between lanes: which receive belongs to which send, who waited, and how long it was on its way.

Messages of one lane to another keep their order, so the n-th send belongs to the n-th receive; but captures
that begin or end at different times, or lose events, lack messages on one side. So some are recognised
first, by their micro-batch or by their ends (an NCCL kernel that sends ends together with the one that
receives), and the others are counted from those.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import TRANSFERS
from nsys_pp.training.run.channels import match_messages
from nsys_pp.training.run.columns import order_rows, whole_numbers
from nsys_pp.training.run.peers import SKEW_NS, TOLD, count_stages, find_peers

_CONVINCING = 0.7  # of sends and receives must be in pairs, or the way along the stages was guessed wrong
_BOUNDS = ("bound_ns", "bound_ns_of_receive")
_PAIRED = [
    *("row", "lane", "op_id", "start_ns", "end_ns", "bound_ns", "stage", "step"),
    *("direction", "micro_batch", "size_bytes", "how"),
]


def pair_messages(
    *, lanes: pl.DataFrame, messages: pl.DataFrame, jobs: pl.DataFrame
) -> tuple[pl.DataFrame, list[str]]:
    """Pair sends and receives of all lanes.

    Of a kernel that waits for its peer, wait is what lies before the peer's start, and the rest of a receive is
    the transfer. A small message may leave its sender before the receiver is there: such a send ends before
    the receive begins, and waits for nothing.

        send       [ wait |              )
        receive           [   transfer   )

    Args:
        lanes: `LANES`.
        messages: `MESSAGES` with `lane` instead of process_key and device_id, on the trace's clock.
        jobs: `RUN_JOBS`; they tell how the model is laid out.

    Returns:
        `TRANSFERS` by send_start_ns, and what could not be paired, in sentences.
    """
    folded = _is_folded(lanes, messages, jobs)
    tried = []
    for is_folded in (False, True) if folded is None else (folded,):
        located = find_peers(lanes=lanes, messages=messages, is_folded=is_folded).with_row_index("row")
        tried.append((located, _pair(located)))
    located, pairs = max(tried, key=lambda one: len(one[1]))
    if folded is None and 2 * len(pairs) < _CONVINCING * located["peer_lane"].count():
        is_told = pl.col("how") == TOLD
        located = located.with_columns(
            pl.when(is_told).then(name).alias(name) for name in ("peer_lane", "how")
        )
        pairs = _pair(located)
    pairs, refused = _refuse(located, pairs)
    has_chunks = any((frame["chunk"] > 0).any() for frame in (jobs, messages))
    is_line = not has_chunks and (count_stages(lanes) > 2 or len(jobs) > 0)
    return _arrows(pairs, is_line=is_line), _notes(located, pairs, refused, lanes)


def _is_folded(lanes: pl.DataFrame, messages: pl.DataFrame, jobs: pl.DataFrame) -> bool | None:
    """Does the second part of the model come back along the stages? None where nothing tells.

    Virtual stages tell it, or what the last stage sends forward: if folded, only the second part does.
    """
    count = count_stages(lanes)
    if not count:
        return False
    stages = lanes.select("lane", "stage")
    for frame in (jobs, messages):
        placed = frame[["lane", "virtual_stage"]]
        second = placed.filter(pl.col("virtual_stage") >= count).join(stages, on="lane")
        if len(second):
            is_back = second["virtual_stage"] == 2 * count - 1 - second["stage"]
            return 2 * int(is_back.sum()) > len(second)
    told = messages[["lane", "verb", "direction", "chunk"]]
    sent = told.filter(pl.col("verb") == "send", pl.col("direction") == "forward")
    last = sent.join(stages.filter(stage=count - 1), on="lane", how="semi")
    chunks = last["chunk"].drop_nulls()
    if len(chunks):
        return bool((chunks == 1).all())
    return None if len(last) else False


def _pair(messages: pl.DataFrame) -> pl.DataFrame:
    """Join sends with their receives; columns of those end in `_of_receive`."""
    found = match_messages(messages)
    sends, receives = messages[_PAIRED][found.send], messages[_PAIRED][found.receive]
    pairs = sends.hstack(
        [
            pl.Series("channel", found.channel),
            *(column.alias(f"{column.name}_of_receive") for column in receives),
        ]
    )
    return pairs.filter(pl.col("start_ns") - pl.sum_horizontal(*_BOUNDS) <= pl.col("end_ns_of_receive"))


def _refuse(located: pl.DataFrame, pairs: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Drop the pairs of two lanes that cannot be peers; returns the others, and how many were dropped.

    A message ends on both lanes together; unless it leaves before it arrives: then no send waits, and a receive
    that waited for it ends as soon as the others do. Of the pairs of which the receive began before the send
    ended, that must hold for most. It says nothing of pairs that NCCL told, of kernels with messages of several
    peers, and where clocks are not known.
    """
    start, end, receive_end = (pl.col(name) for name in ("start_ns", "end_ns", "end_ns_of_receive"))
    receive_start = pl.col("start_ns_of_receive")
    length, delay = end - start, receive_end - start
    bound = pl.col("bound_ns") + pl.col("bound_ns_of_receive")
    low, high = pl.min_horizontal("lane", "lane_of_receive"), pl.max_horizontal("lane", "lane_of_receive")
    tested = pairs.select(
        "channel",
        both=low.cast(pl.Int64) * 2**32 + high.cast(pl.Int64),
        is_guess=pl.col("how") != TOLD,
        says=(
            _are_single(located, pairs)
            & (end > receive_start)
            & bound.is_not_null()
        ).fill_null(value=False),
        is_apart=((end - receive_end).abs() > SKEW_NS + bound).fill_null(value=False),
        never_waits=(length.quantile(0.9) <= 2 * length.min() + SKEW_NS).over("channel"),
        delay=delay, bound=bound,
    )  # fmt: skip
    says, delay, bound = pl.col("says"), pl.col("delay"), pl.col("bound")
    is_late = delay > 2 * delay.filter(says).quantile(0.1).over("channel") + SKEW_NS + bound
    is_wrong = says & pl.col("is_apart") & (is_late | ~pl.col("never_waits").all().over("both"))
    dropped = pl.col("is_guess") & (2 * is_wrong.sum().over("both") > says.sum().over("both"))
    kept = pairs.filter(tested.select(~dropped.fill_null(value=False)).to_series())
    return kept, len(pairs) - len(kept)


def _are_single(located: pl.DataFrame, pairs: pl.DataFrame) -> pl.Series:
    """Say of which pairs neither kernel has messages of several peers."""
    lane, op, peer = (whole_numbers(located[name]) for name in ("lane", "op_id", "peer_lane"))
    order = order_rows(lane, op)
    lane, op, peer = lane[order], op[order], peer[order]
    is_first = np.append(True, (lane[1:] != lane[:-1]) | (op[1:] != op[:-1]))[: len(order)]
    kernel, first = np.cumsum(is_first) - 1, peer[is_first]
    is_several = np.bincount(kernel[peer != first[kernel]], minlength=len(first)) > 0
    is_single = np.ones(len(order), np.bool_)
    is_single[order] = ~is_several[kernel]
    return pl.Series(is_single[pairs["row"].to_numpy()] & is_single[pairs["row_of_receive"].to_numpy()])


def _arrows(pairs: pl.DataFrame, *, is_line: bool) -> pl.DataFrame:
    """Tell wait from transfer, and what goes down the stages of a pipeline without chunks from what goes up."""
    named = pairs.rename(
        {
            "lane": "sender",
            "lane_of_receive": "receiver",
            "start_ns": "send_start_ns",
            "end_ns": "send_end_ns",
        }
        | {f"{name}_ns_of_receive": f"receive_{name}_ns" for name in ("start", "end")}
    )
    is_buffered = pl.col("send_end_ns") < pl.col("receive_start_ns")
    send_wait = pl.min_horizontal("receive_start_ns", "send_end_ns") - pl.col("send_start_ns")
    receive_wait = pl.min_horizontal("send_start_ns", "receive_end_ns") - pl.col("receive_start_ns")
    distance = (pl.col("stage_of_receive") - pl.col("stage")) if is_line else pl.lit(0)
    guessed = pl.when(distance == 1).then(pl.lit("forward")).when(distance == -1).then(pl.lit("backward"))
    return (
        named.with_columns(
            direction=pl.coalesce("direction", "direction_of_receive", guessed.cast(TRANSFERS["direction"])),
            micro_batch=pl.coalesce("micro_batch", "micro_batch_of_receive"),
            size_bytes=pl.coalesce("size_bytes", "size_bytes_of_receive"),
            send_wait_ns=pl.when(is_buffered).then(0).otherwise(send_wait.clip(0)),
            receive_wait_ns=receive_wait.clip(0),
            is_buffered=is_buffered,
            bound_ns=pl.col("bound_ns") + pl.col("bound_ns_of_receive"),
            source=pl.coalesce("how", "how_of_receive"),
        )
        .with_columns(
            transfer_ns=pl.col("receive_end_ns") - pl.col("receive_start_ns") - pl.col("receive_wait_ns")
        )
        .sort("send_start_ns", "sender", "receiver")
        .pipe(conform, TRANSFERS)
    )


def _notes(messages: pl.DataFrame, pairs: pl.DataFrame, refused: int, lanes: pl.DataFrame) -> list[str]:
    """Say what could not be paired."""
    no_verb = messages["verb"].null_count()
    has_verb = messages.filter(pl.col("verb").is_not_null())
    no_peer = has_verb.filter(pl.col("peer_lane").is_null(), pl.col("how").is_null()).height
    alone = len(messages) - no_verb - no_peer - 2 * len(pairs) - 2 * refused
    places = lanes.select("stage", "replica", "tensor")
    is_laid_out = places["stage"].null_count() == 0 and not places.is_duplicated().any()
    hint = "" if is_laid_out else "; `--layout` would tell"
    unseen = "lack their other side" if is_laid_out else "lack their other side, or it is not recognised"
    told = (
        (no_verb, "point-to-point kernels do not tell whether they send or receive, and are in no pair"),
        (no_peer, f"sends and receives do not tell their peer, and are in no pair{hint}"),
        (
            2 * refused,
            "sends and receives do not end with those of the lane that seemed to be their peer, and are in no pair"
            "; `--layout` would tell",
        ),
        (alone, f"sends and receives {unseen}, and are in no pair{hint if no_peer == 0 else ''}"),
    )
    return [f"{count:,} {what}" for count, what in told if count > 0]
