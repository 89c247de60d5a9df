"""Durations of communication kernels, by call, size and communicator."""

from __future__ import annotations

import polars as pl

from nsys_pp.aggregates.step_times import step_on_device
from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.frames.aggregates import COLLECTIVE_AGGREGATES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import KERNEL_KINDS

# "AllReduce" in ncclDevKernel_AllReduce_Sum_bf16_RING_LL, ncclKernel_AllReduce_RING_LL_Sum_half and
# ncclAllReduceRingLLKernel_sum_f16; a name with several has them in this order.
_NAMED_CALL = r"(?i:nccl|rccl|hccl)\w*?(AllReduce|AllGather|AllToAll|ReduceScatter|SendRecv|Broadcast|Reduce|Gather|Scatter)"
_BOTH_WAYS = {"Recv+Send": "SendRecv"}  # NCCL's name of the kernel that sends and receives


def sum_collectives(
    gpu_ops: pl.DataFrame, requests: pl.DataFrame, nccl_calls: pl.DataFrame, steps: pl.DataFrame
) -> pl.DataFrame:
    """Add up durations of the kernels of communication by call, size, and size of the communicator.

    A kernel counts once. A kernel of several requests (a group of NCCL) has the sum of their bytes, and as call their
    common name; requests with different names are joined by "+" in alphabetical order, except sends with receives,
    which are "SendRecv". Without requests the call is parsed from the name of the kernel, and size and
    communicator are null.

    Args:
        gpu_ops: `GPU_OPS`, in order of op_id.
        requests: `REQUESTS`.
        nccl_calls: `NCCL_CALLS`. The size of a communicator is known if any process of the report created it.
        steps: `STEPS`.

    Returns:
        `COLLECTIVE_AGGREGATES`, in order of the first kernel of each row. Empty in, empty out.
    """
    kernels = gpu_ops.filter("is_communication", pl.col("kind").is_in(KERNEL_KINDS))
    requested = _describe_requests(requests.join(kernels, on="op_id", how="semi"), nccl_calls)
    described = kernels.join(requested, on="op_id", how="left", maintain_order="left").join(
        _name_calls(kernels["name"]), on="name", how="left", nulls_equal=True, maintain_order="left"
    )
    timed = described.select(
        "process_key",
        "device_id",
        step_on_device(kernels, steps),
        pl.coalesce("call", "named_call").alias("call"),
        "size_bytes",
        "rank_count",
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    keys = ["process_key", "device_id", "step", "call", "size_bytes", "rank_count"]
    return conform(build_distributions(timed, keys, "duration_ns"), COLLECTIVE_AGGREGATES)


def _describe_requests(requests: pl.DataFrame, nccl_calls: pl.DataFrame) -> pl.DataFrame:
    """Describe each operation by its requests: op_id, call, size_bytes, rank_count; null where requests disagree."""
    sizes = nccl_calls.drop_nulls("rank_count").group_by("communicator").agg(pl.col("rank_count").max())
    sized = requests.join(sizes, on="communicator", how="left")
    is_same = pl.col("rank_count").n_unique() == 1
    return sized.group_by("op_id").agg(
        pl.col("call").unique().sort().str.join("+").replace(_BOTH_WAYS),
        pl.when(pl.col("size_bytes").is_not_null().all()).then(pl.col("size_bytes").sum()),
        pl.when(is_same).then(pl.col("rank_count").first()),
    )


def _name_calls(names: pl.Series) -> pl.DataFrame:
    """Parse the call from each distinct name of a kernel: name, named_call."""
    distinct = names.unique().alias("name").to_frame()
    return distinct.with_columns(named_call=pl.col("name").cast(pl.String).str.extract(_NAMED_CALL))
