"""Transfers between lanes: pairs of a send and its receive, with waits and transfer times.

Messages from one lane to another keep their order, so the n-th send belongs to the n-th receive, unless messages
are missing on one side: captures may begin and end at different times, or lose events. Some pairs are therefore
recognised first, by micro-batch or by their ends (the NCCL kernels of a send and its receive end together), and the
other pairs are counted from these (`nsys_pp.training.run.channels`).
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import whole_numbers
from nsys_pp.arrays.order import order_rows
from nsys_pp.frames.clock import SKEW_NS
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import TRANSFERS
from nsys_pp.training.run.channels import match_messages
from nsys_pp.training.run.peers import NCCL_PEER, count_stages, find_peers

_CONVINCING = 0.7  # a guessed layout of the stages is used if at least this share of messages is paired
_BOUNDS = ("bound_ns", "bound_ns_of_receive")
_PAIRED = [
    *("row", "lane", "op_id", "start_ns", "end_ns", "bound_ns", "stage", "step"),
    *("direction", "micro_batch", "size_bytes", "peer_source"),
]


def pair_messages(
    *, lanes: pl.DataFrame, messages: pl.DataFrame, jobs: pl.DataFrame
) -> tuple[pl.DataFrame, list[str]]:
    """Pair sends and receives of all lanes.

    The wait of a kernel is its time before the start of the peer's kernel; the rest of a receive is the transfer.
    The send of a small message may be buffered: it ends before the receive begins, and has no wait.

        send       [ wait |              )
        receive           [   transfer   )

    Args:
        lanes: `LANES`.
        messages: `LANE_MESSAGES`.
        jobs: `RUN_JOBS`, for the layout of the model along the stages.

    Returns:
        `TRANSFERS` by send_start_ns, and notes on messages without a pair.
    """
    folded = _is_folded(lanes, messages, jobs)
    attempts = []
    for is_folded in (False, True) if folded is None else (folded,):
        located = find_peers(lanes=lanes, messages=messages, is_folded=is_folded).with_row_index("row")
        attempts.append((located, _pair(located)))
    located, pairs = max(attempts, key=lambda result: len(result[1]))
    if folded is None and 2 * len(pairs) < _CONVINCING * located["peer_lane"].count():
        is_recorded = pl.col("peer_source") == NCCL_PEER
        located = located.with_columns(
            pl.when(is_recorded).then(name).alias(name) for name in ("peer_lane", "peer_source")
        )
        pairs = _pair(located)
    pairs, dropped_count = _drop_mismatched(located, pairs)
    has_chunks = any((frame["chunk"] > 0).any() for frame in (jobs, messages))
    is_line = not has_chunks and (count_stages(lanes) > 2 or len(jobs) > 0)
    return _build_transfers(pairs, is_line=is_line), _notes(located, pairs, dropped_count, lanes)


def _is_folded(lanes: pl.DataFrame, messages: pl.DataFrame, jobs: pl.DataFrame) -> bool | None:
    """Return whether the second chunks run back along the stages; None where unknown.

    Decided by the virtual stages of second chunks; where unknown, by the forward sends of the last stage, which are all
    from its second chunk if folded.
    """
    count = count_stages(lanes)
    if not count:
        return False
    stages = lanes.select("lane", "stage")
    for frame in (jobs, messages):
        second = (
            frame[["lane", "virtual_stage"]].filter(pl.col("virtual_stage") >= count).join(stages, on="lane")
        )
        if len(second):
            is_back = second["virtual_stage"] == 2 * count - 1 - second["stage"]
            return 2 * int(is_back.sum()) > len(second)
    sent = messages[["lane", "verb", "direction", "chunk"]].filter(
        pl.col("verb") == "send", pl.col("direction") == "forward"
    )
    last = sent.join(stages.filter(stage=count - 1), on="lane", how="semi")
    chunks = last["chunk"].drop_nulls()
    if len(chunks):
        return bool((chunks == 1).all())
    return None if len(last) else False


def _pair(messages: pl.DataFrame) -> pl.DataFrame:
    """Join sends with their receives, with columns `*_of_receive`."""
    matches = match_messages(messages)
    sends, receives = messages[_PAIRED][matches.send], messages[_PAIRED][matches.receive]
    pairs = sends.hstack(
        [
            pl.Series("channel", matches.channel),
            *(column.alias(f"{column.name}_of_receive") for column in receives),
        ]
    )
    return pairs.filter(pl.col("start_ns") - pl.sum_horizontal(*_BOUNDS) <= pl.col("end_ns_of_receive"))


def _drop_mismatched(located: pl.DataFrame, pairs: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Drop the pairs of lanes that cannot be peers; return the other pairs, and the number of dropped ones.

    A message ends on both lanes together, unless sends are buffered: then no send waits, and a receive that waited
    ends as soon after the start of its send as other receives. A pair of lanes is dropped if most of its pairs with a
    receive that starts before the end of the send contradict this. Pairs by NCCL peer, kernels with messages of
    several peers, and lanes with unknown clock bounds are not tested.
    """
    start, end, receive_end = (pl.col(name) for name in ("start_ns", "end_ns", "end_ns_of_receive"))
    receive_start = pl.col("start_ns_of_receive")
    length, delay = end - start, receive_end - start
    bound = pl.col("bound_ns") + pl.col("bound_ns_of_receive")
    low, high = pl.min_horizontal("lane", "lane_of_receive"), pl.max_horizontal("lane", "lane_of_receive")
    tested = pairs.select(
        "channel",
        lane_pair=low.cast(pl.Int64) * 2**32 + high.cast(pl.Int64),
        is_guess=pl.col("peer_source") != NCCL_PEER,
        is_tested=(
            _are_single(located, pairs)
            & (end > receive_start)
            & bound.is_not_null()
        ).fill_null(value=False),
        is_apart=((end - receive_end).abs() > SKEW_NS + bound).fill_null(value=False),
        never_waits=(length.quantile(0.9) <= 2 * length.min() + SKEW_NS).over("channel"),
        delay=delay, bound=bound,
    )  # fmt: skip
    is_tested, delay, bound = pl.col("is_tested"), pl.col("delay"), pl.col("bound")
    is_late = delay > 2 * delay.filter(is_tested).quantile(0.1).over("channel") + SKEW_NS + bound
    is_wrong = is_tested & pl.col("is_apart") & (is_late | ~pl.col("never_waits").all().over("lane_pair"))
    dropped = pl.col("is_guess") & (2 * is_wrong.sum().over("lane_pair") > is_tested.sum().over("lane_pair"))
    kept = pairs.filter(tested.select(~dropped.fill_null(value=False)).to_series())
    return kept, len(pairs) - len(kept)


def _are_single(located: pl.DataFrame, pairs: pl.DataFrame) -> pl.Series:
    """Return the mask of pairs of kernels with a single peer each."""
    lane, op, peer = (whole_numbers(located[name]) for name in ("lane", "op_id", "peer_lane"))
    order = order_rows(lane, op)
    lane, op, peer = lane[order], op[order], peer[order]
    is_first = np.append(True, (lane[1:] != lane[:-1]) | (op[1:] != op[:-1]))[: len(order)]
    kernel, first = np.cumsum(is_first) - 1, peer[is_first]
    is_several = np.bincount(kernel[peer != first[kernel]], minlength=len(first)) > 0
    is_single = np.ones(len(order), np.bool_)
    is_single[order] = ~is_several[kernel]
    return pl.Series(is_single[pairs["row"].to_numpy()] & is_single[pairs["row_of_receive"].to_numpy()])


def _build_transfers(pairs: pl.DataFrame, *, is_line: bool) -> pl.DataFrame:
    """Split receives into wait and transfer, and infer directions in a pipeline without chunks."""
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
            source=pl.coalesce("peer_source", "peer_source_of_receive"),
        )
        .with_columns(
            transfer_ns=pl.col("receive_end_ns") - pl.col("receive_start_ns") - pl.col("receive_wait_ns")
        )
        .sort("send_start_ns", "sender", "receiver")
        .pipe(conform, TRANSFERS)
    )


def _notes(messages: pl.DataFrame, pairs: pl.DataFrame, dropped_count: int, lanes: pl.DataFrame) -> list[str]:
    """Format notes on messages without a pair."""
    no_verb = messages["verb"].null_count()
    has_verb = messages.filter(pl.col("verb").is_not_null())
    no_peer = has_verb.filter(pl.col("peer_lane").is_null(), pl.col("peer_source").is_null()).height
    alone = len(messages) - no_verb - no_peer - 2 * len(pairs) - 2 * dropped_count
    positions = lanes.select("stage", "replica", "tensor")
    is_laid_out = positions["stage"].null_count() == 0 and not positions.is_duplicated().any()
    hint = "" if is_laid_out else "; specify `--layout`"
    unseen = "have no other side" if is_laid_out else "have no other side, or it is not recognised"
    counts = (
        (no_verb, "point-to-point kernels have no known verb (send or receive), and are not paired"),
        (no_peer, f"sends and receives have no known peer, and are not paired{hint}"),
        (
            2 * dropped_count,
            "sends and receives do not end together with their presumed peer, and are not paired"
            "; specify `--layout`",
        ),
        (alone, f"sends and receives {unseen}, and are not paired{hint if no_peer == 0 else ''}"),
    )
    return [f"{count:,} {text}" for count, text in counts if count > 0]
