"""Messages between lanes: which receive belongs to which send, who waited, and how long it was on its way.

Messages of one lane to another keep their order, so the n-th send belongs to the n-th receive; but captures
that begin or end at different times, or lose events, lack messages on one side. So some are recognised
first, by their micro-batch or by their ends (an NCCL kernel that sends ends together with the one that
receives), and the others are counted from those.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.pipeline.run.peers import SKEW_NS, TOLD, count_stages, find_peers
from nsys_pp.schema import conform
from nsys_pp.training import ARROWS

_ENOUGH = 0.3  # of a channel's messages must be recognised by their ends, or ends mean nothing there
_CONVINCING = 0.7  # of sends and receives must be in pairs, or the way along the stages was guessed wrong
_MOSTLY_NAMED = 0.5  # of a channel's messages must have a micro-batch, or names mean nothing there
_BOUNDS = ("bound_ns", "bound_ns_of_receive")
_CHANNEL = ["sender", "receiver", "way"]


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
        `ARROWS` by send_start_ns, and what could not be paired, in sentences.
    """
    folded = _is_folded(lanes, messages, jobs)
    tried = []
    for is_folded in (False, True) if folded is None else (folded,):
        located = find_peers(lanes=lanes, messages=messages, is_folded=is_folded)
        tried.append((located, _pair(*_channels(located))))
    located, pairs = max(tried, key=lambda one: len(one[1]))
    if folded is None and 2 * len(pairs) < _CONVINCING * located["peer_lane"].count():
        is_told = pl.col("how") == TOLD
        located = located.with_columns(
            pl.when(is_told).then(name).alias(name) for name in ("peer_lane", "how")
        )
        pairs = _pair(*_channels(located))
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
        second = frame.join(stages, on="lane").filter(pl.col("virtual_stage") >= count)
        if len(second):
            is_back = second["virtual_stage"] == 2 * count - 1 - second["stage"]
            return 2 * int(is_back.sum()) > len(second)
    last = messages.join(stages, on="lane").filter(
        pl.col("stage") == count - 1, pl.col("verb") == "send", pl.col("direction") == "forward"
    )
    chunks = last["chunk"].drop_nulls()
    if len(chunks):
        return bool((chunks == 1).all())
    return None if len(last) else False


def _channels(located: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split messages into sends and receives, each with its channel and its `place` in that, from 0.

    `way` is the direction, if all messages between two lanes tell it.
    """
    messages = located.filter(pl.col("peer_lane").is_not_null(), pl.col("verb").is_not_null())
    is_send = pl.col("verb") == "send"
    ends = ["sender", "receiver"]
    told = pl.col("direction").is_not_null().all().over(ends)
    laid = messages.with_columns(
        sender=pl.when(is_send).then("lane").otherwise("peer_lane"),
        receiver=pl.when(is_send).then("peer_lane").otherwise("lane"),
    ).with_columns(way=pl.when(told).then(pl.col("direction").cast(pl.String)).otherwise(pl.lit("")))
    laid = laid.sort("end_ns", "start_ns", maintain_order=True).with_columns(
        place=pl.int_range(pl.len()).over(*_CHANNEL, "verb")
    )
    return laid.filter(is_send), laid.filter(~is_send)


def _pair(sends: pl.DataFrame, receives: pl.DataFrame) -> pl.DataFrame:
    """Join sends with their receives; columns of those end in `_of_receive`.

    Channels whose messages have names are paired by those; others by ends, and where messages leave before
    they arrive, by what arrives first after a send began.
    """
    names = _names(sends, receives)
    by_name = _fill(sends, _recognise(sends, receives, names))
    is_named = names.filter("is_named")
    rest = sends.join(is_named, on=_CHANNEL, how="anti")
    by_end = _fill(rest, _recognise(rest, receives, names, tolerance=SKEW_NS))
    is_seen = by_end.group_by(_CHANNEL).agg(pl.col("voted").mean()).filter(pl.col("voted") >= _ENOUGH)
    rest = rest.join(is_seen, on=_CHANNEL, how="anti")
    shifts = [
        by_name.join(is_named, on=_CHANNEL, how="semi"),
        by_end.join(is_seen, on=_CHANNEL, how="semi"),
        _fill(rest, _arrivals(rest, receives)),
    ]
    return (
        sends.join(pl.concat(shifts).drop("voted"), on=[*_CHANNEL, "place"])
        .with_columns(to=pl.col("place") + pl.col("shift"))
        .join(receives, left_on=[*_CHANNEL, "to"], right_on=[*_CHANNEL, "place"], suffix="_of_receive")
        .filter(pl.col("start_ns") - pl.sum_horizontal(*_BOUNDS) <= pl.col("end_ns_of_receive"))
    )


def _names(sends: pl.DataFrame, receives: pl.DataFrame) -> pl.DataFrame:
    """Say of each channel whether names tell its micro-batches (`is_named`), and the part of the model (`is_linked`)."""
    both = pl.concat([sends, receives])
    has_link = pl.col("link").is_not_null() | pl.col("micro_batch").is_null()
    return both.group_by(_CHANNEL).agg(
        is_named=pl.col("micro_batch").is_not_null().mean() >= _MOSTLY_NAMED, is_linked=has_link.all()
    )


def _recognise(
    sends: pl.DataFrame, receives: pl.DataFrame, names: pl.DataFrame, tolerance: int | None = None
) -> pl.DataFrame:
    """Find pairs that are surely one: of one micro-batch, or, within a tolerance, whose ends agree.

    Returns:
        channel, place, shift (from the send's place to the receive's).
    """
    key = [] if tolerance is not None else ["micro_batch", "known_link"]

    def named(side: pl.DataFrame) -> pl.DataFrame:
        with_names = side.join(names, on=_CHANNEL, maintain_order="left")
        link = pl.when("is_linked").then("link").otherwise(0)
        return with_names.with_columns(known_link=link).drop_nulls(key).sort("end_ns")

    others = named(receives).select(
        *_CHANNEL, *key, "end_ns", to="place", to_ns="end_ns", to_bound_ns="bound_ns"
    )
    near = named(sends).join_asof(
        others, on="end_ns", by=[*_CHANNEL, *key], strategy="nearest", check_sortedness=False
    )
    apart = (pl.col("end_ns") - pl.col("to_ns")).abs()
    close = near.filter(pl.col("to").is_not_null())
    if tolerance is not None:
        close = close.filter(apart <= tolerance + pl.sum_horizontal("bound_ns", "to_bound_ns"))
    return _one_each(close.with_columns(apart_ns=apart))


def _arrivals(sends: pl.DataFrame, receives: pl.DataFrame) -> pl.DataFrame:
    """Take for a pair a send and the first receive that ends after it began, if that is about as soon as can be.

    A receive that waited ends as soon as its message can arrive; one that came late ends later.
    """
    others = receives.select(*_CHANNEL, "end_ns", to="place").sort("end_ns")
    begin = pl.col("start_ns") - pl.col("bound_ns").fill_null(0)
    first = sends.with_columns(begin_ns=begin).sort("begin_ns").join_asof(
        others, left_on="begin_ns", right_on="end_ns", by=_CHANNEL, strategy="forward",
        check_sortedness=False, coalesce=False, suffix="_of_other",
    )  # fmt: skip
    apart = pl.col("end_ns_of_other") - pl.col("begin_ns")
    soon = 2 * apart.quantile(0.1).over(_CHANNEL) + SKEW_NS
    return _one_each(
        first.filter(pl.col("to").is_not_null()).filter(apart <= soon).with_columns(apart_ns=apart)
    )


def _one_each(pairs: pl.DataFrame) -> pl.DataFrame:
    """Leave each receive the nearest send."""
    nearest = pairs.sort("apart_ns", maintain_order=True).unique([*_CHANNEL, "to"], keep="first")
    return nearest.select(*_CHANNEL, "place", shift=pl.col("to") - pl.col("place"))


def _fill(sends: pl.DataFrame, votes: pl.DataFrame) -> pl.DataFrame:
    """Give every send the shift that its recognised neighbours agree on; null where they do not.

    A shift counts where the next or the previous recognised message of the channel has it, too.
    """
    ordered = votes.sort(*_CHANNEL, "place")
    before, after = (pl.col("shift").shift(by).over(_CHANNEL) for by in (1, -1))
    is_alone = pl.len().over(_CHANNEL) == 1
    agreed = ordered.filter((pl.col("shift") == before) | (pl.col("shift") == after) | is_alone)
    above, below = (
        getattr(pl.col("shift"), way)().over(_CHANNEL) for way in ("forward_fill", "backward_fill")
    )
    return (
        sends.select(*_CHANNEL, "place")
        .join(agreed, on=[*_CHANNEL, "place"], how="left")
        .sort(*_CHANNEL, "place")
        .with_columns(voted=pl.col("shift").is_not_null(), above=above, below=below)
        .select(
            *(*_CHANNEL, "place", "voted"),
            shift=pl.when(pl.col("above").is_null() | (pl.col("above") == pl.col("below")))
            .then("below")
            .when(pl.col("below").is_null())
            .then("above"),
        )
    )


def _refuse(located: pl.DataFrame, pairs: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Drop the pairs of two lanes that cannot be peers; returns the others, and how many were dropped.

    A message ends on both lanes together; unless it leaves before it arrives: then no send waits, and a receive
    that waited for it ends as soon as the others do. Of the pairs of which the receive began before the send
    ended, that must hold for most. It says nothing of pairs that NCCL told, of kernels with messages of several
    peers, and where clocks are not known.
    """
    single = located.group_by("lane", "op_id").agg(is_single=pl.col("peer_lane").n_unique() == 1)
    tested = pairs
    for suffix in ("", "_of_receive"):
        own = single.rename({name: name + suffix for name in single.columns})
        tested = tested.join(own, on=[f"lane{suffix}", f"op_id{suffix}"], how="left", maintain_order="left")
    start, end, receive_end = (pl.col(name) for name in ("start_ns", "end_ns", "end_ns_of_receive"))
    receive_start = pl.col("start_ns_of_receive")
    length, delay = end - start, receive_end - start
    bound = pl.col("bound_ns") + pl.col("bound_ns_of_receive")
    both = [pl.min_horizontal("sender", "receiver"), pl.max_horizontal("sender", "receiver")]
    tested = tested.with_columns(
        is_guess=pl.col("how") != TOLD,
        says=(
            pl.all_horizontal("is_single", "is_single_of_receive")
            & (end > receive_start)
            & bound.is_not_null()
        ).fill_null(value=False),
        is_apart=((end - receive_end).abs() > SKEW_NS + bound).fill_null(value=False),
        never_waits=(length.quantile(0.9) <= 2 * length.min() + SKEW_NS).over(_CHANNEL),
    )
    says = pl.col("says")
    is_late = delay > 2 * delay.filter(says).quantile(0.1).over(_CHANNEL) + SKEW_NS + bound
    is_wrong = says & pl.col("is_apart") & (is_late | ~pl.col("never_waits").all().over(both))
    dropped = pl.col("is_guess") & (2 * is_wrong.sum().over(both) > says.sum().over(both))
    kept = tested.filter(~dropped.fill_null(value=False)).select(pairs.columns)
    return kept, len(pairs) - len(kept)


def _arrows(pairs: pl.DataFrame, *, is_line: bool) -> pl.DataFrame:
    """Tell wait from transfer, and what goes down the stages of a pipeline without chunks from what goes up."""
    named = pairs.rename(
        {"start_ns": "send_start_ns", "end_ns": "send_end_ns"}
        | {f"{name}_ns_of_receive": f"receive_{name}_ns" for name in ("start", "end")}
    )
    is_buffered = pl.col("send_end_ns") < pl.col("receive_start_ns")
    send_wait = pl.min_horizontal("receive_start_ns", "send_end_ns") - pl.col("send_start_ns")
    receive_wait = pl.min_horizontal("send_start_ns", "receive_end_ns") - pl.col("receive_start_ns")
    distance = (pl.col("stage_of_receive") - pl.col("stage")) if is_line else pl.lit(0)
    guessed = pl.when(distance == 1).then(pl.lit("forward")).when(distance == -1).then(pl.lit("backward"))
    return (
        named.with_columns(
            direction=pl.coalesce("direction", "direction_of_receive", guessed.cast(ARROWS["direction"])),
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
        .pipe(conform, ARROWS)
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
