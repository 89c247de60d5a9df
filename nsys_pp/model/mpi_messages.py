"""Sends and receives of MPI between two ranks -> MPI_MESSAGES.

Facts, of recordings of Open MPI programs by nsys 2023.4 and 2024.2: the rank of the peer is one in the communicator; a receive that waits has the
sender, the tag and the size of the message even if it takes any; `MPI_Sendrecv` has two rows with one start, the send first, with the earlier
end; `MPI_Waitall` has one row for each request, and `MPI_Test` only those that found it complete; messages to no rank are not
among them.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.mpi_messages import MPI_MESSAGES
from nsys_pp.frames.raw import RawReport
from nsys_pp.model.names import resolve

_SEND, _RECEIVE = r"(?i)^p?mpi_[a-z]*send", r"(?i)^p?mpi_[a-z]*recv"
_BOTH, _INIT, _START, _BEGIN = "(?i)sendrecv", "(?i)_init$", "(?i)mpi_start", r"(?i)^p?mpi_init"
_REQUEST = ["process_key", "request"]


def build_mpi_messages(raw: RawReport) -> pl.DataFrame:
    """Build the sends and receives, each with its communicator and the end of the call that waits for it.

    A persistent request is one message per start.

    Returns:
        `MPI_MESSAGES`; empty unless MPI was read on request. Calls that are neither a send nor a receive are left out.
    """
    if "show_mpi" not in raw.groups or raw["mpi_messages"].is_empty():
        return MPI_MESSAGES.to_frame()
    name = resolve(raw["mpi_messages"]["name_id"], raw["strings"], dtype=pl.String())
    calls = raw["mpi_messages"].with_columns(
        name=name.fill_null(""), process_key=process_key(pl.col("thread"))
    )
    requests = raw["mpi_requests"].with_columns(
        name=resolve(raw["mpi_requests"]["name_id"], raw["strings"], dtype=pl.String()).fill_null(""),
        process_key=process_key(pl.col("thread")),
    )
    is_init, is_start = pl.col("name").str.contains(_INIT), pl.col("name").str.contains(_START)
    started = _start_persistent(calls.filter(is_init), requests.filter(is_start))
    messages = pl.concat([calls.filter(~is_init).select(started.columns), started])
    messages = _find_ends(_find_directions(messages), requests.filter(~is_start))
    messages = _find_communicators(messages, raw)
    return (
        messages.with_columns(is_whole=pl.col("process_key").is_in(_list_begun(raw)))
        .select(
            "process_key",
            "name",
            "is_send",
            "communicator",
            "rank",
            "member_count",
            "is_whole",
            thread_key="thread",
            peer=pl.when(pl.col("peer") >= 0).then("peer"),
            tag=pl.when(pl.col("tag") >= 0).then("tag"),
            size_bytes="bytes",
            has_size=pl.col("is_send") | pl.col("request").is_null(),
            start_ns="start",
            end_ns="end",
        )
        .sort("start_ns", maintain_order=True)
        .pipe(conform, MPI_MESSAGES)
    )


def _start_persistent(inits: pl.DataFrame, starts: pl.DataFrame) -> pl.DataFrame:
    """Build a message per start of a persistent request: the call that prepared it, at the time of the start."""
    columns = [
        "start",
        "end",
        "thread",
        "name",
        "communicator",
        "peer",
        "tag",
        "bytes",
        "request",
        "process_key",
    ]
    if inits.is_empty() or starts.is_empty():
        return inits.clear().select(columns)
    prepared = inits.select(
        *_REQUEST, "communicator", "peer", "tag", "bytes", "start", prepared="name"
    ).drop_nulls("request")
    return (
        starts.sort("start", maintain_order=True)
        .join_asof(prepared.sort("start"), on="start", by=_REQUEST, check_sortedness=False)
        .drop_nulls("prepared")
        .with_columns(name=pl.col("prepared").str.replace(_INIT, ""))
        .select(columns)
    )


def _find_directions(messages: pl.DataFrame) -> pl.DataFrame:
    """Add `is_send`; of the two rows of a call that sends and receives, the one that ends first is the send."""
    is_both = pl.col("name").str.contains(_BOTH)
    one = messages.filter(~is_both).with_columns(
        is_send=pl.when(pl.col("name").str.contains(_SEND))
        .then(pl.lit(value=True))
        .when(pl.col("name").str.contains(_RECEIVE))
        .then(pl.lit(value=False))
    )
    keys = ["thread", "start"]
    both = messages.filter(is_both).sort(*keys, "end", maintain_order=True)
    both = both.with_columns(
        is_send=pl.when(pl.len().over(keys) == 2).then(pl.int_range(pl.len()).over(keys) == 0)
    )
    return pl.concat([one, both]).drop_nulls("is_send")


def _find_ends(messages: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Set the end of messages with a request: the end of the first call that waits for it, before the request is used again."""
    messages = messages.with_row_index("row")
    open_ones = messages.drop_nulls("request").sort("start", maintain_order=True)
    ended = open_ones.join_asof(
        waits.select(*_REQUEST, "start", waited_ns="start", until_ns="end")
        .drop_nulls("request")
        .sort("start"),
        on="start",
        by=_REQUEST,
        strategy="forward",
        check_sortedness=False,
    ).with_columns(next_ns=pl.col("start").shift(-1).over(_REQUEST))
    is_own = pl.col("next_ns").is_null() | (pl.col("waited_ns") <= pl.col("next_ns"))
    ends = ended.select("row", until_ns=pl.when(is_own).then("until_ns"))
    return messages.join(ends, on="row", how="left", maintain_order="left").with_columns(
        end=pl.when(pl.col("request").is_null()).then("end").otherwise("until_ns")
    )


def _find_communicators(messages: pl.DataFrame, raw: RawReport) -> pl.DataFrame:
    """Add the communicator, its size and the rank of the process there: as last created under the handle before the call.

    The communicator of all ranks is the one without a parent; others are known by the process that numbered them.
    """
    processes = raw["ranks"].select("rank", process_key=process_key(pl.col("thread"))).drop_nulls().unique()
    is_world = (pl.col("parent").fill_null(0) == 0) & (pl.col("local_rank") == pl.col("rank"))
    created = (
        raw["mpi_communicators"]
        .drop_nulls("communicator")
        .join(processes, on="rank", how="inner")
        .select(
            "process_key",
            "communicator",
            start=pl.col("time").fill_null(0),
            known_as=pl.when(pl.col("root").is_not_null() & pl.col("number").is_not_null())
            .then(pl.format("{}:{}", "root", "number"))
            .when(is_world)
            .then(pl.format("all {}", "size")),
            rank="local_rank",
            member_count="size",
        )
        .sort("start", maintain_order=True)
    )
    joined = messages.sort("start", maintain_order=True).join_asof(
        created, on="start", by=["process_key", "communicator"], check_sortedness=False
    )
    is_known = pl.col("known_as").is_not_null() & pl.col("rank").is_not_null()
    return joined.with_columns(communicator=pl.when(is_known).then("known_as"))


def _list_begun(raw: RawReport) -> list[int]:
    """List the processes whose first call of MPI was recorded."""
    calls = raw["activities"].filter(pl.col("source") == "MPI")
    names = resolve(calls["name_id"], raw["strings"], dtype=pl.String())
    return (
        calls.filter(names.fill_null("").str.contains(_BEGIN))
        .select(process_key(pl.col("thread")))
        .to_series()
        .drop_nulls()
        .unique()
        .to_list()
    )
