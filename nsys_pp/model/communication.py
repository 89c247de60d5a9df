"""Messages and collectives -> NCCL_CALLS, MPI_CALLS, MPI_MESSAGES.

NCCL adds structures to its own NVTX ranges (since 2.16; exported from schema 3.24 on). Fields differ by
function and by version, and are found by name.

Facts about MPI, of recordings of Open MPI programs by nsys 2023.4 and 2024.2: the rank of the peer is one in
the communicator; a receive that waits has the sender, the tag and the size of the message even if it takes
any; `MPI_Sendrecv` has two rows with one start, the send first, with the earlier end; `MPI_Waitall` has one
row for each request, and `MPI_Test` only those that found it complete; messages to no rank are not among
them.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.conform import conform, extend_schema
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import MPI_CALLS, MPI_MESSAGES, NCCL_CALLS
from nsys_pp.model.names import Structures, resolve

_COMMUNICATOR = "NCCL communicator ID"  # structures without it come from other programs
_FIELDS = {  # NCCL's name -> ours
    _COMMUNICATOR: "communicator",
    "Rank": "rank",
    "No. of ranks": "rank_count",
    "CUDA device": "device_id",
    "Peer rank": "peer",
    "Message size [bytes]": "size_bytes",
}
_EVENTS = extend_schema(NCCL_CALLS, {"process_key": pl.Int64, "device_id": pl.Int64}, name="NCCL_EVENTS")


def read_nccl_events(raw: RawReport, structures: Sequence[Structures]) -> pl.DataFrame:
    """Read the payloads of NCCL's ranges and marks.

    Args:
        raw: A report that was read with group "communication".
        structures: From `read_structures`.

    Returns:
        `NCCL_CALLS` with `process_key` and `device_id` (CUDA ordinal of the rank; only for the
        creation of a communicator), by range_id.
    """
    payloads = raw["payloads"]
    parts = [
        structure.fields.select(
            pl.lit(payloads["row"].gather(structure.at)).alias("range_id"),
            pl.lit(payloads["thread"].gather(structure.at)).alias("thread"),
            *(
                pl.col(theirs).cast(_EVENTS[ours], strict=False).alias(ours)
                if theirs in structure.fields.columns
                else pl.lit(None, dtype=_EVENTS[ours]).alias(ours)
                for theirs, ours in _FIELDS.items()
            ),
        )
        for structure in structures
        if _COMMUNICATOR in structure.fields.columns
    ]
    if not parts or "communication" not in raw.groups:
        return _EVENTS.to_frame()
    events = pl.concat(parts).with_columns(process_key=process_key(pl.col("thread"))).sort("range_id")
    return conform(events, _EVENTS)


def build_nccl_calls(events: pl.DataFrame, ranges: pl.DataFrame | None) -> pl.DataFrame:
    """Keep the payloads of ranges.

    Args:
        events: From `read_nccl_events`.
        ranges: `RANGES`; None if they were not read: payloads of marks are kept, too.

    Returns:
        `NCCL_CALLS` by range_id.
    """
    if ranges is not None and not events.is_empty():
        events = events.join(ranges, on="range_id", how="semi", maintain_order="left")
    return conform(events, NCCL_CALLS)


_KEYS = ["process_key", "communicator"]


def build_mpi_calls(raw: RawReport) -> pl.DataFrame:
    """Build the messages and collectives, with the sizes of their communicators.

    The size of a collective is the contribution of the rank, else the received data. The peer is null for
    MPI_ANY_SOURCE and MPI_PROC_NULL.

    Returns:
        `MPI_CALLS` by start_ns.
    """
    if raw["mpi_messages"].is_empty() and raw["mpi_collectives"].is_empty():
        return MPI_CALLS.to_frame()
    messages = raw["mpi_messages"].with_columns(is_collective=pl.lit(value=False))
    collectives = raw["mpi_collectives"].with_columns(
        is_collective=pl.lit(value=True), bytes=pl.coalesce("bytes", "received_bytes")
    )
    calls = (
        pl.concat([messages, collectives], how="diagonal")
        .sort("start", maintain_order=True)
        .with_columns(process_key=process_key(pl.col("thread")))
    )
    return (
        calls.with_columns(member_count=_count_members(calls, raw))
        .select(
            "process_key",
            thread_key="thread",
            name=resolve(calls["name_id"], raw["strings"]),
            is_collective="is_collective",
            communicator="communicator",
            member_count="member_count",
            peer=pl.when(pl.col("peer") >= 0).then("peer"),
            tag="tag",
            size_bytes="bytes",
            start_ns="start",
            end_ns="end",
        )
        .pipe(conform, MPI_CALLS)
    )


def _count_members(calls: pl.DataFrame, raw: RawReport) -> pl.Series:
    """Find the size of the communicator of each call.

    At its last creation before the call, else at its first.
    """
    processes = raw["ranks"].select("rank", process_key=process_key(pl.col("thread"))).drop_nulls().unique()
    created = (
        raw["mpi_communicators"]
        .drop_nulls(["communicator", "size"])
        .join(processes, on="rank", how="inner")
        .with_columns(pl.col("time").fill_null(0))
        .sort("time")
    )
    first = created.unique(_KEYS, keep="first", maintain_order=True).select(*_KEYS, first_size="size")
    return (
        calls.select(*_KEYS, "start")
        .join_asof(
            created.select(*_KEYS, "time", "size"),
            left_on="start",
            right_on="time",
            by=_KEYS,
            check_sortedness=False,
        )
        .join(first, on=_KEYS, how="left", maintain_order="left")
        .select(member_count=pl.coalesce("size", "first_size"))
        .to_series()
    )


_SEND, _RECEIVE = r"(?i)^p?mpi_[a-z]*send", r"(?i)^p?mpi_[a-z]*recv"
_BOTH, _INIT, _START, _BEGIN = "(?i)sendrecv", "(?i)_init$", "(?i)mpi_start", r"(?i)^p?mpi_init"
_REQUEST = ["process_key", "request"]


def build_mpi_messages(raw: RawReport) -> pl.DataFrame:
    """Build the sends and receives, each with its communicator and the end of the call that waits for it.

    A persistent request is one message per start.

    Returns:
        `MPI_MESSAGES`; empty unless MPI was read on request. Calls that are neither a send nor a receive are
        left out.
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
    others = raw["activities"].filter(pl.col("source") == "MPI")
    is_begin = (
        resolve(others["name_id"], raw["strings"], dtype=pl.String()).fill_null("").str.contains(_BEGIN)
    )
    begun = others.filter(is_begin).select(process_key(pl.col("thread"))).to_series().drop_nulls().unique()
    return (
        messages.with_columns(is_whole=pl.col("process_key").is_in(begun.implode()))
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
    """Build a message per start of a persistent request.

    The call that prepared it, at the time of the start.
    """
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
    """Add `is_send`.

    Of the two rows of a call that sends and receives, the one that ends first is the send.
    """
    is_both = pl.col("name").str.contains(_BOTH)
    one = messages.filter(~is_both).with_columns(
        is_send=pl.when(pl.col("name").str.contains(_SEND))
        .then(pl.lit(value=True))
        .when(pl.col("name").str.contains(_RECEIVE))
        .then(pl.lit(value=False))
    )
    keys = ["thread", "start"]
    both = (
        messages.filter(is_both)
        .sort(*keys, "end", maintain_order=True)
        .with_columns(is_send=pl.when(pl.len().over(keys) == 2).then(pl.int_range(pl.len()).over(keys) == 0))
    )
    return pl.concat([one, both]).drop_nulls("is_send")


def _find_ends(messages: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Set the end of messages with a request.

    The end of the first call that waits for it, before the request is used again.
    """
    messages = messages.with_row_index("row")
    ended = (
        messages.drop_nulls("request")
        .sort("start", maintain_order=True)
        .join_asof(
            waits.select(*_REQUEST, "start", waited_ns="start", until_ns="end")
            .drop_nulls("request")
            .sort("start", maintain_order=True),
            on="start",
            by=_REQUEST,
            strategy="forward",
            check_sortedness=False,
        )
        .with_columns(next_ns=pl.col("start").shift(-1).over(_REQUEST))
    )
    is_own = pl.col("next_ns").is_null() | (pl.col("waited_ns") <= pl.col("next_ns"))
    ends = ended.select("row", until_ns=pl.when(is_own).then("until_ns"))
    return messages.join(ends, on="row", how="left", maintain_order="left").with_columns(
        end=pl.when(pl.col("request").is_null()).then("end").otherwise("until_ns")
    )


def _find_communicators(messages: pl.DataFrame, raw: RawReport) -> pl.DataFrame:
    """Add the communicator, its size and the rank of the process there.

    As last created under the handle before the call.

    The communicator of all ranks is the one without a parent; others are known by the process that numbered
    them.
    """
    processes = raw["ranks"].select("rank", process_key=process_key(pl.col("thread"))).drop_nulls().unique()
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
            .when((pl.col("parent").fill_null(0) == 0) & (pl.col("local_rank") == pl.col("rank")))
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
