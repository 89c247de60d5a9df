"""Durations of communication kernels, by call, size and communicator."""

from __future__ import annotations

import polars as pl

from nsys_pp.aggregates.step_times import step_on_device
from nsys_pp.arrays.columns import gather, gather_rows, has_value, is_among, keep_rows, numbers, subtract
from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.arrays.members import mark_members
from nsys_pp.arrays.names import extract_texts, list_names
from nsys_pp.arrays.search import find_rows
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
    is_kernel = gpu_ops["is_communication"].to_numpy() & is_among(gpu_ops["kind"], KERNEL_KINDS)
    kernels = keep_rows(gpu_ops, is_kernel)
    if kernels.is_empty():
        return COLLECTIVE_AGGREGATES.to_frame()
    op_id = numbers(kernels["op_id"])
    own = keep_rows(requests, mark_members(numbers(requests["op_id"]), op_id))
    requested = _describe_requests(own, nccl_calls)
    described = gather_rows(
        requested, ["call", "size_bytes", "rank_count"], find_rows(numbers(requested["op_id"]), op_id)
    )
    call = described["call"]
    if call.null_count():
        call = call.zip_with(pl.Series(has_value(call)), _name_calls(kernels["name"]))
    columns = [
        step_on_device(kernels, steps),
        call.alias("call"),
        described["size_bytes"],
        described["rank_count"],
        subtract(kernels["end_ns"], kernels["start_ns"]).alias("duration_ns"),
    ]
    keys = ["process_key", "device_id", "step", "call", "size_bytes", "rank_count"]
    timed = kernels[keys[:2]].hstack(columns)
    return conform(build_distributions(timed, keys, "duration_ns"), COLLECTIVE_AGGREGATES)


def _describe_requests(requests: pl.DataFrame, nccl_calls: pl.DataFrame) -> pl.DataFrame:
    """Describe each operation by its requests: op_id, call, size_bytes, rank_count; null where requests disagree."""
    sizes = nccl_calls.drop_nulls("rank_count").group_by("communicator").agg(pl.col("rank_count").max())
    sized = requests.join(sizes, on="communicator", how="left", maintain_order="left")
    op_id = numbers(sized["op_id"])
    if (op_id[1:] != op_id[:-1]).all():  # requests of an operation follow each other, and most are alone
        return sized
    is_same = pl.col("rank_count").n_unique() == 1
    return sized.group_by("op_id").agg(
        pl.col("call").unique().sort().str.join("+").replace(_BOTH_WAYS),
        pl.when(pl.col("size_bytes").is_not_null().all()).then(pl.col("size_bytes").sum()),
        pl.when(is_same).then(pl.col("rank_count").first()),
    )


def _name_calls(names: pl.Series) -> pl.Series:
    """Parse the call from the name of each kernel; each distinct name is parsed once."""
    distinct = list_names(names)
    return gather(extract_texts(distinct.texts, _NAMED_CALL), distinct.row)
