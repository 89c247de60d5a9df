"""Pairs of sends and receives of MPI.

Messages of one sender, receiver, communicator and tag do not overtake each other (MPI 4.1, section 3.5): the n-th send belongs
to the n-th receive. So a channel of messages is paired in order, if its first messages were recorded on both sides. If they
were not, but as many on both sides, that is a guess. A channel whose sizes or times then contradict each other was recorded in part, and has no pairs.

    rank 0, tag 5    [send]  [send]                    1st and 2nd
    rank 1, tag 5      [receive      )[receive )       1st and 2nd

A receive of any sender or tag may belong to several channels. If a single one has sends, it belongs there. Else these
channels are paired only if they have as many receives of their own as sends.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.frames.clock import is_comparable, relative_bound
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import MPI_PAIRS, UNPAIRED

_CHANNEL = ["communicator", "sender", "receiver", "tag"]
_SIDE = [*_CHANNEL, "is_send"]


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
    rows = _mark(rows, pl.col("communicator").is_null(), "unknown communicator")
    process = pl.struct("report", "process_key")
    is_twice = process.n_unique().over("communicator", "rank") > 1
    rows = _mark(rows, is_twice.any().over("communicator"), "a rank with several processes")
    rows = _find_wildcards(rows)
    rows = _mark(rows, pl.col("thread_key").n_unique().over(_SIDE) > 1, "several threads", of_channel=True)
    open_rows = rows.filter(pl.col("unpaired").is_null()).sort("start_ns", maintain_order=True)
    numbered = open_rows.with_columns(number=pl.int_range(pl.len()).over(_SIDE))
    receives = numbered.filter(~pl.col("is_send"))
    pairs = numbered.filter("is_send").join(
        receives, on=[*_CHANNEL, "number"], how="inner", suffix="_of_receive", maintain_order="left"
    )
    pairs = _check_channels(pairs)
    return _collect(rows, pairs)


def _mark(rows: pl.DataFrame, condition: pl.Expr, reason: str, *, of_channel: bool = False) -> pl.DataFrame:
    """Set the reason of rows without one."""
    is_open = pl.col("unpaired").is_null()
    holds = condition.fill_null(value=False) & is_open
    if of_channel:
        holds = holds.any().over(_CHANNEL) & is_open
    return rows.with_columns(
        unpaired=pl.when(holds).then(pl.lit(reason, UNPAIRED)).otherwise(pl.col("unpaired"))
    )


def _find_wildcards(rows: pl.DataFrame) -> pl.DataFrame:
    """Assign receives of any sender or tag to their channel; add `is_shared`: such a receive may belong to the channel."""
    is_open = pl.col("unpaired").is_null()
    is_wild = is_open & ~pl.col("is_send") & (pl.col("sender").is_null() | pl.col("tag").is_null())
    pattern = ["communicator", "receiver", "sender", "tag"]
    patterns = rows.filter(is_wild).select(pattern).unique(maintain_order=True).with_row_index("pattern")
    if patterns.is_empty():
        return rows.with_columns(is_shared=pl.lit(value=False))
    channels = rows.filter(is_open & pl.col("is_send")).select(_CHANNEL).unique(maintain_order=True)
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
    joined = rows.join(found, on=pattern, how="left", nulls_equal=True, maintain_order="left")
    filled = joined.with_columns(
        sender=pl.coalesce("sender", "sender_of_send"), tag=pl.coalesce("tag", "tag_of_send")
    )
    filled = filled.join(
        shared.unique(_CHANNEL), on=_CHANNEL, how="left", maintain_order="left"
    ).with_columns(pl.col("is_shared").fill_null(value=False))
    is_any = ~pl.col("is_send") & (pl.col("sender").is_null() | pl.col("tag").is_null())
    return _mark(filled, is_any, "any sender or tag").drop("pattern", "sender_of_send", "tag_of_send")


def _check_channels(pairs: pl.DataFrame) -> pl.DataFrame:
    """Add to pairs `problem`: the reason that the messages of their channel are no pairs; null where they are."""
    size, buffer = pl.col("size_bytes"), pl.col("size_bytes_of_receive")
    fits = pl.when(pl.col("has_size_of_receive")).then(size == buffer).otherwise(size <= buffer)
    bound = relative_bound("_of_receive")
    is_late = pl.col("end_ns_of_receive") + bound < pl.col("start_ns")
    comparable = is_comparable("_of_receive")
    is_wrong = ~fits.fill_null(value=True) | (comparable & is_late).fill_null(value=False)
    return pairs.with_columns(
        problem=pl.when(is_wrong.any().over(_CHANNEL))
        .then(pl.lit("sizes or times that do not fit", UNPAIRED))
        .when(~comparable)
        .then(pl.lit("clocks that cannot be compared", UNPAIRED))
    )


def _collect(rows: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Build `MPI_PAIRS` of the numbered pairs, leaving out channels whose order is unknown."""
    is_open = pl.col("unpaired").is_null()
    sent = (pl.col("is_send") & is_open).sum().over(_CHANNEL)
    received = (~pl.col("is_send") & is_open).sum().over(_CHANNEL)
    # from the first message on, a channel may have more on one side at its end; one that others may share may not
    is_first = pl.col("is_whole").all().over(_CHANNEL)
    counted = rows.with_columns(
        sent=sent, received=received, is_first=is_first, from_first=is_first & ~pl.col("is_shared")
    )
    has_other = (pl.col("sent") > 0) & (pl.col("received") > 0)
    differs = has_other & (pl.col("sent") != pl.col("received")) & ~pl.col("from_first")
    counted = _mark(counted, differs, "different counts")
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
