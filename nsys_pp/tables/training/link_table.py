"""Links between lanes: how long messages wait and travel on each, and which link is slow."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import Training
from nsys_pp.tables.compare.noise import median_of_others
from nsys_pp.tables.training.table import Columns, build_table, schema_of
from nsys_pp.units import NS_PER_S

LEAST_EXCESS = 0.25
"""Links of one kind that differ by less than this share are equally fast."""

_PAIR = ["sender", "receiver"]
_COLUMNS: Columns = {
    "sender": (pl.UInt32, "lane"),
    "receiver": (pl.UInt32, "lane"),
    "link": (pl.String, "both by name"),
    "sender_stage": (pl.Int64, "null where unknown"),
    "receiver_stage": (pl.Int64, "null where unknown"),
    "is_between_machines": (pl.Boolean, "the lanes are on two machines"),
    "message_count": (pl.Int64, "messages of which both sides are known"),
    "size_bytes": (pl.Int64, "all of them; null where any size is unknown"),
    "median_wait_ns": (pl.Float64, "of a receive, for its sender to begin"),
    "p95_wait_ns": (pl.Float64, "the same, of which 95 % are shorter"),
    "timed_count": (
        pl.Int64,
        "messages that tell how fast the link is: neither buffered nor in one kernel with others",
    ),
    "median_transfer_ns": (pl.Float64, "of these, from when both sides have begun to the end of the receive"),
    "p95_transfer_ns": (pl.Float64, "the same, of which 95 % are shorter"),
    "bytes_per_s": (pl.Float64, "size over transfer; null where sizes are unknown"),
    "usual_transfer_ns": (
        pl.Float64,
        "median of the other links between lanes of one machine, or of two, at the same sizes; null without any",
    ),
    "excess_fraction": (pl.Float64, "how much longer transfers take than that"),
    "spread_ns": (pl.Float64, "median absolute deviation of the transfers"),
    "bound_ns": (pl.Int64, "error of waits and transfers, from the alignment of clocks; null where unknown"),
    "is_slow": (
        pl.Boolean,
        "transfers take longer by more than 25 %, 3 spreads, and the bounds of this link and the others",
    ),
}


def build_link_table(training: Training) -> pl.DataFrame:
    """Make the table of links: one row per ordered pair of lanes, by those.

    A message buffered by its sender says nothing of the link: its receive finds the data there. A kernel that
    sends and receives lasts as long as the slower of both, so such messages count only where a link has no
    others. Activations and their gradients have the same size: where sizes are unknown, all messages count as
    of one size.

    Returns:
        A frame whose columns `LINK_TABLE` describes.
    """
    transfers = _time(training.transfers)
    links = transfers.group_by(_PAIR).agg(
        message_count=pl.len(),
        size_bytes=pl.when(pl.col("size_bytes").is_not_null().all()).then(pl.col("size_bytes").sum()),
        median_wait_ns=pl.col("receive_wait_ns").median(),
        p95_wait_ns=pl.col("receive_wait_ns").quantile(0.95),
        timed_count=pl.col("timed_ns").count(),
        median_transfer_ns=pl.col("timed_ns").median(),
        p95_transfer_ns=pl.col("timed_ns").quantile(0.95),
        bytes_per_s=pl.col("timed_bytes").sum()
        / pl.col("timed_ns").filter(pl.col("timed_bytes").is_not_null()).sum()
        * NS_PER_S,
        spread_ns=(pl.col("timed_ns") - pl.col("timed_ns").median()).abs().median(),
        bound_ns=pl.col("bound_ns").max(),
    )
    placed = _place(links, training)
    return (
        placed.with_columns(pl.when(pl.col("bytes_per_s").is_finite()).then("bytes_per_s"))
        .join(_usual(transfers, placed), on=_PAIR, how="left")
        .with_columns(is_slow=_is_slow())
        .sort(_PAIR)
        .pipe(conform, schema_of(_COLUMNS))
    )


def _time(transfers: pl.DataFrame) -> pl.DataFrame:
    """Add the transfer and size of those messages that tell how fast their link is, as `timed_ns` and `timed_bytes`."""
    sent = transfers.select(lane="sender", kernel_ns="send_start_ns", is_both=pl.lit(True)).unique()
    received = transfers.select(lane="receiver", kernel_ns="receive_start_ns", is_both=pl.lit(True)).unique()
    of_sender, of_receiver = ["sender", "send_start_ns"], ["receiver", "receive_start_ns"]
    is_grouped = pl.col("is_both").fill_null(False) | pl.col("is_both_too").fill_null(False)
    both = (
        transfers.join(received, left_on=of_sender, right_on=["lane", "kernel_ns"], how="left")
        .join(sent, left_on=of_receiver, right_on=["lane", "kernel_ns"], how="left", suffix="_too")
        .with_columns(is_alone=~(pl.col("is_buffered") | is_grouped))
    )
    tells = pl.col("is_alone") | ~(pl.col("is_buffered") | pl.col("is_alone").any().over(_PAIR))
    return both.with_columns(
        timed_ns=pl.when(tells).then("transfer_ns"), timed_bytes=pl.when(tells).then("size_bytes")
    )


def _place(links: pl.DataFrame, training: Training) -> pl.DataFrame:
    """Add the names, stages and machines of both sides."""
    for side in _PAIR:
        known = training.lanes.select(
            pl.col("lane").alias(side),
            pl.col("stage").alias(f"{side}_stage"),
            pl.col("label").alias(f"{side}_label"),
            pl.col("machine").alias(f"{side}_machine"),
        )
        links = links.join(known, on=side, how="left")
    return links.with_columns(
        link=pl.format("{} -> {}", "sender_label", "receiver_label"),
        is_between_machines=pl.col("sender_machine") != pl.col("receiver_machine"),
    )


def _usual(transfers: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return, of each link, what its messages would take on the others of its kind, and how much longer they take."""
    kind = ["is_between_machines", "size_bytes"]
    sized = (
        transfers.drop_nulls("timed_ns")
        .group_by(*_PAIR, "size_bytes")
        .agg(pl.col("timed_ns").median(), weight=pl.len(), bound_ns=pl.col("bound_ns").max())
        .join(links.select(*_PAIR, "is_between_machines"), on=_PAIR)
    )
    unbounded = pl.col("bound_ns").fill_null(0)
    return (
        sized.with_columns(
            usual_ns=median_of_others(sized, by=kind, value="timed_ns"),
            others_bound_ns=median_of_others(sized.with_columns(unbounded), by=kind, value="bound_ns"),
        )
        .drop_nulls("usual_ns")
        .group_by(_PAIR)
        .agg(
            usual_transfer_ns=(pl.col("usual_ns") * pl.col("weight")).sum() / pl.col("weight").sum(),
            excess_ns=((pl.col("timed_ns") - pl.col("usual_ns")) * pl.col("weight")).sum()
            / pl.col("weight").sum(),
            others_bound_ns=pl.col("others_bound_ns").max(),
        )
        .with_columns(
            excess_fraction=pl.when(pl.col("usual_transfer_ns") > 0).then(
                pl.col("excess_ns") / pl.col("usual_transfer_ns")
            )
        )
    )


def _is_slow() -> pl.Expr:
    excess = pl.col("excess_ns")
    return (
        (pl.col("excess_fraction") > LEAST_EXCESS)
        & (excess > 3 * pl.col("spread_ns"))
        & (excess > pl.col("bound_ns") + pl.col("others_bound_ns"))
    ).fill_null(False)


LINK_TABLE = build_table("Links between lanes", _COLUMNS, build_link_table)
