"""Transfers between lanes: pairs of a send and its receive, with waits and transfer times.

Messages from one lane to another keep their order, so the n-th send belongs to the n-th receive, unless messages
are missing on one side: captures may begin and end at different times, or lose events. Some pairs are therefore
recognised first, by micro-batch or by their ends (the NCCL kernels of a send and its receive end together), and the
other pairs are counted from these (`nsys_pp.training.run.message_sequences`).
"""

from __future__ import annotations

from functools import partial

import polars as pl

from nsys_pp.arrays.columns import index_rows
from nsys_pp.arrays.series import build_column
from nsys_pp.frames.clock import CLOCK, is_comparable, relative_bound
from nsys_pp.frames.conform import conform
from nsys_pp.frames.roster import list_missing_ranks
from nsys_pp.frames.training import DOUBTFUL, DOUBTFUL_TEXTS, FIRST_FORWARDS, TRANSFERS
from nsys_pp.training.run.message_chunks import infer_chunks
from nsys_pp.training.run.message_sequences import match_messages
from nsys_pp.training.run.pair_checks import check_pairs
from nsys_pp.training.run.peers import NCCL_PEER, find_peers
from nsys_pp.training.run.routes import UNKNOWN, Topology, has_chunks, list_topologies
from nsys_pp.units import format_count

_CONVINCING = 0.7  # a guessed layout of the stages is used if at least this share of messages is paired
# share of certain peers that contradict stages, up to which the peers are wrong and not the stages
_CONTRADICTED = 0.1
_CONTRADICTION = (
    "the ends of messages contradict the stages that are inferred from first forwards: messages are paired without stages;"
    " specify `--layout`"
)
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
    if messages.is_empty():
        return TRANSFERS.to_frame(), []
    attempt = partial(_attempt, messages=messages, steps=steps, jobs=jobs)
    topologies = list_topologies(lanes, messages, jobs)
    located, pairs, topology = max(
        (attempt(lanes, topology) for topology in topologies), key=lambda result: len(result[1])
    )
    if len(topologies) > 1 and 2 * len(pairs) < _CONVINCING * located["peer_lane"].count():
        located = _forget_peers(located, pl.col("peer_source").ne_missing(NCCL_PEER))
        pairs = _pair(located)
    notes = []
    # no other peers make more pairs than one of each two messages
    if 2 * len(pairs) < len(messages) and (lanes["stage_source"] == FIRST_FORWARDS).any():
        unstaged = attempt(lanes.with_columns(stage=pl.lit(None, pl.Int64)), UNKNOWN)
        differs, is_certain = _compare_peers(unstaged[0], located)
        # fewer pairs contradict nothing: without stages, lanes that exchange with two stages may have wrong peers
        has_more = len(unstaged[1]) > len(pairs)
        if has_more and is_certain:
            located, pairs, topology = unstaged
            notes.append(_CONTRADICTION)
        elif has_more:
            located = _forget_peers(located, pl.col("row").is_in(differs.implode()))
            pairs = _pair(located)
    checked = check_pairs(pairs)
    pairs = checked.filter(~pl.col("is_refuted"))
    dropped_count = len(checked) - len(pairs)
    is_line = not has_chunks(messages, jobs) and (topology.stages > 2 or len(jobs) > 0)
    transfers = _build_transfers(pairs, is_line=is_line)
    return transfers, [*notes, *_notes(located, transfers, dropped_count, lanes)]


def _attempt(
    lanes: pl.DataFrame,
    topology: Topology,
    *,
    messages: pl.DataFrame,
    steps: pl.DataFrame,
    jobs: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame, Topology]:
    """Find the peers and the pairs of all messages with one topology."""
    chunked = infer_chunks(messages, steps, jobs, lanes, topology)
    located = find_peers(lanes=lanes, messages=chunked, steps=steps, jobs=jobs, topology=topology)
    return located, _pair(located), topology


def _compare_peers(unstaged: pl.DataFrame, staged: pl.DataFrame) -> tuple[pl.Series, bool]:
    """Compare the peers of messages with and without stages.

    Args:
        unstaged: From `find_peers` without stages.
        staged: The same with stages.

    Returns:
        Rows of the messages with other peers; whether many certain ones are among them: the stages are wrong.
    """
    known = [located.filter(pl.col("peer_lane").is_not_null()) for located in (unstaged, staged)]
    both = known[0].join(known[1].select("row", by_stage="peer_lane"), on="row")
    differing = both.filter(pl.col("peer_lane") != pl.col("by_stage"))
    certain, contradicting = (frame.filter(~pl.col("is_doubtful")).height for frame in (both, differing))
    return differing["row"], contradicting > _CONTRADICTED * certain


def _forget_peers(located: pl.DataFrame, is_unknown: pl.Expr) -> pl.DataFrame:
    """Replace the peers of some messages by nulls."""
    return located.with_columns(
        pl.when(~is_unknown).then(name).alias(name) for name in ("peer_lane", "peer_source")
    )


def _pair(messages: pl.DataFrame) -> pl.DataFrame:
    """Join sends with their receives, with columns `*_of_receive`."""
    matches = match_messages(messages)
    paired = messages[_PAIRED]
    sends, receives = (index_rows(paired, rows) for rows in (matches.send, matches.receive))
    return sends.hstack(
        [
            build_column("channel", matches.channel),
            build_column("has_rival_order", matches.is_doubtful),
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
        .pipe(conform, TRANSFERS)
        .sort("send_start_ns", "sender", "receiver")
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
    missing = len(list_missing_ranks(lanes))
    absent = (
        f" ({format_count(missing, 'rank')} of the run {'is' if missing == 1 else 'are'} missing)"
        if missing
        else ""
    )
    is_laid_out |= bool(missing) and positions["stage"].null_count() == 0
    hint = "" if is_laid_out else "; specify `--layout`"
    unseen = "have no other side" if is_laid_out else "have no other side, or it is not recognised"
    doubtful = dict(transfers["doubtful"].drop_nulls().value_counts().iter_rows())
    counts = (
        (no_verb, "point-to-point kernels have no known verb (send or receive), and are not paired"),
        (
            no_peer,
            f"sends and receives have no known peer{absent}, and are not paired{hint}",
        ),
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
