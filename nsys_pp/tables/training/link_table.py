"""Waits, transfers and bandwidths of messages on each link between lanes, and slow links."""

from __future__ import annotations

import polars as pl

from nsys_pp.arrays.columns import numbers
from nsys_pp.arrays.search import find_equal_rows
from nsys_pp.arrays.series import build_column
from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import Training
from nsys_pp.tables.noise import median_of_others
from nsys_pp.units import NS_PER_S

LEAST_EXCESS = 0.25
"""Links of one kind that differ by less than this share are equally fast."""
LEAST_MESSAGES = 6
"""Fewer messages do not show that a link is slow."""
FEW_MESSAGES = 20
"""Fewer messages show it only where they exceed each limit twofold: some of them may share one cause, as congestion for a while."""
_NOISE_SPREADS = 3

_PAIR = ["sender", "receiver"]
_COLUMNS = (
    Column("sender", pl.UInt32, "lane of the sender"),
    Column("receiver", pl.UInt32, "lane of the receiver"),
    Column("link", pl.String, "names of both lanes"),
    Column("sender_stage", pl.Int64, "stage of the sender; null: unknown"),
    Column("receiver_stage", pl.Int64, "stage of the receiver; null: unknown"),
    Column("is_between_machines", pl.Boolean, "the lanes are on two machines"),
    Column("message_count", pl.Int64, "messages with both sides recorded"),
    Column(
        "doubtful_count",
        pl.Int64,
        "messages of these whose pair of send and receive is doubtful",
        heading="Doubtful",
        priority=2,
    ),
    Column("size_bytes", pl.Int64, "sum of their sizes; null if any size is unknown"),
    Column(
        "median_wait_ns",
        pl.Float64,
        "wait of a receive for the begin of its send; median",
        heading="Wait",
        display_unit="ms",
        priority=5,
    ),
    Column(
        "p95_wait_ns",
        pl.Float64,
        "95th percentile of these waits",
        heading="95 % wait",
        display_unit="ms",
        priority=3,
    ),
    Column(
        "timed_count",
        pl.Int64,
        "messages that show the speed of the link: neither doubtful, nor buffered, nor in one kernel with others",
    ),
    Column(
        "median_transfer_ns",
        pl.Float64,
        "transfer of these, from the start of both sides to the end of the receive; median",
        heading="Transfer",
        display_unit="us",
        priority=5,
    ),
    Column(
        "p95_transfer_ns",
        pl.Float64,
        "95th percentile of these transfers",
        heading="95 % transfer",
        display_unit="us",
        priority=3,
    ),
    Column("bytes_per_s", pl.Float64, "size over transfer; null if sizes are unknown"),
    Column(
        "usual_transfer_ns",
        pl.Float64,
        "median of the other links within a machine, or between machines, at the same sizes; null without any",
    ),
    Column("excess_fraction", pl.Float64, "relative excess of transfers over the usual one"),
    Column("spread_ns", pl.Float64, "median absolute deviation of the transfers"),
    Column(
        "bound_ns",
        pl.Int64,
        "error of waits and transfers from the alignment of clocks; null: unknown",
        heading="Clock error",
        display_unit="us",
        priority=4,
    ),
    Column(
        "is_slow",
        pl.Boolean,
        "20 transfers or more are longer by more than 25 %, 3 deviations (spread_ns), and the bounds of this link and the"
        " others; 6 to 19 transfers are longer by twice as much",
        heading="Slow",
        is_optional=True,
    ),
)


def build_link_table(training: Training) -> pl.DataFrame:
    """Build the rows of `LINK_TABLE`: one per ordered pair of lanes, sorted by these.

    A message that its sender buffered does not show the speed of the link, as the data has already arrived when the
    receive begins. A kernel that sends and receives lasts as long as the slower of both, so such messages count only
    if the link has no others. Activations and their gradients have the same size: where sizes are unknown, all
    messages are assumed to have one size. Times are null where the clocks of both lanes cannot be compared.
    """
    transfers = time_transfers(training.transfers)
    links = transfers.group_by(_PAIR).agg(
        message_count=pl.len(),
        doubtful_count=pl.col("doubtful").count(),
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
    described = _add_lanes(links, training)
    return (
        described.with_columns(pl.when(pl.col("bytes_per_s").is_finite()).then("bytes_per_s"))
        .join(_compare_links(transfers, described), on=_PAIR, how="left")
        .with_columns(is_slow=_is_slow())
        .sort(_PAIR)
        .pipe(conform, build_table_schema(_COLUMNS))
    )


def time_transfers(transfers: pl.DataFrame) -> pl.DataFrame:
    """Add `timed_ns` and `timed_bytes`: transfer and size of messages that show the speed of their link; else null."""
    sent, received = (
        [numbers(transfers[name]) for name in kernel]
        for kernel in (("sender", "send_start_ns"), ("receiver", "receive_start_ns"))
    )
    is_grouped = (find_equal_rows(received, sent) >= 0) | (find_equal_rows(sent, received) >= 0)
    marked = transfers.with_columns(
        is_usable=~pl.col("is_buffered") & pl.col("doubtful").is_null()
    ).with_columns(is_alone=pl.col("is_usable") & build_column("", ~is_grouped))
    is_timed = pl.col("is_alone") | (pl.col("is_usable") & ~pl.col("is_alone").any().over(_PAIR))
    return marked.with_columns(
        timed_ns=pl.when(is_timed).then("transfer_ns"), timed_bytes=pl.when(is_timed).then("size_bytes")
    )


def _add_lanes(links: pl.DataFrame, training: Training) -> pl.DataFrame:
    """Add names, stages and machines of the lanes of each link."""
    for side in _PAIR:
        lanes = training.lanes.select(
            pl.col("lane").alias(side),
            pl.col("stage").alias(f"{side}_stage"),
            pl.col("label").alias(f"{side}_label"),
            pl.col("machine").alias(f"{side}_machine"),
        )
        links = links.join(lanes, on=side, how="left")
    return links.with_columns(
        link=pl.format("{} -> {}", "sender_label", "receiver_label"),
        is_between_machines=pl.col("sender_machine") != pl.col("receiver_machine"),
    )


def _compare_links(transfers: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return the usual transfer of each link, from the other links of its kind, and the excess over it."""
    kind = ["is_between_machines", "size_bytes"]
    sized = (
        transfers.drop_nulls("timed_ns")
        .group_by(*_PAIR, "size_bytes")
        .agg(pl.col("timed_ns").median(), weight=pl.len(), bound_ns=pl.col("bound_ns").max())
        .join(links.select(*_PAIR, "is_between_machines"), on=_PAIR)
    )
    known_bound = pl.col("bound_ns").fill_null(0)
    return (
        sized.with_columns(
            usual_ns=median_of_others(sized, by=kind, value="timed_ns"),
            others_bound_ns=median_of_others(sized.with_columns(known_bound), by=kind, value="bound_ns"),
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


def link_noise_ns() -> pl.Expr:
    """Return the excess of the median transfer of a link that noise explains, from the columns of `LINK_TABLE`."""
    return _strictness() * _NOISE_SPREADS * pl.col("spread_ns")


def _strictness() -> pl.Expr:
    return pl.when(pl.col("timed_count") < FEW_MESSAGES).then(2).otherwise(1)


def _is_slow() -> pl.Expr:
    excess = pl.col("excess_ns")
    return (
        (pl.col("timed_count") >= LEAST_MESSAGES)
        & (pl.col("excess_fraction") > _strictness() * LEAST_EXCESS)
        & (excess > link_noise_ns())
        & (excess > _strictness() * (pl.col("bound_ns") + pl.col("others_bound_ns")))
    ).fill_null(False)


def _omit_zero_doubt(links: pl.DataFrame) -> pl.DataFrame:
    """Replace counts of 0 by nulls: text formats omit columns of nulls."""
    return links.with_columns(pl.when(pl.col("doubtful_count") > 0).then("doubtful_count"))


LINK_TABLE = Table(
    name="links",
    title="Links between lanes",
    columns=_COLUMNS,
    caption=(
        "wait: from the begin of a receive to the begin of its send; transfer: the rest of the receive; medians of all messages"
    ),
    build=build_link_table,
    view=View(
        derive=_omit_zero_doubt,
        columns=(
            *(
                "message_count",
                "doubtful_count",
                "median_wait_ns",
                "p95_wait_ns",
                "median_transfer_ns",
                "p95_transfer_ns",
            ),
            *("bytes_per_s", "bound_ns", "is_slow", "link"),
        ),
    ),
)
