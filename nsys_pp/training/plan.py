"""Steps of a run with other jobs: under another schedule, or of another number of micro-batches.

Each rank runs the jobs of its stage in the order of a schedule. A job takes the time that the recorded one of
its rank, step, kind, chunk and micro-batch needed without waits, or the median of these where it is missing;
a message, the median transfer of its link. What a rank does before its first and after its last job of a step
stays. So the order is new, and the times are measured.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import find_distinct, numbers
from nsys_pp.arrays.types import Int64s
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.training import JOB_KIND, SCHEDULED_KINDS
from nsys_pp.training.ideal import find_dependencies, number_pipelines, run_nodes
from nsys_pp.training.orders import order_jobs
from nsys_pp.training.schedule import find_virtual_stage
from nsys_pp.training.whatif import Change, WhatIf

# Least and largest share of a backward that is of its weight gradients, where they are not recorded apart.
# They are half of the backward of a matrix product; attention and norms have none or few, and are taken to be
# a third of a backward at most.
WEIGHT_SHARES = (1 / 3, 1 / 2)


class Order(Struct, frozen=True):
    """A schedule, and how many micro-batches a step and chunks a stage has."""

    schedule: str
    micro_batches: int
    chunks: int


class Planned(Struct, frozen=True, kw_only=True):
    """A step in another order.

    Attributes:
        jobs: One row per job, and per lane and step for what follows the jobs (kind "other"): step, lane,
            kind, micro_batch, chunk, backward_micro_batch, backward_chunk, start_ns and end_ns since the
            start of the first step.
        step_ns: Mean time of a step.
    """

    jobs: pl.DataFrame
    step_ns: float


class Planner:
    """Measured times of the jobs of a run, for steps in other orders.

    Args:
        run: The run.
        change: Other durations.

    Raises:
        MissingDataError: The schedule, ranks or stages of the run are unknown.
    """

    def __init__(self, run: WhatIf, change: Change) -> None:
        found, lanes = run.training.schedule, run.training.lanes
        self._stages = max(found.stage_count, 1)
        if self._stages == 1:  # it need not be known
            lanes = lanes.with_columns(stage=pl.lit(0, pl.Int64))
        self._lanes = number_pipelines(lanes).sort("lane")
        reasons = (
            (found.source == "uncertain", found.reason),
            (not found.micro_batch_count, found.reason or "the numbers of micro-batches are unknown"),
            (found.name == "unknown" and self._stages > 1, found.reason or "the schedule is unknown"),
            (
                len(self._lanes) < len(lanes) or self._lanes["stage"].n_unique() < self._stages,
                "ranks or their stages are missing",
            ),
        )
        why = next((reason for is_so, reason in reasons if is_so), "")
        if why:
            raise MissingDataError(
                f"no other order of jobs can be predicted: {why}",
                "record all ranks; `--job-pattern` names the ranges of jobs, `--layout` the layout",
            )
        name = "1f1b" if found.name == "unknown" else found.name
        self.recorded = Order(name, found.micro_batch_count, max(found.chunk_count, 1))
        own = _find_own_times(run, change)
        jobs = run.training.jobs.select(
            "kind",
            chunk=pl.col("chunk").fill_null(0),
            batch=pl.col("micro_batch") % found.micro_batch_count,
            job=pl.col("job").cast(pl.Int64),
        )
        self._costs = (
            own.filter(~pl.col("is_before"))
            .group_by("step", "lane", "job")
            .agg(pl.col("own_ns").sum())
            .join(jobs, on="job")
        )
        steps, step = find_distinct(numbers(own["step"]))
        self._steps = numbers(own["step"])[steps]
        part = np.where(own["is_before"], 0, np.where(own["job"].is_null(), 1, 2))
        around = np.zeros((3, len(steps), len(self._lanes)))
        np.add.at(around, (part, step, numbers(own["lane"])), own["own_ns"].to_numpy())
        self._before_ns, self._after_ns, _ = around.round().astype(np.int64)
        self._meeting = _find_meeting(run, self._lanes)
        self._link_ns = _find_links(run, change)

    def choose(self, schedule: str | None, micro_batches: int | None) -> Order:
        """Choose an order: what is None is as recorded; of chunks there are as many as the schedule needs."""
        of = self.recorded
        name = schedule or of.schedule
        chunks = {"interleaved": max(of.chunks, 2), "dualpipev": 2}.get(name, 1)
        return Order(
            name,
            of.micro_batches if micro_batches is None else micro_batches,
            of.chunks if name == of.schedule else chunks,
        )

    def predict(self, order: Order) -> list[Planned]:
        """Replay the complete steps in another order, with each share of weights that is possible."""
        shares = WEIGHT_SHARES if self.assumes_weights(order) else WEIGHT_SHARES[:1]
        return [self.plan(order, weight_share=share) for share in shares]

    def assumes_weights(self, order: Order) -> bool:
        """Whether an order needs weight gradients that were not recorded apart."""
        is_recorded = (self._costs["kind"] == "weight_gradient").any()
        return order.schedule in ("zb-h1", "dualpipev") and not is_recorded

    @cached_property
    def recorded_ns(self) -> float:
        """Mean step in the recorded order."""
        return self.plan(self.recorded).step_ns

    def plan(self, order: Order, *, weight_share: float = WEIGHT_SHARES[0]) -> Planned:
        """Replay the complete steps in another order.

        Args:
            order: The order.
            weight_share: Of a backward, for its weight gradients, if they were not recorded apart.

        Raises:
            MissingDataError: The schedule needs more micro-batches, or forwards and backwards apart.
        """
        nodes = self._list_nodes(order)
        needs, _ = find_dependencies(nodes, self._stages * order.chunks)
        lane, every = numbers(nodes["lane"]), np.ones(len(nodes), np.bool_)
        lag = self._link_ns[np.append(lane, -1)[needs], lane[:, None]]
        timed, kinds = self._find_costs(nodes, order, weight_share), self._costs["kind"].unique().to_list()
        if "forward_backward" in kinds and not self._is_same(order):
            raise MissingDataError(
                "no other order of jobs can be predicted: recorded jobs combine a forward and a backward,"
                " and do not tell how long each is",
                "record the run in another schedule",
            )
        if timed["cost_ns"].has_nulls() or not {"forward", "backward"} <= {*kinds}:
            raise MissingDataError(
                "no other order of jobs can be predicted: their kinds or micro-batches are unknown",
                "name their ranges with `--preset` or `--job-pattern`",
            )
        free, starts, rest = np.zeros(len(self._lanes), np.int64), [], []
        for number, (before, after) in enumerate(zip(self._before_ns, self._after_ns, strict=True)):
            of_step = timed[number * len(nodes) : (number + 1) * len(nodes)]
            start, _ = run_nodes(of_step, needs, every, lag_ns=lag, free_ns=(free + before)[lane])
            last = np.zeros(len(free), np.int64)
            np.maximum.at(last, self._meeting[lane], start + numbers(of_step["cost_ns"]))
            free = last[self._meeting] + after
            starts.append(start)
            what = self._lanes.select(
                "lane", step=pl.lit(self._steps[number]), kind=pl.lit("other", JOB_KIND)
            )
            rest.append(what.with_columns(start_ns=last[self._meeting], end_ns=free))
        start_ns = pl.Series("start_ns", np.concatenate(starts))
        jobs = timed.with_columns(start_ns, end_ns=start_ns + pl.col("cost_ns"))
        return Planned(jobs=pl.concat([jobs, *rest], how="diagonal"), step_ns=float(free.max()) / len(starts))

    def _list_nodes(self, order: Order) -> pl.DataFrame:
        try:
            orders = pl.concat(
                order_jobs(
                    order.schedule,
                    stage=stage,
                    stages=self._stages,
                    micro_batches=order.micro_batches,
                    chunks=order.chunks,
                ).with_columns(stage=pl.lit(stage, pl.Int64))
                for stage in range(self._stages)
            )
        except ValueError as error:
            raise MissingDataError(f"{error}", "`--micro-batches` changes their number") from error
        named = orders.with_columns(
            _chunk=pl.coalesce("backward_chunk", "chunk"),
            _batch=pl.coalesce("backward_micro_batch", "micro_batch"),
        )
        key, shape = ["stage", "_chunk", "_batch"], "V" if order.schedule == "dualpipev" else "loop"
        weights = named.filter("is_weight").select(*key, is_split=pl.lit(value=True))
        return (
            self._lanes.join(named, on="stage", maintain_order="left_right")
            .join(weights, on=key, how="left", maintain_order="left")
            .with_columns(_stage=pl.col("stage"), _stages=pl.lit(self._stages))
            .with_columns(
                virtual_stage=find_virtual_stage("chunk", shape),
                backward_virtual_stage=find_virtual_stage("backward_chunk", shape),
                batch=pl.col("micro_batch") % self.recorded.micro_batches,
                run=pl.col("pipe"),
            )
        )

    def _is_same(self, order: Order) -> bool:
        """Whether an order has the recorded kinds and chunks of jobs."""
        return (order.schedule, order.chunks) == (self.recorded.schedule, self.recorded.chunks)

    def _find_costs(self, nodes: pl.DataFrame, order: Order, weight_share: float) -> pl.DataFrame:
        """Repeat the jobs for each step, with the time of the recorded one of its kind and micro-batch."""
        every = pl.DataFrame({"step": self._steps}).join(nodes, how="cross", maintain_order="left_right")
        is_same = self._is_same(order)
        key = ["step", "lane", "batch", *(["kind", "chunk"] if is_same else [])]
        time, of = pl.col("own_ns"), pl.col
        forward, back, weight = (time.filter(kind=kind).sum() / order.chunks for kind in SCHEDULED_KINDS[:3])
        if self.assumes_weights(order):
            back, weight = (1 - weight_share) * back, weight_share * back
        costs = self._costs.group_by(key).agg(same=time.sum(), forward=forward, back=back, weight=weight)
        found = every.join(costs, on=key, how="left", maintain_order="left")
        # a backward without a job for its weight gradients computes them, too
        whole = of("back") + pl.when("is_split").then(0.0).otherwise("weight")
        by_kind = zip(
            SCHEDULED_KINDS, (of("forward"), whole, of("weight"), of("forward") + whole), strict=True
        )
        derived = pl.coalesce(pl.when(of("kind") == kind).then(cost) for kind, cost in by_kind)
        cost = of("same") if is_same else derived
        usual = cost.median().over("lane", "kind", "chunk")
        return found.with_columns(cost_ns=cost.fill_null(usual).round().cast(pl.Int64))


def _find_own_times(run: WhatIf, change: Change) -> pl.DataFrame:
    """Find the time of each piece without waits.

    Returns:
        lane, step, job that it belongs to (null: after the last job of the step), is_before (the first job of
        the step), own_ns; of complete steps. What lies between two steps belongs to the first one.
    """
    graph, kinds = run.graph, run.training.jobs["kind"].is_in(SCHEDULED_KINDS)
    pieces = graph.pieces
    own = (pieces.end - pieces.start) * change.pieces
    # of communication that a rank waits for, the transfer of collectives; messages are part of the order
    transfer = graph.transfers * change.kernels
    transfer[graph.members.drop_nulls("peer")["kernel"].to_numpy()] = 0.0
    piece, kernel = graph.waits
    own[piece] = np.minimum(own[piece], transfer[kernel])
    job = pl.Series("job", pieces.job, dtype=pl.Int64)
    is_job = kinds.gather(job.clip(0)) & (job >= 0)
    counted, _ = run.counted
    times = pl.DataFrame(
        {"lane": pl.Series(pieces.lane, dtype=pl.UInt32), "step": pieces.step, "own_ns": own, "job": job}
    ).with_columns(
        step=pl.when(pl.col("step") >= 0).then("step").forward_fill().over("lane"),
        job=pl.when(is_job).then("job"),
    )
    return times.filter(pl.col("step").is_in(np.unique(pieces.step[counted]))).with_columns(
        job=pl.col("job").backward_fill().over("lane", "step"),
        is_before=pl.col("job").forward_fill().over("lane", "step").is_null(),
    )


def _find_meeting(run: WhatIf, lanes: pl.DataFrame) -> Int64s:
    """Number the lanes by whom they meet at the end of a step, as collectives show: all, or their stage."""
    graph, stages = run.graph, lanes["stage"].n_unique()
    collectives = graph.members.filter(pl.col("peer").is_null())
    members = collectives.select("group", lane=graph.kernels["lane"].gather(collectives["kernel"]))
    met = members.join(lanes, on="lane").group_by("group").agg(pl.col("lane", "stage").n_unique())
    if (met["stage"] == stages).any() and stages > 1:
        return np.zeros(len(lanes), np.int64)
    return numbers(lanes["stage" if (met["lane"] > 1).any() else "lane"])


def _find_links(run: WhatIf, change: Change) -> Int64s:
    """Find the usual transfer of messages between each two lanes; 0 of each to itself, and of none."""
    links = run.links.with_columns(
        pl.col("transfer_ns") * pl.Series(change.kernels).gather(run.links["kernel"])
    )
    each = links.group_by("sender", "receiver").agg(pl.col("transfer_ns").median())
    usual, count = each["transfer_ns"].median(), len(run.training.lanes)
    table = np.full((count + 1, count + 1), usual or 0.0)
    table[numbers(each["sender"]), numbers(each["receiver"])] = each["transfer_ns"]
    table[-1] = 0
    np.fill_diagonal(table, 0)
    return table.astype(np.int64)
