"""Drawings of the messages of MPI: a row of each process, with an arrow from each send to its receive.

CPU: python 4242
  MPI messages          from the start of the send or receive to the end of the call that waits for it
"""

from __future__ import annotations

import hashlib

import polars as pl

from nsys_pp.frames.part import Track
from nsys_pp.output.trace.drawing import Drawing, SliceSubtrack, Subtrack, sequence_id
from nsys_pp.output.trace.slices import nested_subtracks

TITLE = "MPI messages"
_RANK = 5000  # of the process, above its threads
_ARGUMENTS = ("call", "peer", "tag", "size_bytes", "communicator", "is_guess", "not_joined")


def draw_mpi_messages(
    messages: pl.DataFrame,
    pairs: pl.DataFrame,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> dict[int, Drawing]:
    """Draw the messages of a run, report by report, on the trace's clock.

    An arrow joins a send to the slice "message" inside the receive: the receive usually starts first, and
    viewers draw arrows from the earlier slice to the later one. Where the end of a receive is unknown, or is
    not after the start of the send, there is no arrow.

    Args:
        messages: `RUN_MPI_MESSAGES`.
        pairs: `MPI_PAIRS` of them.
        start_ns: Omit messages that end before this time. Default: no limit.
        end_ns: Omit messages that start at or after this time. Default: no limit.

    Returns:
        Drawings by report; empty without messages.
    """
    if messages.is_empty():
        return {}
    slices = _build_slices(messages.hstack(pairs))
    last = pl.coalesce("end_ns", "start_ns")
    if start_ns is not None:
        slices = slices.filter(last >= start_ns)
    if end_ns is not None:
        slices = slices.filter(pl.col("start_ns") < end_ns)
    drawings = {}
    for (report,), of_report in sorted(slices.partition_by("report", as_dict=True).items()):
        number = int(str(report))
        tracks, subtracks = [], list[Subtrack]()
        for (row,), own in of_report.partition_by("process_row", as_dict=True, maintain_order=True).items():
            path = (str(row), TITLE)
            tracks.append(Track(path=path, name=TITLE, rank=_RANK))
            subtracks += _draw_row(own, path)
        drawings[number] = Drawing(report_id=_report_id(number), tracks=tracks, subtracks=subtracks)
    return drawings


def _build_slices(messages: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of messages, and of arrivals inside receives.

    Report, process_row, id, outer, and the columns of `SLICES`.
    """
    rows = messages.with_row_index("id").with_columns(pl.col("id").cast(pl.Int64))
    sends = rows.select("id", sent_ns="start_ns")
    rows = rows.join(sends, left_on="other", right_on="id", how="left", maintain_order="left").with_columns(
        pl.col("other").cast(pl.Int64)
    )
    left_ns = pl.col("sent_ns") + 1  # after the send: equal times have no direction
    arrives = (~pl.col("is_send") & (left_ns < pl.col("end_ns"))).fill_null(value=False)
    joined = rows.filter(arrives).select(send="other").with_columns(is_joined=pl.lit(value=True))
    rows = rows.join(joined, left_on="id", right_on="send", how="left", maintain_order="left")
    high = pl.lit(sequence_id(_report_id(-1)) << 32, pl.UInt64)
    own = {name: pl.col(name) for name in ("report", "process_row", "peer", "tag", "size_bytes")} | {
        "communicator": pl.col("communicator").cast(pl.Categorical()),
        "is_guess": pl.when("is_guess").then(pl.lit(value=True)),
        "not_joined": pl.col("unpaired").cast(pl.String).cast(pl.Categorical()),
        "call": pl.col("name"),
    }
    verb = pl.when("is_send").then(pl.lit("send to ")).otherwise(pl.lit("receive from "))
    peer = pl.format("rank {}", pl.col("peer"))
    calls = rows.select(
        "id",
        **own,
        start_ns="start_ns",
        end_ns=pl.coalesce("end_ns", "start_ns"),
        outer=pl.lit(None, pl.Int64),
        title=pl.concat_str(verb, peer.fill_null("any rank")).cast(pl.Categorical()),
        color=pl.when("is_send").then(pl.lit("send")).otherwise(pl.lit("receive")).cast(pl.Categorical()),
        flow_id=pl.when("is_joined").then(pl.col("id").cast(pl.UInt64) + high),
    )
    arrivals = rows.filter(arrives).select(
        id=pl.col("id") + len(rows),
        **own,
        start_ns=pl.max_horizontal(left_ns, "start_ns"),
        end_ns="end_ns",
        outer="id",
        title=pl.lit("message").cast(pl.Categorical()),
        color=pl.lit("communication").cast(pl.Categorical()),
        flow_id=pl.col("other").cast(pl.UInt64) + high,
    )
    return pl.concat([calls, arrivals])


def _draw_row(slices: pl.DataFrame, path: tuple[str, ...]) -> list[SliceSubtrack]:
    row_of = slices.select("id", row=pl.int_range(pl.len()))
    parents = slices.join(row_of, left_on="outer", right_on="id", how="left", maintain_order="left")["row"]
    columns = slices.select(
        "start_ns",
        "end_ns",
        name="title",
        color="color",
        flow_id="flow_id",
        **{name: name for name in _ARGUMENTS},
    ).with_columns(parents.fill_null(-1).alias("parent"))
    return [
        SliceSubtrack(track=path, number=number, content=content)
        for _, number, content in nested_subtracks(columns)
    ]


def _report_id(report: int) -> int:
    digest = hashlib.blake2b(f"nsys-pp messages of MPI\0{report}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
