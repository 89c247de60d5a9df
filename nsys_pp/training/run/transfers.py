"""Transfers between lanes: pairs of a send and its receive, with waits and transfer times.

Messages from one lane to another keep their order, so the n-th send belongs to the n-th receive, unless messages
are missing on one side: captures may begin and end at different times, or lose events. Some pairs are therefore
recognised first, by micro-batch or by their ends (the NCCL kernels of a send and its receive end together), and the
other pairs are counted from these (`nsys_pp.training.run.message_sequences`).
"""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.clock_relations import CLOCK, is_comparable, relative_bound
from nsys_pp.frames.conform import conform
from nsys_pp.frames.transfers import DOUBTFUL, DOUBTFUL_TEXTS, TRANSFERS
from nsys_pp.training.run.message_chunks import infer_chunks
from nsys_pp.training.run.message_sequences import match_messages
from nsys_pp.training.run.pair_checks import check_pairs
from nsys_pp.training.run.peers import NCCL_PEER, find_peers
from nsys_pp.training.run.routes import has_chunks, list_topologies

_CONVINCING = 0.7  # a guessed layout of the stages is used if at least this share of messages is paired
_HINTS = {"lane": "; specify `--layout`"}
_COMPARED = (
    "send_wait_ns",
    "receive_wait_ns",
    "transfer_ns",
    "is_buffered",
    "bound_ns",
)  # times of both lanes
_PAIRED = [
    *("row", "lane", "op_id", "start_ns", "end_ns", *CLOCK, "stage", "step"),
    *("direction", "micro_batch", "size_bytes", "peer_source", "is_doubtful"),
    "is_guess",
]


def pair_messages(
    *, lanes: pl.DataFrame, messages: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame
) -> tuple[pl.DataFrame, list[str]]:
    """Pair sends and receives of all lanes.

    The wait of a kernel is its time before the start of the peer's kernel; the rest of a receive is the transfer.
    The send of a small message may be buffered: it ends before the receive begins, and has no wait.

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
    attempts = []
    topologies = list_topologies(lanes, messages, jobs)
    for topology in topologies:
        chunked = infer_chunks(messages, steps, jobs, lanes, topology)
        located = find_peers(lanes=lanes, messages=chunked, steps=steps, jobs=jobs, topology=topology)
        attempts.append((located, _pair(located), topology))
    located, pairs, topology = max(attempts, key=lambda result: len(result[1]))
    if len(topologies) > 1 and 2 * len(pairs) < _CONVINCING * located["peer_lane"].count():
        is_recorded = pl.col("peer_source") == NCCL_PEER
        located = located.with_columns(
            pl.when(is_recorded).then(name).alias(name) for name in ("peer_lane", "peer_source")
        )
        pairs = _pair(located)
    checked = check_pairs(pairs)
    pairs = checked.filter(~pl.col("is_refuted"))
    dropped_count = len(checked) - len(pairs)
    is_line = not has_chunks(messages, jobs) and (topology.stages > 2 or len(jobs) > 0)
    transfers = _build_transfers(pairs, is_line=is_line)
    return transfers, _notes(located, transfers, dropped_count, lanes)


def _pair(messages: pl.DataFrame) -> pl.DataFrame:
    """Join sends with their receives, with columns `*_of_receive`."""
    matches = match_messages(messages)
    sends, receives = messages[_PAIRED][matches.send], messages[_PAIRED][matches.receive]
    return sends.hstack(
        [
            pl.Series("channel", matches.channel),
            pl.Series("has_rival_order", matches.is_doubtful),
            *(column.alias(f"{column.name}_of_receive") for column in receives),
        ]
    )


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
            is_buffered=pl.when(is_comparable("_of_receive")).then(is_buffered),
            bound_ns=relative_bound("_of_receive"),
            is_comparable=is_comparable("_of_receive"),
            source=pl.coalesce("peer_source", "peer_source_of_receive"),
            doubtful=pl.when("is_displaced")
            .then(pl.lit("clocks", DOUBTFUL))
            .when(pl.col("is_doubtful") | pl.col("is_doubtful_of_receive"))
            .then(pl.lit("lane", DOUBTFUL))
            .when("has_rival_order")
            .then(pl.lit("order", DOUBTFUL)),
        )
        .with_columns(
            transfer_ns=pl.col("receive_end_ns") - pl.col("receive_start_ns") - pl.col("receive_wait_ns")
        )
        .with_columns(pl.when("is_comparable").then(pl.col(name)).alias(name) for name in _COMPARED)
        .sort("send_start_ns", "sender", "receiver")
        .pipe(conform, TRANSFERS)
    )


def _notes(
    messages: pl.DataFrame, transfers: pl.DataFrame, dropped_count: int, lanes: pl.DataFrame
) -> list[str]:
    """Format notes on messages without a pair, and on doubtful pairs."""
    no_verb = messages["verb"].null_count()
    has_verb = messages.filter(pl.col("verb").is_not_null())
    no_peer = has_verb.filter(pl.col("peer_lane").is_null(), pl.col("peer_source").is_null()).height
    alone = len(messages) - no_verb - no_peer - 2 * len(transfers) - 2 * dropped_count
    positions = lanes.select("stage", "replica", "tensor")
    is_laid_out = positions["stage"].null_count() == 0 and not positions.is_duplicated().any()
    hint = "" if is_laid_out else "; specify `--layout`"
    unseen = "have no other side" if is_laid_out else "have no other side, or it is not recognised"
    doubtful = dict(transfers["doubtful"].drop_nulls().value_counts().iter_rows())
    counts = (
        (no_verb, "point-to-point kernels have no known verb (send or receive), and are not paired"),
        (no_peer, f"sends and receives have no known peer, and are not paired{hint}"),
        (
            2 * dropped_count,
            "sends and receives do not end together with their presumed peer, and are not paired"
            "; specify `--layout`",
        ),
        (alone, f"sends and receives {unseen}, and are not paired{hint if no_peer == 0 else ''}"),
        *(
            (doubtful.get(reason, 0), f"messages are paired with doubt: {text}{_HINTS.get(reason, '')}")
            for reason, text in DOUBTFUL_TEXTS.items()
        ),
    )
    return [f"{count:,} {text}" for count, text in counts if count > 0]
