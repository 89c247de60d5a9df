"""Tables of a training.

Steps, stages, lanes, kinds, families, iterations, gaps, links, stragglers and more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.columns import numbers, whole_numbers
from nsys_pp.arrays.search import expand_windows, find_equal_rows, find_first, find_last
from nsys_pp.frames.aggregates import FAMILIES, FAMILY, MATRIX_FAMILIES
from nsys_pp.frames.clock import list_comparable_steps
from nsys_pp.frames.report import MOST_EARLY_NS, is_clock, rank_metric
from nsys_pp.frames.table import Column, Table, View
from nsys_pp.frames.training import (
    BATCH_COUNTS,
    BATCH_KIND,
    BUBBLE_CAUSES,
    CAUSE,
    GAPS,
    HOST_ACTIVITIES,
    HOST_ACTIVITY,
    JOB_KIND,
    JOB_KINDS,
    MEANINGS,
    METRIC_GROUPS,
    RUN_PART,
    Schedule,
    Training,
)
from nsys_pp.hardware import find_peak
from nsys_pp.tables.analysis import (
    FEWEST,
    POSITION_COLUMNS,
    Evidence,
    classify_training,
    select_whole_steps,
    sum_coverage,
    sum_lane_steps,
)
from nsys_pp.tables.critical_path import CRITICAL_PATH, find_critical_path
from nsys_pp.tables.noise import MOST, median_of_others
from nsys_pp.units import NS_PER_S, format_count, format_duration

TENSOR_CORE_COLUMNS = (
    Column(
        "tensor_core_fraction",
        pl.Float64,
        "share of the durations with tensor cores, by the names of kernels; null: no products, or unknown",
        heading="Tensor cores",
        priority=5,
    ),
    Column(
        "tensor_core_unknown_fraction",
        pl.Float64,
        "share of the durations of kernels with names that do not show the use of tensor cores; null: no "
        "products",
        heading="or unknown",
        priority=4,
    ),
)


def sum_tensor_cores(duration: pl.Expr) -> dict[str, pl.Expr]:
    """Return sums for `share_tensor_cores`.

    The durations with tensor cores, and those with names that do not show it.

    Args:
        duration: Durations of operations with the column `tensor_cores` of `KERNEL_FAMILIES`.
    """
    return {
        "on_tensor_cores": duration.filter("tensor_cores").sum(),
        "tensor_cores_unknown": duration.filter(pl.col("tensor_cores").is_null()).sum(),
    }


def share_tensor_cores(total: pl.Expr) -> dict[str, pl.Expr]:
    """Return the values of `TENSOR_CORE_COLUMNS` for rows with a family.

    Args:
        total: Sum of the durations of a row, which also has those of `sum_tensor_cores`.
    """
    is_product, unknown = pl.col("family").is_in(MATRIX_FAMILIES), pl.col("tensor_cores_unknown")
    return {
        "tensor_core_fraction": pl.when(is_product & (total > unknown)).then(
            pl.col("on_tensor_cores") / total
        ),
        "tensor_core_unknown_fraction": pl.when(is_product & (total > 0)).then(unknown / total),
    }


def _define_families(
    name: str, key: Column, scope: Callable[[Training], pl.DataFrame], **spec: Any
) -> Table[[Training]]:
    """Define a table of the families of kernels by a key.

    Args:
        name: Name of the table.
        key: First column.
        scope: Function that lists the lanes and steps that count: lane, step, and the key if kernels lack it.
        **spec: Title, caption and other attributes of the table.
    """

    def sum_families(training: Training) -> pl.DataFrame:
        """Sum kernels by key and family; families of a key by total."""
        kernels = classify_training(training).rename({"kind": "op_kind", "job_kind": "kind"})
        total, whole = pl.col("total_ns"), pl.col("total_ns").sum().over(key.name)
        return (
            kernels.join(scope(training), on=["lane", "step"])
            .group_by(key.name, "family")
            .agg(pl.col("count", "total_ns").sum(), **sum_tensor_cores(total))
            .with_columns(
                mean_ns=total / pl.col("count"),
                fraction=pl.when(whole > 0).then(total / whole),
                **share_tensor_cores(total),
            )
            .sort(key.name, "total_ns", "family", descending=[False, True, False], nulls_last=True)
        )

    columns = (
        key,
        Column("count", pl.Int64, "kernels, and graphs traced as a whole"),
        Column("total_ns", pl.Int64, "sum of their durations, over all lanes"),
        Column("mean_ns", pl.Float64, "mean duration"),
        Column(
            "fraction",
            pl.Float64,
            f"share of the kernels of the {spec.pop('part', key.name)}",
            decimals=1,
        ),
        *(replace(column, decimals=1) for column in TENSOR_CORE_COLUMNS),
        Column("family", FAMILY, "family of the kernels, by their names; unknown: no rule matches"),
    )
    return Table(name=name, columns=columns, rows=sum_families, **spec)


_SUMMED = "durations of kernels, summed over lanes: concurrent kernels all count"
_BY_NAME = f"{_SUMMED}; families by the names of kernels; tensor cores: share of the durations of products"
FAMILY_TABLE = _define_families(
    "families",
    Column(
        "kind", JOB_KIND, "kind of job around the launch; null: outside all jobs", null_text="outside jobs"
    ),
    lambda training: select_whole_steps(training).select("lane", "step"),
    title="Families of kernels by kind of job",
    caption=f"{_BY_NAME}; kernels of complete steps",
)
STEP_FAMILY_TABLE = _define_families(
    "step_families",
    Column("step", pl.Int64, "number of the step"),
    lambda training: training.steps.select("lane", "step"),
    title="Families of kernels by step",
    caption=_BY_NAME,
)
STAGE_FAMILY_TABLE = _define_families(
    "stage_families",
    Column("stage", pl.Int64, "pipeline stage"),
    lambda training: select_whole_steps(training).select("lane", "step", "stage").drop_nulls("stage"),
    title="Families of kernels by stage",
    caption=f"{_BY_NAME}; kernels of complete steps; empty where no stage is known",
)

# Links of one kind that differ by less than this share are equally fast.
LEAST_LINK_EXCESS = 0.25
# Fewer messages do not show that a link is slow.
LEAST_MESSAGES = 6
# Fewer messages show it only where they exceed each limit twofold. Some of them may share one cause, as
# congestion for a while.
FEW_MESSAGES = 20
_NOISE_SPREADS = 3

_PAIR = ["sender", "receiver"]


def build_link_table(training: Training) -> pl.DataFrame:
    """Build the rows of `LINK_TABLE`: one per ordered pair of lanes, sorted by these.

    A message that its sender buffered does not show the speed of the link, as the data has already arrived
    when the receive begins. A kernel that sends and receives lasts as long as the slower of both, so such
    messages count only if the link has no others. Activations and their gradients have the same size: where
    sizes are unknown, all messages are assumed to have one size. Times are null where the clocks of both
    lanes cannot be compared.
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
    excess = pl.col("excess_ns")
    is_slow = (
        (pl.col("timed_count") >= LEAST_MESSAGES)
        & (pl.col("excess_fraction") > _strictness() * LEAST_LINK_EXCESS)
        & (excess > link_noise_ns())
        & (excess > _strictness() * (pl.col("bound_ns") + pl.col("others_bound_ns")))
    )
    return (
        described.with_columns(pl.when(pl.col("bytes_per_s").is_finite()).then("bytes_per_s"))
        .join(_compare_links(transfers, described), on=_PAIR, how="left")
        .with_columns(is_slow=is_slow.fill_null(value=False))
        .sort(_PAIR)
    )


def time_transfers(transfers: pl.DataFrame) -> pl.DataFrame:
    """Add `timed_ns` and `timed_bytes`: transfer and size of messages that show the speed of their link.

    Else null.
    """
    sent, received = (
        [numbers(transfers[name]) for name in kernel]
        for kernel in (("sender", "send_start_ns"), ("receiver", "receive_start_ns"))
    )
    is_grouped = (find_equal_rows(received, sent) >= 0) | (find_equal_rows(sent, received) >= 0)
    marked = transfers.with_columns(
        is_usable=~pl.col("is_buffered") & pl.col("doubtful").is_null()
    ).with_columns(is_alone=pl.col("is_usable") & pl.Series("", ~is_grouped))
    is_timed = pl.col("is_alone") | (pl.col("is_usable") & ~pl.col("is_alone").any().over(_PAIR))
    return marked.with_columns(
        timed_ns=pl.when(is_timed).then("transfer_ns"), timed_bytes=pl.when(is_timed).then("size_bytes")
    )


def _add_lanes(links: pl.DataFrame, training: Training) -> pl.DataFrame:
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
    """Return the excess of the median transfer of a link that noise explains.

    From the columns of `LINK_TABLE`.
    """
    return _strictness() * _NOISE_SPREADS * pl.col("spread_ns")


def _strictness() -> pl.Expr:
    return pl.when(pl.col("timed_count") < FEW_MESSAGES).then(2).otherwise(1)


LINK_TABLE = Table(
    name="links",
    title="Links between lanes",
    columns=(
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
            "messages that show the speed of the link: neither doubtful, nor buffered, nor in one kernel "
            "with others",
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
            "median of the other links within a machine, or between machines, at the same sizes;"
            " null without any",
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
            "20 transfers or more are longer by more than 25 %, 3 deviations (spread_ns), and the bounds of "
            "this link and the others; 6 to 19 transfers are longer by twice as much",
            heading="Slow",
            is_optional=True,
        ),
    ),
    caption=(
        "wait: from the begin of a receive to the begin of its send; transfer: the rest of the receive; "
        "medians of all messages"
    ),
    rows=build_link_table,
    view=View(
        derive=lambda links: links.with_columns(  # text formats omit columns of nulls
            pl.when(pl.col("doubtful_count") > 0).then("doubtful_count")
        ),
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


_CAUSE_COLUMNS = tuple(f"{cause}_ns" for cause in BUBBLE_CAUSES)
_TIMES = (
    Column("lane_count", pl.Int64, "number of lanes", priority=1),
    Column("step_count", pl.Int64, "complete steps; all times are means over them and the lanes", priority=1),
    Column("span_ns", pl.Float64, "length of a step: compute, pauses and bubble", display_unit="ms"),
    Column("compute_ns", pl.Float64, MEANINGS["compute"], display_unit="ms"),
    Column("pause_ns", pl.Float64, MEANINGS["pause"]),
    Column(
        "bubble_ns",
        pl.Float64,
        "rest of the span: the sum of its causes, and of its positions in steps with forwards and backwards",
        display_unit="ms",
    ),
    Column("bubble_fraction", pl.Float64, "bubble over span", decimals=1),
    *(
        Column(f"{statistic}_{name}_ns", pl.Float64, f"{meaning} {name} in a step, over steps and lanes")
        for name in ("span", "compute", "bubble")
        for statistic, meaning in (("median", "median"), ("min", "smallest"), ("max", "largest"))
    ),
    Column("warm_up_bubble_ns", pl.Float64, "bubble before the first backward"),
    Column("steady_bubble_ns", pl.Float64, "bubble from there to the last forward"),
    Column("cool_down_bubble_ns", pl.Float64, "bubble after that"),
    *(Column(f"{cause}_ns", pl.Float64, f"bubble: {MEANINGS[cause]}") for cause in BUBBLE_CAUSES),
    Column(
        "ideal_bubble_ns",
        pl.Float64,
        "bubble of the same jobs in the same order without gaps between them",
        heading="Ideal",
        display_unit="ms",
        priority=4,
    ),
    Column("ideal_bubble_fraction", pl.Float64, "ideal bubble over the length of the ideal step"),
    Column(
        "gain_ns",
        pl.Float64,
        "bubble beyond the ideal one: possible gain in a step",
        display_unit="ms",
        priority=4,
        # A step can be better than the ideal, which uses median lengths of jobs.
        note="gain: bubble beyond the ideal; negative: better than the ideal of median jobs",
    ),
)
_CAUSES = Column(
    "causes", pl.String, "the largest causes of the bubble, with their shares", heading="Causes of the bubble"
)
_SHOWN = ("span_ns", "bubble_ns", "bubble_fraction", "ideal_bubble_ns", "gain_ns", "compute_ns", "step_count")
_MOST_CAUSES, _LEAST_SHARE = 3, 0.005


def _sum_up(training: Training, by: str) -> pl.DataFrame:
    distributions = [
        getattr(pl.col(f"{name}_ns"), statistic)().alias(f"{statistic}_{name}_ns")
        for name in ("span", "compute", "bubble")
        for statistic in ("median", "min", "max")
    ]
    # Null in steps without an ideal: the gain must not compare different steps.
    return (
        select_whole_steps(training)
        .group_by(by)
        .agg(
            *distributions,
            pl.col(
                *("span_ns", "compute_ns", "pause_ns", "bubble_ns"),
                *POSITION_COLUMNS,
                *_CAUSE_COLUMNS,
                "ideal_bubble_ns",
            ).mean(),
            lane_count=pl.col("lane").n_unique(),
            step_count=pl.col("step").n_unique(),
            ideal_bubble_fraction=pl.col("ideal_bubble_ns").sum() / pl.col("ideal_span_ns").sum(),
            gain_ns=(pl.col("bubble_ns") - pl.col("ideal_bubble_ns")).mean(),
        )
        .with_columns(bubble_fraction=pl.col("bubble_ns") / pl.col("span_ns"))
        .with_columns(pl.col("bubble_fraction", "ideal_bubble_fraction").fill_nan(None))
    )


def _add_parts(
    table: pl.DataFrame, name: str, shares: Mapping[str, pl.Expr], *, least: float, most: int | None = None
) -> pl.DataFrame:
    percent = (100 * pl.col("share")).round().cast(pl.Int64)
    texts = (
        table.select(**shares)
        .with_row_index("row")
        .unpivot(index="row", variable_name="part", value_name="share")
        .filter(pl.col("share").fill_nan(0) >= least)  # NaN of nothing
        .sort("row", "share", descending=[False, True], maintain_order=True)
        .group_by("row", maintain_order=True)
        .agg(pl.format("{} {} %", "part", percent).head(most or len(shares)).str.join(", ").alias(name))
    )
    return table.with_row_index("row").join(texts, on="row", how="left", maintain_order="left").drop("row")


def _add_causes(table: pl.DataFrame) -> pl.DataFrame:
    whole = pl.sum_horizontal(_CAUSE_COLUMNS)
    shares = {cause.replace("_", " "): pl.col(f"{cause}_ns") / whole for cause in BUBBLE_CAUSES}
    return _add_parts(table, "causes", shares, least=_LEAST_SHARE, most=_MOST_CAUSES)


STAGE_TABLE = Table(
    name="stages",
    title="Stages, per step",
    columns=(Column("stage", pl.Int64, "number of the stage; null: unknown"), *_TIMES),
    caption="complete steps, mean over steps and lanes; causes: their shares of the bubble",
    rows=lambda training: _sum_up(training, "stage").sort("stage", nulls_last=True),
    view=View(columns=("stage", *_SHOWN, "lane_count", _CAUSES), derive=_add_causes),
)
LANE_TABLE = Table(
    name="lanes",
    title="Lanes, per step",
    columns=(
        Column("lane", pl.UInt32, "number of the lane"),
        Column("label", pl.String, "name of the lane", heading="Lane"),
        Column("stage", pl.Int64, "its stage; null: unknown"),
        *_TIMES,
    ),
    caption="complete steps, mean over steps; causes: their shares of the bubble",
    rows=lambda training: (
        _sum_up(training, "lane")
        .join(training.lanes.select("lane", "label", "stage"), on="lane")
        .sort("lane")
    ),
    view=View(columns=("label", "stage", *_SHOWN, _CAUSES), derive=_add_causes),
)


def build_kind_table(training: Training) -> pl.DataFrame:
    """Build the rows of `KIND_TABLE`, by stage, kind, chunk and role."""
    complete = select_whole_steps(training).select("lane", "step")
    compute = pl.col("compute_end_ns") - pl.col("compute_start_ns")
    return (
        training.jobs.join(complete, on=["lane", "step"], how="semi")
        .join(training.lanes.select("lane", "stage"), on="lane", how="left")
        .group_by("stage", "kind", "chunk", "role")
        .agg(
            job_count=pl.len(),
            total_ns=compute.sum(),
            median_ns=compute.median(),
            min_ns=compute.min(),
            max_ns=compute.max(),
            busy_fraction=(pl.col("compute_ns").sum() / compute.sum()).fill_nan(None),
            median_hull_ns=(pl.col("end_ns") - pl.col("start_ns")).median(),
            median_launch_delay_ns=pl.col("launch_delay_ns").median(),
            median_host_ns=(pl.col("host_end_ns") - pl.col("host_start_ns")).median(),
        )
        .sort("stage", "kind", "chunk", "role", nulls_last=True)
    )


KIND_TABLE = Table(
    name="kinds",
    title="Jobs by stage and kind",
    columns=(
        Column("stage", pl.Int64, "pipeline stage; null: unknown"),
        Column("kind", JOB_KIND, "kind of job"),
        Column("chunk", pl.Int64, "number of the chunk on its stage; null: unknown", is_optional=True),
        Column("role", pl.String, "name of the model, such as actor or critic; null: none"),
        Column("job_count", pl.Int64, "jobs in complete steps"),
        Column(
            "total_ns",
            pl.Int64,
            "sum of the compute of jobs, each from its first to its last computing kernel",
        ),
        Column(
            "median_ns",
            pl.Float64,
            "median compute of a job; null if none computes",
            display_unit="ms",
            priority=5,
        ),
        Column("min_ns", pl.Int64, "shortest compute", display_unit="ms"),
        Column("max_ns", pl.Int64, "longest compute", display_unit="ms"),
        Column(
            "busy_fraction", pl.Float64, "share of the compute in which kernels run", decimals=1, priority=4
        ),
        Column(
            "median_hull_ns",
            pl.Float64,
            "median length of a job with its communication",
            heading="With messages",
            display_unit="ms",
            priority=3,
        ),
        Column(
            "median_launch_delay_ns",
            pl.Float64,
            "median delay from the call that launched the first operation of a job to that operation",
            heading="Launch delay",
            display_unit="us",
            priority=3,
        ),
        Column("median_host_ns", pl.Float64, "median length of the range of a job on the CPU"),
    ),
    caption=(
        "medians of one job, from its first to its last computing kernel (no communication); jobs of "
        "complete steps"
    ),
    rows=build_kind_table,
    view=View(
        columns=(
            *("stage", "chunk", "role", "job_count", "median_ns", "min_ns", "max_ns", "busy_fraction"),
            *("median_hull_ns", "median_launch_delay_ns", "kind"),
        )
    ),
)


def build_step_table(training: Training) -> pl.DataFrame:
    """Build the rows of `STEP_TABLE`, by step."""
    bubble = pl.col("bubble_ns") / pl.col("span_ns")
    worst = bubble.fill_nan(None).arg_max()
    comparable = list_comparable_steps(training.steps, training.lanes)
    excess = pl.col("excess_fraction")
    second = excess.get(1, null_on_oob=True).fill_null(0.0)
    slowest = (  # the slowest stage of a step, beyond noise and the excess of the next one
        Evidence(training)
        .stragglers.stages.all.filter("is_slow")
        .sort("excess_fraction", descending=True)
        .explode("steps")
        .group_by(step="steps", maintain_order=True)
        .agg(
            slowest_stage=pl.col("stage").first(),
            is_apart=excess.first() - second > pl.col("noise_fraction").first(),
        )
    )
    return (
        sum_lane_steps(training)
        .join(training.lanes.select("lane", "label"), on="lane", how="left")
        .join(training.steps.select("lane", "step", "is_partial", "source"), on=["lane", "step"], how="left")
        .group_by("step")
        .agg(
            start_ns=pl.col("start_ns").min() - training.zero_ns,
            span_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
            lane_count=pl.len(),
            compute_fraction=(pl.col("compute_ns") / pl.col("span_ns")).fill_nan(None).mean(),
            bubble_fraction=pl.col("bubble_ns").sum() / pl.col("span_ns").sum(),
            worst_bubble_fraction=bubble.get(worst),
            worst_lane=pl.col("label").get(worst),
            ideal_bubble_fraction=pl.col("ideal_bubble_ns").sum() / pl.col("ideal_span_ns").sum(),
            source=pl.col("source").max().cast(pl.String).replace("range", None),
            is_partial=pl.col("is_partial").any(),
        )
        .with_columns(
            pl.col("bubble_fraction", "ideal_bubble_fraction").fill_nan(None),
            pl.when(pl.col("step").is_in(comparable["step"].implode())).then(pl.col("start_ns", "span_ns")),
        )
        .join(slowest.filter("is_apart"), on="step", how="left")
        .sort("step")
    )


STEP_TABLE = Table(
    name="steps",
    title="Steps of the whole run",
    columns=(
        Column("step", pl.Int64, "number of the step"),
        Column(
            "start_ns",
            pl.Int64,
            "start on its first lane, from the start of the earliest session; null if clocks of lanes "
            "cannot be compared",
            display_unit="ms",
            priority=2,
        ),
        Column(
            "span_ns",
            pl.Int64,
            "from the start on its first lane to the end on its last; null if clocks of lanes cannot be "
            "compared",
            display_unit="ms",
        ),
        Column("lane_count", pl.Int64, "lanes that run it", priority=2),
        Column(
            "compute_fraction",
            pl.Float64,
            "share of its time on a lane in which kernels compute; mean of the lanes",
            decimals=1,
        ),
        Column(
            "bubble_fraction",
            pl.Float64,
            "time without compute on all lanes, over time on all lanes",
            decimals=1,
        ),
        Column(
            "worst_bubble_fraction",
            pl.Float64,
            "bubble fraction of the lane with the largest one",
            heading="Worst",
            decimals=1,
        ),
        Column(
            "worst_lane",
            pl.String,
            "name of that lane: it waits, and need not be the cause",
            note="worst: the lane with most bubble",
        ),
        Column(
            "ideal_bubble_fraction",
            pl.Float64,
            "bubble fraction of the same jobs in the same order without gaps between them; null: unknown",
            heading="Ideal",
            decimals=1,
            note="ideal: the same jobs in the same order without gaps",
        ),
        Column(
            "slowest_stage",
            pl.Int64,
            "stage that computes longer than the others, as in the stragglers; null: none beyond noise",
            priority=4,
        ),
        Column(
            "source",
            pl.String,
            "source of a step without a range: jobs, inferred from the repetition of launches, or the whole "
            "capture; null: a range",
            priority=9,
        ),
        Column(
            "is_partial",
            pl.Boolean,
            "a capture began or ended inside it",
            heading="Partial",
            priority=4,
            is_optional=True,
        ),
    ),
    caption="bubble: time without computing kernels but for pauses, over all lanes",
    rows=build_step_table,
    view=View(
        columns=(
            *("step", "start_ns", "span_ns", "lane_count", "compute_fraction", "bubble_fraction"),
            *(
                "ideal_bubble_fraction",
                "worst_bubble_fraction",
                "slowest_stage",
                "is_partial",
                "source",
                "worst_lane",
            ),
        )
    ),
)


COVERAGE_TABLE = Table(
    name="coverage",
    title="What the steps hold of the capture",
    columns=(
        Column(
            "part",
            RUN_PART,
            "steps; what lies between them, before the first one, after the last one; absent: before the "
            "first and after the last operation of a GPU, while others of its report have some; unknown: on "
            "GPUs without known steps, while others have some",
        ),
        Column("time_ns", pl.Float64, "time on a lane; mean of the lanes", display_unit="ms"),
        Column("time_fraction", pl.Float64, "share of the capture", decimals=1),
        Column("compute_fraction", pl.Float64, "share of all compute; null: none", decimals=1),
        Column("busy_fraction", pl.Float64, "share of the time in which kernels compute", decimals=1),
    ),
    caption="capture: from the first to the last operation, or step, of the GPUs of a report",
    empty="steps were chosen, or no GPU operation was recorded",
    rows=sum_coverage,
    view=View(columns=("time_ns", "time_fraction", "compute_fraction", "busy_fraction", "part")),
)


_TERA = 1e12


class Work(Struct, frozen=True, kw_only=True):
    """Work of one step, and the hardware that it is compared with.

    Attributes:
        flops: FLOPs of the model in one step, over all GPUs of the run.
        formula: Source of this number.
        data_type: Data type of the peak: one of `nsys_pp.options.DATA_TYPES`.
        gpus: Name of the GPU of each lane, in order of the lanes; None: unknown.
        gpu_count: GPUs of the run; more than lanes where not all were recorded.
    """

    flops: float
    formula: str
    data_type: str
    gpus: tuple[str | None, ...]
    gpu_count: int


def build_utilisation(training: Training, work: Work) -> pl.DataFrame:
    """Build the rows of `UTILISATION_TABLE`: complete steps.

    All, without a utilisation, where the capture cuts every step.
    """
    longest = (
        sum_lane_steps(training)
        .filter("is_complete")
        .group_by("step")
        .agg(longest_ns=pl.col("span_ns").max())
    )
    # FLOPs of a part of a step are unknown
    seconds = pl.when(~pl.col("is_partial")).then("span_ns") / NS_PER_S
    peaks = [_find_rate(gpu, work.data_type) for gpu in work.gpus]
    rates = [rate for rate in peaks if rate is not None]
    peak = sum(rates) / len(rates) if rates and len(rates) == len(peaks) else None
    return (
        build_step_table(training)
        .join(longest, on="step")
        .with_columns(
            pl.coalesce("span_ns", "longest_ns").alias("span_ns"),
            gpu_count=pl.lit(work.gpu_count),
            model_tflops=pl.lit(work.flops / _TERA),
            peak_tflops_per_gpu_s=pl.lit(None if peak is None else peak / _TERA, pl.Float64),
        )
        .with_columns(tflops_per_gpu_s=pl.col("model_tflops") / seconds / pl.col("gpu_count"))
        .with_columns(mfu_fraction=pl.col("tflops_per_gpu_s") / pl.col("peak_tflops_per_gpu_s"))
        .sort("step")
    )


def describe_work(work: Work) -> list[str]:
    """Return sentences on the sources of the FLOPs and of the peaks, and on GPUs without a peak."""
    notes = [f"model FLOPs of a step: {work.flops:.4g}, {work.formula}"]
    for gpu in sorted({gpu or "" for gpu in work.gpus}):
        peak, rate = find_peak(gpu), _find_rate(gpu, work.data_type)
        name = f"`{gpu}`" if gpu else "a GPU without a name"
        if peak is None or rate is None:
            notes.append(f"the peak of {name} for {work.data_type} is unknown: no utilisation")
        else:
            notes.append(
                f"peak of {name}: {rate / _TERA:g} TFLOP/s of {work.data_type}, dense ({peak.source})"
            )
    if work.gpu_count > len(work.gpus):
        notes.append(
            f"{len(work.gpus)} of {work.gpu_count} GPUs were recorded; the others are assumed to have the "
            "same peak"
        )
    return notes


def _find_rate(gpu: str | None, data_type: str) -> float | None:
    peak = find_peak(gpu)
    return None if peak is None else peak.flops_per_s.get(data_type)


UTILISATION_TABLE: Table[[Training, Work]] = Table(
    name="utilisation",
    title="Model FLOPs utilisation",
    columns=(
        Column("step", pl.Int64, "number of the step"),
        Column(
            "span_ns",
            pl.Int64,
            "length of the step on all lanes; of its longest lane if clocks cannot be compared",
            display_unit="ms",
        ),
        Column("gpu_count", pl.Int64, "GPUs of the run, recorded or not", heading="GPUs"),
        Column(
            "model_tflops",
            pl.Float64,
            "FLOPs of the model in the step, in 10^12",
            heading="Model TFLOPs",
            decimals=1,
        ),
        Column(
            "tflops_per_gpu_s",
            pl.Float64,
            "FLOPs of the model per GPU and second, in 10^12; null: the capture cuts every step",
            heading="TFLOP/s per GPU",
            decimals=1,
            null_text="unknown",
        ),
        Column(
            "peak_tflops_per_gpu_s",
            pl.Float64,
            "peak of a GPU, dense, mean over lanes; null: unknown for a GPU of the run",
            heading="Peak",
            decimals=1,
        ),
        Column(
            "mfu_fraction",
            pl.Float64,
            "model FLOPs utilisation: share of the peak; null: unknown",
            heading="MFU",
            decimals=1,
            null_text="unknown",
        ),
    ),
    caption=(
        "MFU: FLOPs of the model in a step / (length of the step x GPUs x peak); recomputed activations do "
        "not count; complete steps"
    ),
    rows=build_utilisation,
)


_GAP = ["lane", "start_ns", "end_ns"]


def build_gap_table(training: Training) -> pl.DataFrame:
    """Build the rows of `GAP_TABLE`, by descending length."""
    rows = training.gaps
    gaps = rows.unique(_GAP, keep="first", maintain_order=True)
    length, delay = pl.col("end_ns") - pl.col("start_ns"), pl.col("end_ns") - pl.col("launch_ns")
    for kind in GAPS["activity"].categories:  # type: ignore[attr-defined]
        longest = (
            rows.filter(pl.col("activity") == kind, pl.col("time_ns") >= MOST * length)
            .unique(_GAP, keep="first", maintain_order=True)
            .select(
                *_GAP,
                pl.col("name").cast(pl.String).alias(kind),
                (pl.col("time_ns") / length).alias(f"{kind}_fraction"),
            )
        )
        gaps = gaps.join(longest, on=_GAP, how="left", maintain_order="left")
    return (
        gaps.drop("step")
        .join(_find_steps(gaps, training.steps), on=_GAP, how="left", maintain_order="left")
        .join(_find_causes(gaps, training.lane_states), on=_GAP, how="left", maintain_order="left")
        .join(training.lanes.select("lane", "label"), on="lane", how="left", maintain_order="left")
        .with_columns(
            lane="label",
            length_ns=length,
            launch_delay_ns=pl.when(delay >= -MOST_EARLY_NS).then(delay),
            start_ns=pl.col("start_ns") - training.zero_ns,
        )
        .sort(-pl.col("length_ns"), "start_ns", "lane")
    )


def _find_steps(gaps: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Find the step that holds most of each gap: `_GAP`, step; gaps that none holds so are left out."""
    spans = steps.select("lane", "step", since="start_ns", until="end_ns").sort("since")
    inside = pl.min_horizontal("until", "end_ns") - pl.max_horizontal("since", "start_ns")
    length = pl.col("end_ns") - pl.col("start_ns")
    return (
        gaps.select(*_GAP, middle=pl.col("start_ns") + length // 2)
        .sort("middle")
        .join_asof(spans, left_on="middle", right_on="since", by="lane", check_sortedness=False)
        .filter(inside >= MOST * length)
        .select(*_GAP, "step")
    )


def _find_causes(gaps: pl.DataFrame, lane_states: pl.DataFrame) -> pl.DataFrame:
    """Find the cause of most of each gap: `_GAP`, cause, cause_fraction.

    Gaps outside of steps are left out.
    """
    lane, start, end = (whole_numbers(gaps[name]) for name in _GAP)
    of_lane, since = whole_numbers(lane_states["lane"]), lane_states["start_ns"].to_numpy()
    at = find_last(lane, start, of_lane, since)
    first = np.where(at < 0, find_first(lane, start, of_lane, since), at)
    last = find_last(lane, end, of_lane, since, is_before=True)
    is_known = (first >= 0) & (last >= first)
    stop = np.where(is_known, last + 1, first)
    states = lane_states.select("cause", since="start_ns", until="end_ns")[expand_windows(first, stop)]
    inside = pl.min_horizontal("until", "end_ns") - pl.max_horizontal("since", "start_ns")
    return (
        gaps.select(_GAP)[np.repeat(np.arange(len(gaps)), stop - first)]
        .hstack(states)
        .filter(pl.col("cause").is_in(BUBBLE_CAUSES), inside > 0)
        .group_by(*_GAP, "cause")
        .agg(cause_ns=inside.sum())
        .sort("cause_ns", "cause", descending=[True, False])
        .unique(_GAP, keep="first", maintain_order=True)
        .select(*_GAP, "cause", cause_fraction=pl.col("cause_ns") / (pl.col("end_ns") - pl.col("start_ns")))
    )


GAP_TABLE = Table(
    name="gaps",
    title="Longest gaps",
    columns=(
        Column("lane", pl.String, "name of the lane, `lanes.label`; in `jobs`, `lane` is its number"),
        Column("step", pl.Int64, "step that holds most of it; null: none does"),
        Column("start_ns", pl.Int64, "since the start of the earliest session", heading="Start"),
        Column("length_ns", pl.Int64, "time between two kernels that are not communication", priority=9),
        Column("cause", CAUSE, "cause of most of it; null: outside all steps", priority=9),
        Column("cause_fraction", pl.Float64, "share of this cause in the gap", heading="Share", decimals=0),
        Column(
            "range",
            pl.String,
            "innermost range on the thread that launches the next kernel, in most of the gap; null: none",
            is_name=True,
            priority=8,
        ),
        Column(
            "range_fraction", pl.Float64, "share of the gap in this range", heading="In range", decimals=0
        ),
        Column("call", pl.String, "CUDA call of this thread in most of the gap; null: none", priority=8),
        Column("call_fraction", pl.Float64, "share of the gap in this call", heading="In call", decimals=0),
        Column(
            "os_call",
            pl.String,
            "call of the operating system of this thread in most of the gap; null: none, or not recorded",
            heading="OS call",
            priority=8,
        ),
        Column(
            "os_call_fraction", pl.Float64, "share of the gap in this call", heading="In OS call", decimals=0
        ),
        Column(
            "launch_delay_ns",
            pl.Int64,
            "from the launch of the next kernel to the kernel: longer than the gap if the host was ahead; "
            "null: unknown",
            heading="Launched before",
            display_unit="us",
            priority=4,
        ),
    ),
    caption=(
        "range, call: of the thread that launches the next kernel, in most of the gap; of each lane the 50 "
        "longest gaps are kept, and the 3 of each step"
    ),
    rows=build_gap_table,
    view=View(
        columns=(
            *("lane", "step", "start_ns", "length_ns", "cause", "cause_fraction", "range", "range_fraction"),
            *("call", "call_fraction", "os_call", "os_call_fraction", "launch_delay_ns"),
        ),
    ),
)


def build_overhead_table(training: Training, overheads: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `OVERHEAD_TABLE`: by step, then the profiler, then by descending time.

    Args:
        training: The training.
        overheads: `LANE_OVERHEADS` of it.
    """
    return (
        overheads.filter(pl.col("time_ns") > 0)  # others are flushes on threads that do not launch
        .join(training.lanes.select("lane", "label"), on="lane", how="left")
        .with_columns(share=pl.col("time_ns") / pl.col("step_ns"))
        .group_by("step", "name", "is_of_profiler")
        .agg(
            time_ns=pl.col("time_ns").sum(),
            fraction=pl.when(pl.col("step").is_not_null().all()).then(
                pl.col("time_ns").sum() / pl.col("step_ns").sum()
            ),
            most_fraction=pl.col("share").max(),
            label=pl.col("label").sort_by("share", "time_ns", descending=True).first(),
            count=pl.col("count").sum(),
            lane_count=pl.col("lane").n_unique().cast(pl.Int64),
        )
        .with_columns(most_fraction=pl.when(pl.col("step").is_not_null()).then("most_fraction"))
        .sort("step", pl.col("name").is_not_null(), -pl.col("time_ns"), "name", nulls_last=True)
    )


OVERHEAD_TABLE = Table(
    name="overhead",
    title="Overhead of profiling in launching threads",
    columns=(
        Column("step", pl.Int64, "number of the step; null: outside all steps", priority=9),
        Column(
            "name", pl.String, "name of the overhead; null: all of the profiler", is_name=True, priority=9
        ),
        Column(
            "is_of_profiler",
            pl.Boolean,
            "the profiler causes it; false: CUDA or the program loads or compiles code, or launches are too "
            "many",
            priority=5,
        ),
        Column(
            "time_ns",
            pl.Int64,
            "time that it took of launching threads, over all lanes",
            display_unit="ms",
            priority=8,
        ),
        Column(
            "fraction",
            pl.Float64,
            "share of the step, over the lanes with overhead; null outside",
            decimals=1,
            priority=9,
        ),
        Column("most_fraction", pl.Float64, "share on the lane with the largest one", decimals=1, priority=6),
        Column("label", pl.String, "this lane", priority=5),
        Column("count", pl.Int64, "occurrences that began in the step", priority=4),
        Column("lane_count", pl.Int64, "lanes with it", heading="Lanes", priority=4),
    ),
    caption=(
        "time in which nsys or the tracing of CUDA held a thread that launches; a step is longer by at most "
        "as much. What tracing adds to each call is not recorded"
    ),
    rows=build_overhead_table,
    empty="no overhead was recorded on launching threads",
)


_METRIC = Column("metric", pl.String, "name of the metric, as nsys has it", is_name=True, priority=9)
_SUMS = (
    Column("mean", pl.Float64, "mean of the metric in that time, over all lanes", decimals=1, priority=9),
    Column("peak", pl.Float64, "largest sample of that time", decimals=1, priority=8),
    Column("time_ns", pl.Int64, "time with samples, summed over lanes", display_unit="ms", priority=5),
    Column("lane_count", pl.Int64, "lanes with samples in that time", heading="Lanes", priority=3),
)


_RANK = pl.col("metric").map_elements(rank_metric, return_dtype=pl.Int64)  # a row per metric and item


def build_metric_table(training: Training, sums: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `METRIC_TABLE`, by metric, group and item.

    Args:
        training: The training.
        sums: `METRIC_SUMS`.
    """
    items = list(dict.fromkeys([*JOB_KINDS, *FAMILIES, *BUBBLE_CAUSES]))
    group = pl.col("group").replace_strict(
        list(METRIC_GROUPS), range(len(METRIC_GROUPS)), return_dtype=pl.Int64
    )
    item = pl.col("item").replace_strict(items, range(len(items)), default=-1, return_dtype=pl.Int64)
    return sums.group_by("metric", "group", "item").agg(**_sum()).sort(_RANK, "metric", group, item)


def build_step_metric_table(training: Training, sums: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `STEP_METRIC_TABLE`, by metric and step; arguments as in `build_metric_table`."""
    return (
        sums.filter(pl.col("group") == "steps", pl.col("step").is_not_null())
        .group_by("metric", "step")
        .agg(**_sum())
        .sort(_RANK, "metric", "step")
    )


def _sum() -> dict[str, pl.Expr]:
    time = pl.col("time_ns").sum()
    return {
        "mean": pl.col("integral").sum() / time,
        "peak": pl.col("peak").max(),
        "time_ns": time,
        "lane_count": pl.col("lane").n_unique().cast(pl.Int64),
    }


_CAPTION_METRIC_TABLE = "means are weighted by time; a value holds until the next sample"
METRIC_TABLE = Table(
    name="metrics",
    title="GPU metrics by job, phase, family of kernels and bubble",
    columns=(
        _METRIC,
        Column(
            "group",
            pl.String,
            "time that is measured: steps, compute, jobs, families of kernels or bubbles",
            priority=8,
        ),
        Column(
            "item",
            pl.String,
            "kind of the jobs, family of the kernels, or cause of the bubbles; null: all",
            priority=9,
        ),
        *_SUMS,
    ),
    caption=(
        f"{_CAPTION_METRIC_TABLE}. Jobs are from their first to their last operation, and may contain "
        "bubbles; items that overlap"
        " all count. Kernels shorter than the distance of samples have values of their neighbourhood"
    ),
    rows=build_metric_table,
    empty="no GPU metrics",  # the caller knows the reason
)
STEP_METRIC_TABLE = Table(
    name="step_metrics",
    title="GPU metrics by step",
    columns=(
        _METRIC,
        Column("step", pl.Int64, "number of the step", priority=9),
        *_SUMS,
    ),
    caption=_CAPTION_METRIC_TABLE,
    rows=build_step_metric_table,
    empty="no GPU metrics",
)


def build_network_table(training: Training, sums: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `NETWORK_TABLE`, by step, machine and source.

    Args:
        training: The training.
        sums: `NETWORK_SUMS`.
    """
    machines = training.lanes.select("lane", "machine")
    messages = (
        training.transfers.join(machines.rename({"lane": "sender"}), on="sender")
        .join(machines.rename({"lane": "receiver", "machine": "to"}), on="receiver")
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
    )


NETWORK_TABLE = Table(
    name="network",
    title="Network by step",
    columns=(
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
            "messages of NCCL in the step from ranks of the machine to other machines, as recorded; null: "
            "none of known size",
            priority=6,
        ),
        Column(
            "collective_bytes",
            pl.Int64,
            "data of collectives of NCCL of ranks of the machine that began in the step, as recorded, "
            "without the factor of their algorithm; null: none of known size",
            priority=6,
        ),
        Column(
            "communication_ns",
            pl.Int64,
            "kernels of communication in the step, summed over the machine's lanes",
            priority=3,
        ),
    ),
    caption=(
        "bytes are rates of nsys times their intervals; a sample that reaches into two steps counts by its "
        "share of time. Steps of a machine end where the next one begins on any of its GPUs. What other "
        "programs send through the cards counts, too"
    ),
    rows=build_network_table,
    empty="no network metrics",  # the caller knows the reason
)


_LEAST_FRACTION = 0.001


def build_host_table(training: Training, host_times: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `HOST_TABLE`: by cause, then by activity, then by descending share.

    Args:
        training: The training.
        host_times: `HOST_TIMES`.
    """
    summed = host_times.group_by("cause", "activity", "name").agg(
        time_ns=pl.when(pl.col("time_ns").is_not_null().any()).then(pl.col("time_ns").sum()),
        count=pl.col("count").sum(),
        lane_count=pl.col("lane").n_unique().cast(pl.Int64),
    )
    whole = summed.filter(pl.col("activity").is_null()).select("cause", whole_ns="time_ns")
    is_sample = pl.col("activity").is_in(["sample", "sample stack"]).fill_null(value=False)
    samples = pl.col("count").filter(pl.col("activity") == "sample").sum().over("cause")
    return (
        summed.join(whole, on="cause", how="left")
        .with_columns(
            fraction=pl.when(is_sample)
            .then(pl.col("count") / samples)
            .otherwise(pl.col("time_ns") / pl.col("whole_ns"))
            .fill_nan(None)
        )
        .filter(pl.col("activity").is_null() | (pl.col("fraction") >= _LEAST_FRACTION))
        .sort("cause", "activity", -pl.col("fraction"), "name", nulls_last=False)
    )


HOST_TABLE = Table(
    name="host",
    title="Host in bubbles of causes host and data",
    columns=(
        Column("cause", CAUSE, "cause of the bubbles: host or data", priority=9),
        Column(
            "activity",
            HOST_ACTIVITY,
            "kind of activity of the launching thread; null: the bubbles themselves",
            priority=8,
        ),
        Column(
            "name",
            pl.String,
            "name of the range, call, state or function, or functions of the stack from "
            "the innermost on; null: the bubbles themselves",
            is_name=True,
            priority=9,
        ),
        Column(
            "time_ns",
            pl.Int64,
            "time in it during the bubbles, without activities of its kind inside it; null for samples",
            display_unit="ms",
            priority=8,
        ),
        Column(
            "fraction",
            pl.Float64,
            "share of the time of the bubbles; of the samples of these bubbles",
            decimals=1,
            priority=9,
        ),
        Column("count", pl.Int64, "bubbles with it; samples", priority=6),
        Column("lane_count", pl.Int64, "lanes with it", heading="Lanes", priority=4),
    ),
    caption=(
        "of the thread that launched the next operation; shares of one kind of activity add up to at most "
        "all of the bubbles, and kinds overlap. Shares below 0.1 % are left out"
    ),
    rows=build_host_table,
    empty="no bubble of cause host or data",
)


_KIND = Column("batch", BATCH_KIND, "kind of batch; null: unknown", null_text="unknown")


def select_iterations(training: Training) -> pl.DataFrame:
    """Return the complete batches (`LANE_BATCHES`) of the steps of a training.

    The last batch of a lane is cut: the sampling after its range is unknown. If all batches are cut, all are
    returned.
    """
    steps = training.steps.select("lane", "step", "is_partial")
    batches = training.batches.join(steps, on=["lane", "step"]).drop_nulls("start_ns")
    complete = batches.filter(~pl.col("is_partial"), pl.col("gap_ns").is_not_null())
    return batches if complete.is_empty() else complete


def list_decodes(training: Training) -> pl.DataFrame:
    """List the batches of inference that are decodes on all their lanes.

    Step, requests (mean of the lanes; null where unknown).

    Other batches are as long as their requests make them. Empty in runs without batches.
    """
    is_decode = (pl.col("kind") == "decode").fill_null(value=False)
    return (
        training.batches.group_by("step")
        .agg(is_decode=is_decode.all(), requests=pl.col("generation_requests").mean())
        .filter("is_decode")
        .select("step", "requests")
    )


def build_iteration_table(training: Training) -> pl.DataFrame:
    """Build the rows of `ITERATION_TABLE`, by kind of batch; empty without batches."""
    time = pl.col("end_ns") - pl.col("start_ns")
    gap, period = pl.col("gap_ns"), time + pl.col("gap_ns").fill_null(0)
    tokens = pl.col("context_tokens") + pl.col("generation_tokens")
    is_known = tokens.is_not_null().all()
    return (
        select_iterations(training)
        .group_by("kind")
        .agg(
            iteration_count=pl.col("step").n_unique(),
            lane_iteration_count=pl.len(),
            median_ns=time.median(),
            p99_ns=time.quantile(0.99, "linear"),
            busy_fraction=_share(pl.col("busy_ns"), time),
            median_gap_ns=gap.median(),
            p99_gap_ns=gap.quantile(0.99, "linear"),
            gap_fraction=_share(gap, period),
            **{f"{name}_fraction": _share(pl.col(f"{name}_ns"), gap) for name in HOST_ACTIVITIES},
            **{
                f"mean_{name}": pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).mean())
                for name in BATCH_COUNTS
            },
            tokens_per_s=pl.when(is_known).then(tokens.sum() / (period.sum() / NS_PER_S)),
            graph_fraction=_share(pl.col("graph_ns"), pl.col("kernel_ns")),
            graph_launch_fraction=_share(pl.col("graph_launch_count"), pl.col("launch_count")),
            by_launches_fraction=(pl.col("source") == "launches").fill_null(value=False).mean(),
        )
        .rename({"kind": "batch"})
        .sort("batch", nulls_last=True)
    )


def _share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """Return the ratio of two sums; null where the whole is 0."""
    return pl.when(whole.sum() > 0).then(part.sum() / whole.sum())


_EMPTY = "no step is an iteration of inference"
ITERATION_TABLE = Table(
    name="iterations",
    title="Iterations of inference by kind of batch",
    columns=(
        Column("iteration_count", pl.Int64, "complete iterations of the run", heading="Iterations"),
        Column(
            "lane_iteration_count", pl.Int64, "the same, of all lanes", heading="On all lanes", priority=1
        ),
        Column(
            "median_ns",
            pl.Float64,
            "median time from the first operation of an iteration to its last one",
            heading="Time",
            display_unit="ms",
            priority=9,
        ),
        Column(
            "p99_ns",
            pl.Float64,
            "99th percentile of this time",
            heading="Time p99",
            display_unit="ms",
            priority=9,
        ),
        Column(
            "busy_fraction", pl.Float64, "share of this time in which operations run", decimals=1, priority=8
        ),
        Column(
            "median_gap_ns",
            pl.Float64,
            "median time from the last operation of an iteration to the first one of the next",
            heading="Gap after",
            display_unit="us",
            priority=9,
        ),
        Column(
            "p99_gap_ns",
            pl.Float64,
            "99th percentile of this time",
            heading="Gap p99",
            display_unit="us",
            priority=8,
        ),
        Column(
            "gap_fraction",
            pl.Float64,
            "share of the gaps in the time of iterations and gaps",
            decimals=1,
            priority=8,
        ),
        *(
            Column(
                f"{activity}_fraction",
                pl.Float64,
                f"share of the gaps in which the host was {activity}; null without gaps"
                if activity != "other"
                else "share of the gaps without a known activity of the host; null without gaps",
                decimals=0,
                priority=6,
            )
            for activity in HOST_ACTIVITIES
        ),
        *(
            Column(
                f"mean_{count}",
                pl.Float64,
                f"{count.replace('context', 'prefill').replace('_', ' ')} of an iteration, mean; "
                "null: not in all names",
                heading=count.replace("context", "prefill").replace("_", " ").capitalize(),
                decimals=1,
                priority=5,
            )
            for count in BATCH_COUNTS
        ),
        Column(
            "tokens_per_s",
            pl.Float64,
            "tokens of all kinds per second of iterations and gaps, on one lane; null: not in all names",
            heading="Tokens/s",
            decimals=0,
            priority=5,
        ),
        Column(
            "graph_fraction",
            pl.Float64,
            "share of kernel time in CUDA graphs",
            heading="In graphs",
            decimals=1,
            priority=7,
        ),
        Column(
            "graph_launch_fraction",
            pl.Float64,
            "share of launches of CUDA graphs in the launches of kernels",
            heading="Graph launches",
            decimals=1,
            priority=5,
        ),
        Column(
            "by_launches_fraction",
            pl.Float64,
            "share of iterations whose kind follows from their launches, not from names",
            heading="By launches",
            decimals=0,
            priority=2,
            is_optional=True,
        ),
        _KIND,
    ),
    caption=(
        "times on the GPU, of operations launched in an iteration; activities: of the launching thread, in "
        "the gaps after iterations; complete iterations, on all lanes"
    ),
    rows=build_iteration_table,
    is_fixed=True,
    empty=_EMPTY,
    view=View(
        columns=(
            *(
                *(
                    "batch",
                    "iteration_count",
                    "median_ns",
                    "p99_ns",
                    "busy_fraction",
                    "median_gap_ns",
                    "p99_gap_ns",
                ),
                *(
                    "gap_fraction",
                    *(f"mean_{count}" for count in BATCH_COUNTS),
                    "tokens_per_s",
                    "graph_fraction",
                ),
                *("graph_launch_fraction", "by_launches_fraction"),
            ),
            Column(
                "activities",
                pl.String,
                "activities of the host in the gaps, with their shares",
                heading="Host in gaps",
                priority=9,
            ),
        ),
        derive=lambda table: _add_parts(
            table,
            "activities",
            {activity: pl.col(f"{activity}_fraction") for activity in HOST_ACTIVITIES},
            least=0.01,
        ),
    ),
)

ITERATION_FAMILY_TABLE = _define_families(
    "iteration_families",
    _KIND,
    lambda training: select_iterations(training).select("lane", "step", batch="kind"),
    title="Families of kernels by kind of batch",
    caption=f"{_SUMMED}; complete iterations",
    part="kind of batch",
    empty=_EMPTY,
)


_SENTENCES = {
    "gpipe": "All forwards of a step, then all backwards.",
    "1f1b": "After the warm-up, each stage alternates one forward and one backward.",
    "interleaved": (
        "1F1B in which each stage holds several chunks of the model, which shortens warm-up and cool-down."
    ),
    "zb-h1": "1F1B with split backwards: weight gradients fill what would be bubble.",
    "dualpipev": (
        "Each stage holds two chunks, from both ends of the model, and runs forwards and backwards "
        "of both at once."
    ),
}
_FORMULAS = {
    "gpipe": "(p - 1) / (m + p - 1)",
    "1f1b": "(p - 1) / (m + p - 1)",
    "interleaved": "(p - 1) / (v * m + p - 1)",
}


def ideal_bubble_fraction(schedule: Schedule) -> tuple[str | None, float | None]:
    """Return the formula of a schedule's ideal bubble, and its value; twice None if no formula is exact.

    The ideal bubble is the share of the span without compute, with p stages, m micro-batches and v chunks, if
    all stages take equally long. GPipe: Huang et al., "GPipe", 2019, section 2.3; 1F1B and interleaved:
    Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", 2021,
    section 2.2, who divide by the ideal time, m, instead of the span, m + p - 1. Schedules that split or
    overlap backwards have no such formula: their bubble depends on the lengths of the parts.

    >>> schedule = dict(source="given", stage_count=4, micro_batch_count=8, chunk_count=2, agreement=1.0)
    >>> ideal_bubble_fraction(Schedule(name="1f1b", **schedule))
    ('(p - 1) / (m + p - 1)', 0.2727272727272727)
    >>> ideal_bubble_fraction(Schedule(name="zb-h1", **schedule))
    (None, None)
    """
    stages, batches = schedule.stage_count, schedule.micro_batch_count
    chunks = schedule.chunk_count if schedule.name == "interleaved" else 1
    if (
        schedule.source == "uncertain"
        or schedule.name not in _FORMULAS
        or not (stages and batches and chunks)
    ):
        return None, None
    return _FORMULAS[schedule.name], (stages - 1) / (chunks * batches + stages - 1)


def build_schedule_table(training: Training) -> pl.DataFrame:
    """Build the one row of `SCHEDULE_TABLE`."""
    schedule = training.schedule
    closed = ideal_bubble_fraction(schedule)
    whole = select_whole_steps(training).select("lane", "step")
    steps = training.steps.join(whole, on=["lane", "step"], how="semi", maintain_order="left")
    complete = build_step_table(dataclasses.replace(training, steps=steps))
    known = {
        "source": schedule.source,
        "stage_count": schedule.stage_count,
        "micro_batch_count": schedule.micro_batch_count,
        "chunk_count": schedule.chunk_count,
        "sentence": _SENTENCES.get(schedule.name, schedule.reason),
        "preset": training.preset,
    }
    row = {
        **{name: value or None for name, value in known.items()},
        "name": schedule.name,
        "agreement_fraction": schedule.agreement if schedule.source else None,
        "unexplained_fraction": schedule.unexplained,
        "formula": closed[0],
        "formula_bubble_fraction": closed[1],
        "ideal_bubble_fraction": complete["ideal_bubble_fraction"].median(),
        "bubble_fraction": complete["bubble_fraction"].median(),
    }
    return pl.DataFrame([row])


def _list_reasons(table: pl.DataFrame) -> list[str]:
    unknown = table.filter(pl.col("source").is_null())["sentence"].drop_nulls()
    uncertain = table.filter(source="uncertain")["unexplained_fraction"]
    return [
        *(f"unknown: {reason}" for reason in unknown),
        *(
            f"uncertain: {100 * share:.0f} % of the compute between jobs belongs to no job"
            for share in uncertain
        ),
    ]


SCHEDULE_TABLE = Table(
    name="schedule",
    title="Schedule",
    columns=(
        Column("name", pl.String, "name of the schedule, or unknown", heading="Schedule"),
        Column("source", pl.String, "given, recognised, or uncertain: much compute belongs to no job"),
        Column(
            "agreement_fraction",
            pl.Float64,
            "share of the jobs whose position agrees with the schedule",
            heading="Agree",
            priority=4,
            decimals=1,
        ),
        Column(
            "unexplained_fraction",
            pl.Float64,
            "share of the compute between jobs that belongs to no job",
            heading="Unexplained",
            decimals=1,
        ),
        Column("stage_count", pl.Int64, "stages; null: unknown", priority=3),
        Column("micro_batch_count", pl.Int64, "micro-batches of a step; null: unknown", priority=3),
        Column("chunk_count", pl.Int64, "parts of the model on each stage", priority=2),
        Column(
            "formula",
            pl.String,
            "ideal bubble if all jobs of a kind are equally long and messages take no time",
        ),
        Column(
            "formula_bubble_fraction",
            pl.Float64,
            "value of the formula; null if no formula is exact",
            heading="Formula",
            decimals=1,
            note="formula: all jobs of a kind equally long",
        ),
        Column(
            "ideal_bubble_fraction",
            pl.Float64,
            "bubble with the recorded lengths of jobs; median of the complete steps, null: unknown",
            heading="Ideal",
            decimals=1,
            note="ideal: the same jobs without gaps between them",
        ),
        Column(
            "bubble_fraction",
            pl.Float64,
            "measured bubble, with optimizer and collectives; median of the complete steps",
            decimals=1,
        ),
        Column("sentence", pl.String, "description of the schedule, or the reason why it is unknown"),
        Column("preset", pl.String, "naming rules that recognise jobs; null if none fits", priority=2),
    ),
    caption="bubble: as measured",
    rows=build_schedule_table,
    view=View(
        columns=(
            *("name", "preset", "stage_count", "micro_batch_count", "chunk_count", "agreement_fraction"),
            "unexplained_fraction",
            *("bubble_fraction", "ideal_bubble_fraction", "formula_bubble_fraction", "formula"),
        ),
        derive=lambda table: table.with_columns(pl.when(source="uncertain").then("unexplained_fraction")),
        notes=_list_reasons,
    ),
)


LOW_CLOCK = 0.95  # of the usual clock; clocks of a GPU under load vary by some steps of 15 MHz
_MOST_NOTES = 3
_REASON = "nsys does not record why (power, temperature and set limits are possible reasons)"


def describe_clocks(training: Training, sums: pl.DataFrame) -> list[str]:
    """Describe clocks that fell in a step, and GPUs with lower clocks than others.

    The largest differences first.

    A clock is the mean during the kernels of a step, of samples. It fell if it is below 95 % of the median of
    the steps of the GPU; it is low if the median of its steps is below 95 % of the median of all GPUs.

    Args:
        training: The training.
        sums: `METRIC_SUMS`.
    """
    clocks = (
        sums.filter(
            pl.col("metric").map_elements(is_clock, return_dtype=pl.Boolean), pl.col("group") == "compute"
        )
        .drop_nulls("step")
        .with_columns(clock=pl.col("integral") / pl.col("time_ns"))
        .join(training.lanes.select("lane", "label", "machine", "gpu"), on="lane")
        .with_columns(usual=pl.col("clock").median().over("lane"), step_count=pl.len().over("lane"))
        .with_columns(share=pl.col("clock") / pl.col("usual"))
    )
    return [*_describe_falls(training, clocks), *_describe_low(clocks)]


def _describe_falls(training: Training, clocks: pl.DataFrame) -> list[str]:
    lengths = training.steps.select(
        "lane", "step", length=pl.col("end_ns") - pl.col("start_ns")
    ).with_columns(usual_length=pl.col("length").median().over("lane"))
    worst = (
        clocks.filter(pl.col("step_count") >= FEWEST, pl.col("share") < LOW_CLOCK)
        .join(lengths, on=["lane", "step"], how="left", maintain_order="left")
        .sort("lane", "share", "step")
        .group_by("lane", maintain_order=True)
        .agg(pl.all().first(), count=pl.len())
    )
    notes = []
    for row in worst.sort("share", "lane").head(_MOST_NOTES).iter_rows(named=True):
        more = f", and in {format_count(row['count'] - 1, 'more step')}" if row["count"] > 1 else ""
        notes.append(
            f"the clock of {_name(row)} fell from {row['usual']:,.0f} MHz, the median of its steps, to"
            f" {row['clock']:,.0f} MHz in step {row['step']}{more}; the step took"
            f" {format_duration(int(row['length']))}, the median is "
            f"{format_duration(int(row['usual_length']))}. {_REASON}"
        )
    if len(worst) > _MOST_NOTES:
        notes.append(f"the clocks of {format_count(len(worst) - _MOST_NOTES, 'more GPU')} fell in steps")
    return notes


def _describe_low(clocks: pl.DataFrame) -> list[str]:
    lanes = clocks.group_by("lane", maintain_order=True).agg(
        pl.col("label", "machine", "gpu", "usual").first()
    )
    if len(lanes) < FEWEST:
        return []
    median = float(lanes["usual"].median())  # type: ignore[arg-type]
    low = lanes.filter(pl.col("usual") < LOW_CLOCK * median).sort("usual", "lane")
    notes = [
        f"the clock of {_name(row)} is {row['usual']:,.0f} MHz, the median of all GPUs {median:,.0f} MHz. "
        f"{_REASON}"
        for row in low.head(_MOST_NOTES).iter_rows(named=True)
    ]
    if len(low) > _MOST_NOTES:
        notes.append(f"the clocks of {format_count(len(low) - _MOST_NOTES, 'more GPU')} are low")
    return notes


def _name(row: dict[str, object]) -> str:
    place = f"{row['machine']} {row['gpu']}"
    return str(row["label"]) if row["label"] == place else f"{row['label']} ({place})"


_ROLE = Column("role", pl.String, "role of that job: name of the model, such as actor or critic; null: none")
_ACTIVITY = Column("activity", pl.String, "cause and kind of job, as text")


def build_critical_table(training: Training) -> pl.DataFrame:
    """Build the rows of `CRITICAL_TABLE`: sums of the critical paths of the complete steps, largest first."""
    complete = sum_lane_steps(training).filter("is_complete").select("step").unique()
    path = find_critical_path(training).join(complete, on="step", how="semi")
    duration = pl.col("end_ns") - pl.col("start_ns")
    step_count = max(path["step"].n_unique(), 1)
    return (
        path.group_by("stage", "cause", "kind", "role")
        .agg(step_count=pl.col("step").n_unique(), segment_count=pl.len(), total_ns=duration.sum())
        .with_columns(
            time_ns=pl.col("total_ns") / step_count,
            fraction=pl.col("total_ns") / pl.col("total_ns").sum(),  # integers: the order has no influence
            most_gain_ns=pl.col("total_ns") / (10 * step_count),
        )
        .sort("time_ns", "stage", "cause", "kind", "role", descending=[True, False, False, False, False])
    )


def build_path_table(training: Training) -> pl.DataFrame:
    """Build the rows of `PATH_TABLE`: the critical path of every step."""
    return (
        find_critical_path(training)
        .select(CRITICAL_PATH.names())
        .join(training.lanes.select("lane", "label"), on="lane", how="left", maintain_order="left")
        .with_columns(pl.col("start_ns", "end_ns") - training.zero_ns)
    )


def _add_activity(table: pl.DataFrame) -> pl.DataFrame:
    activity = pl.concat_str("cause", "kind", separator=": ", ignore_nulls=True)
    return table.with_columns(activity=activity.str.replace_all("_", " "))


CRITICAL_TABLE = Table(
    name="critical",
    title="Critical path, per step",
    columns=(
        Column("stage", pl.Int64, "pipeline stage; null: unknown"),
        Column("cause", CAUSE, "compute, or the cause of the bubble"),
        Column("kind", JOB_KIND, "kind of the job that computes; null outside of jobs"),
        _ROLE,
        Column("step_count", pl.Int64, "complete steps with this work on their critical path"),
        Column("segment_count", pl.Int64, "number of segments of this work on these paths"),
        Column(
            "time_ns", pl.Float64, "time on the path of a step; mean of the complete steps", display_unit="ms"
        ),
        Column("fraction", pl.Float64, "share of the path", decimals=1),
        Column(
            "most_gain_ns",
            pl.Float64,
            "upper limit of the gain in a step if this work were 10 % faster; less if another path is then "
            "the longest",
            heading="Gain if 10 % faster",
            display_unit="ms",
            priority=4,
        ),
    ),
    caption=(
        "the chain of work and waiting that determines the length of a complete step, across lanes;"
        " gain: 10 % of the time, less if another path is then the longest"
    ),
    rows=build_critical_table,
    view=View(
        columns=("time_ns", "fraction", "most_gain_ns", "stage", "role", _ACTIVITY),
        derive=_add_activity,
        only=pl.col("fraction") >= 0.0005,
        hidden="{} are below 0.05 % of the path",
    ),
)
PATH_TABLE = Table(
    name="critical_path",
    title="Critical path of each step",
    columns=(
        Column("step", pl.Int64, "number of the step"),
        Column("lane", pl.UInt32, "lane of the path"),
        Column("label", pl.String, "name of that lane", heading="Lane"),
        Column("stage", pl.Int64, "stage of that lane; null: unknown"),
        Column("cause", CAUSE, "compute, or the cause of the bubble"),
        Column("kind", JOB_KIND, "kind of the job that computes; null outside of jobs"),
        _ROLE,
        Column("job", pl.UInt32, "number of that job"),
        Column("start_ns", pl.Int64, "start, from the start of the earliest session", display_unit="ms"),
        Column("end_ns", pl.Int64, "end, from the start of the earliest session", display_unit="ms"),
    ),
    caption="the chain of work and waiting that determines the length of each step, in order of time",
    rows=build_path_table,
    view=View(
        columns=("step", "start_ns", "end_ns", "label", "stage", "role", _ACTIVITY), derive=_add_activity
    ),
)
