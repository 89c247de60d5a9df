"""Bytes of network cards and switches by step, with the messages and collectives of that time."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, build_table_schema
from nsys_pp.frames.training import Training

_COLUMNS = (
    Column("step", pl.Int64, "number of the step", is_group=True, priority=9),
    Column("machine", pl.String, "machine that recorded the metrics", is_name=True, priority=8),
    Column(
        "source",
        pl.String,
        "all network cards of the machine, or the name of a switch",
        is_name=True,
        priority=7,
    ),
    Column("sent_bytes", pl.Float64, "bytes sent in the step; null: not recorded", priority=9),
    Column("received_bytes", pl.Float64, "bytes received in the step; null: not recorded", priority=9),
    Column(
        "sent_peak_bytes_per_s",
        pl.Float64,
        "largest sample of any card",
        heading="Sent peak",
        priority=5,
    ),
    Column(
        "received_peak_bytes_per_s",
        pl.Float64,
        "largest sample of any card",
        heading="Received peak",
        priority=4,
    ),
    Column(
        "message_bytes",
        pl.Int64,
        "messages of NCCL in the step from ranks of the machine to other machines, as recorded; null: none of known size",
        priority=6,
    ),
    Column(
        "collective_bytes",
        pl.Int64,
        "data of collectives of NCCL of ranks of the machine that began in the step, as recorded, without the factor of their"
        " algorithm; null: none of known size",
        priority=6,
    ),
    Column(
        "communication_ns",
        pl.Int64,
        "kernels of communication in the step, summed over the machine's lanes",
        priority=3,
    ),
)


def build_network_table(training: Training, sums: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `NETWORK_TABLE`, by step, machine and source.

    Args:
        training: The training.
        sums: `NETWORK_SUMS`.
    """
    machines = training.lanes.select("lane", "machine")
    sender = machines.rename({"lane": "sender"})
    receiver = machines.rename({"lane": "receiver", "machine": "to"})
    messages = (
        training.transfers.join(sender, on="sender")
        .join(receiver, on="receiver")
        .filter(pl.col("machine") != pl.col("to"))
        .drop_nulls(["size_bytes", "step"])
        .group_by("step", "machine")
        .agg(message_bytes=pl.col("size_bytes").sum())
    )
    kernels = (
        training.kernels.filter("is_communication")
        .join(machines, on="lane")
        .drop_nulls("step")
        .group_by("step", "machine")
        .agg(communication_ns=pl.col("total_ns").sum())
    )
    is_card = pl.col("source") == "network cards"
    return (
        sums.join(messages, on=["step", "machine"], how="left", maintain_order="left")
        .join(kernels, on=["step", "machine"], how="left", maintain_order="left")
        .with_columns(pl.when(is_card).then(pl.col("message_bytes", "communication_ns")))
        .sort("step", "machine", "source")
        .pipe(conform, build_table_schema(_COLUMNS))
    )


NETWORK_TABLE = Table(
    name="network",
    title="Network by step",
    columns=_COLUMNS,
    caption=(
        "bytes are rates of nsys times their intervals; a sample that reaches into two steps counts by its share of time. Steps of a"
        " machine end where the next one begins on any of its GPUs. What other programs send through the cards counts, too"
    ),
    build=build_network_table,
    empty="no network metrics",  # the caller knows the reason
)
