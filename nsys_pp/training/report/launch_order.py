"""Launches of one device, in the order in which the threads of its process made them."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, find_distinct, has_value, is_among, numbers, pack
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.training.report.repetition import Launches

_UPDATE = r"(?i)adam|lamb_|adagrad|momentum|sgd|optimizer|multi_tensor|multitensor"
_BACKWARD = r"(?i)bwd|backward|dgrad|wgrad|_grad_|grad_input|gradinput"
_GRADIENT = r"(?i)bwd|backward|wgrad|bprop|_bw_|grad_input|gradinput|(?-i)Grad(?:Functor|Kernel|Op)"
"""Names of backwards; not dgrad: transposed convolutions of forwards run such kernels, too, nor gradients of solvers."""
_MESSAGE = r"(?i)send|recv"
_LEAST_KNOWN = 0.9  # share of operations with a launch call, from which the order of launches is used
_GRAPH = "CUDA graph"


def order_launches(gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame) -> Launches:
    """Order the launches of the operations of one device; arguments as in `order_operations`."""
    return _order(gpu_ops, api_calls=api_calls, launches=launches)[0]


def order_operations(
    gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> tuple[Launches, Int64s]:
    """Order the launches of the operations of one device, and number the operations by their launch.

    The operations of one call, as those of a CUDA graph traced by node, are one launch. CUDA graphs have one name: an
    engine of inference has a graph per size of a batch. Operations without a launch call are left out, unless many
    have none: then the order is that of their starts.

    Args:
        gpu_ops: `GPU_OPS` of one device.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.

    Returns:
        Launches; by row of `gpu_ops`, the position of its launch, -1 without one.
    """
    ordered, order, is_first = _order(gpu_ops, api_calls=api_calls, launches=launches)
    position = np.full(len(gpu_ops), -1)
    position[order] = np.cumsum(is_first) - 1
    return ordered, position


def _order(
    gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> tuple[Launches, Int64s, Bools]:
    """Order the launches; also return the rows of their operations, in order, and the mask of the first of each launch."""
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
    start, end = numbers(gpu_ops["start_ns"]), numbers(gpu_ops["end_ns"])
    has_calls = (call >= 0).mean() >= _LEAST_KNOWN if len(call) else False
    launch = gather_calls(api_calls["start_ns"], call) if has_calls else start
    launched = gather_calls(api_calls["end_ns"], call) if has_calls else start
    order = sort_rows(launch, start)
    if (launch == NEVER).any():
        order = order[launch[order] != NEVER]
    is_first = np.ones(len(order), dtype=np.bool_)
    if has_calls and len(order):  # of the operations of one call, the first
        call_in_order = call[order]
        is_first[1:] = call_in_order[1:] != call_in_order[:-1]
    rows = order
    order = order if is_first.all() else order[is_first]
    thread = np.full(len(order), -1)
    if has_calls:
        thread = find_distinct(numbers(api_calls["thread_key"])[call[order]])[1]
    is_graph = has_value(gpu_ops["graph_id"]) | is_among(gpu_ops["kind"], ("graph",))
    code = pack(numbers(gpu_ops["kind"]), numbers(gpu_ops["name"], null=-1))
    code = np.where(is_graph, code.max(initial=0) + 1, code)[order]
    first, name = find_distinct(code)
    row = order[first]
    text, kind = gpu_ops["name"][row].cast(pl.String).fill_null(""), gpu_ops["kind"][row]
    is_kernel = is_among(kind, ("kernel",)) & ~is_graph[row]
    is_communication = gpu_ops["is_communication"][row].fill_null(value=False).to_numpy() & is_kernel
    ordered = Launches(
        name=name,
        launch=launch[order],
        launched=launched[order],
        start=start[order],
        end=end[order],
        thread=thread,
        is_update=text.str.contains(_UPDATE).to_numpy() & is_kernel,
        is_backward=text.str.contains(_BACKWARD).to_numpy() & is_kernel,
        is_gradient=text.str.contains(_GRADIENT).to_numpy() & is_kernel,
        is_communication=is_communication,
        is_message=is_communication & text.str.contains(_MESSAGE).to_numpy(),
        is_copy=~is_kernel & ~is_graph[row],
        to_host=text.str.contains("DtoH").to_numpy() & ~is_kernel & ~is_graph[row],
        is_input=text.str.contains("HtoD").to_numpy() & ~is_kernel & ~is_graph[row],
        is_graph=is_graph[row],
    )
    return ordered, rows, is_first
