"""What is sent and received: every half of every point-to-point kernel of a report."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.pipeline.report.launched import find_first_calls
from nsys_pp.schema import conform
from nsys_pp.training import MESSAGE_KINDS, MESSAGES

Int64s = npt.NDArray[np.int64]

_KERNEL = r"(?i)send_?recv"
_VERBS = {"Send": "send", "Recv": "receive"}  # NCCL's word -> ours
_TOLD = ("direction", "micro_batch", "chunk", "virtual_stage")


def find_messages(
    *,
    gpu_ops: pl.DataFrame,
    requests: pl.DataFrame,
    jobs: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
) -> pl.DataFrame:
    """List what each point-to-point kernel sends and receives.

    What NCCL was asked for says it; where that is not recorded, the innermost job around the kernel's
    launch that is itself a message does. That job also says which micro-batch a message is of, unless
    it both sends and receives: then its name has two, and does not say which is whose.

    Args:
        gpu_ops: `GPU_OPS`.
        requests: `REQUESTS`.
        jobs: `JOBS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES`, at least of communication.

    Returns:
        `MESSAGES` by start; `step` is null. A kernel of which nothing tells what it does has one row
        without a verb. Empty where there is no point-to-point kernel.
    """
    asked = requests.filter(pl.col("call").is_in(list(_VERBS))).select(
        *("op_id", "communicator", "rank", "peer", "size_bytes"),
        verb=pl.col("call").replace(_VERBS),
        source=pl.lit("NCCL"),
    )
    names = gpu_ops.filter("is_communication")["name"].unique()
    wanted = names.filter(names.cast(pl.String).str.contains(_KERNEL))
    is_message = pl.col("name").is_in(wanted.implode()) | pl.col("op_id").is_in(asked["op_id"].implode())
    ops = gpu_ops.filter("is_communication", pl.col("kind") != "memcpy", is_message)
    named = _jobs_around(ops, jobs, api_calls, launches)
    told = ops.join(named, on="op_id", how="left", maintain_order="left")
    halves = told.join(asked, on="op_id", how="left", maintain_order="left_right")
    by_name = pl.col("verb").is_null() & pl.col("verbs").is_not_null()
    return (
        halves.with_columns(
            source=pl.when(by_name).then(pl.lit("name")).otherwise("source"),
            verbs=pl.when(pl.col("verb").is_null()).then("verbs").otherwise(pl.concat_list("verb")),
            step=pl.lit(None),
        )
        .drop("verb")
        .explode("verbs")
        .rename({"verbs": "verb"})
        .sort("start_ns", maintain_order=True)
        .pipe(conform, MESSAGES)
    )


def _jobs_around(
    ops: pl.DataFrame, jobs: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> pl.DataFrame:
    """Say what the innermost message job around each operation's launch tells.

    Returns:
        op_id, verbs (a list), direction, micro_batch, chunk, virtual_stage; one row per operation in such a job.
    """
    called = find_first_calls(ops["op_id"], api_calls=api_calls, launches=launches)
    calls = ops.select("op_id").hstack(called).drop_nulls("launch_ns").sort("launch_ns")
    columns = ["thread_key", "range_id", "outer_id", "kind", "host_start_ns", "host_end_ns", *_TOLD]
    ranges = jobs.select(columns).unique("range_id", keep="first", maintain_order=True)
    ranges = ranges.sort("host_start_ns").with_row_index("row")
    nearest = calls.join_asof(
        ranges.select("thread_key", "host_start_ns", "row"),
        left_on="launch_ns",
        right_on="host_start_ns",
        by="thread_key",
        check_sortedness=False,
    )
    row = _climb(nearest, ranges)
    is_inside = row >= 0
    found = ranges[row[is_inside]].hstack(nearest.select("op_id").filter(pl.Series(is_inside)))
    is_both = pl.col("kind") == "send_receive"
    verbs = (
        pl.when(is_both)
        .then(pl.lit(["send", "receive"]))
        .otherwise(pl.concat_list(pl.col("kind").cast(pl.String)))
    )
    ids = [pl.when(~is_both).then(name).alias(name) for name in _TOLD[1:]]
    return found.select("op_id", verbs.alias("verbs"), "direction", *ids)


def _climb(calls: pl.DataFrame, ranges: pl.DataFrame) -> Int64s:
    """Go from the job that began last before each call to the innermost message job that holds it; -1: none."""
    ids = ranges.select("range_id", "row")
    outer = ranges.select(range_id="outer_id").join(ids, on="range_id", how="left", maintain_order="left")
    above = outer["row"].cast(pl.Int64).fill_null(-1).to_numpy()
    ends = ranges["host_end_ns"].to_numpy()
    is_message = ranges["kind"].is_in(MESSAGE_KINDS).to_numpy()
    row: Int64s = calls["row"].cast(pl.Int64).fill_null(-1).to_numpy().copy()
    call_ends = calls["launch_end_ns"].to_numpy()
    going = np.flatnonzero(row >= 0)
    while len(going):
        at = row[going]
        going = going[~is_message[at] | (ends[at] < call_ends[going])]
        row[going] = above[row[going]]
        going = going[row[going] >= 0]
    return row
