"""Meanings of the columns of frames that are tables of queries."""

from __future__ import annotations

from collections.abc import Mapping

_NUMBER = "number of the lane, as in `lanes`; `gaps`, `phases` and others have its name (`lanes.label`) in the column of this name"
_ALIGNED = "on the aligned clock, in ns since 1970"
_JOBS = {
    "lane": _NUMBER,
    "job": "number of the job: its row in this table",
    "outer": "`job` of the innermost job around it; null: none",
    "step": "number of the step; null: outside all steps",
    "kind": "forward, backward, weight_gradient, recompute, optimizer, ...",
    "direction": "of sends and receives: forward (activations) or backward (gradients); null: unknown, or another kind",
    "micro_batch": "number of the micro-batch; of a forward_backward that of its forward; null: unknown",
    "chunk": "part of the model, numbered in its stage; null: unknown",
    "virtual_stage": "part of the model, numbered over all stages; null: unknown",
    "backward_micro_batch": "of a forward_backward: micro-batch of its backward; else null",
    "backward_chunk": "of a forward_backward: chunk of its backward; else null",
    "backward_virtual_stage": "of a forward_backward: virtual stage of its backward; else null",
    "is_inferred": "micro_batch or chunk is not from its name",
    "confidence": "of inferred numbers, 0 to 1; null: none is inferred",
    "phase": "of a DualPipeV schedule, 0 to 6; else null",
    "label": "text of its bar: `3`, `3b`, `7F+13B`",
    "name": "name of its range; null: reconstructed from messages",
    "role": "name of the model, where there are several: actor, critic; else null",
    "range_id": "number of its range in its report; null: reconstructed from messages",
    "start_ns": f"start of its first operation {_ALIGNED}",
    "end_ns": f"end of its last operation {_ALIGNED}",
    "busy_ns": "time in which any of its operations ran",
    "compute_start_ns": "first start of its kernels that are not communication; null: none",
    "compute_end_ns": "last end of its kernels that are not communication; null: none",
    "compute_ns": "time in which any of these kernels ran; null: none",
    "host_start_ns": f"start of its range on the CPU, {_ALIGNED}; null: reconstructed from messages",
    "host_end_ns": f"end of its range on the CPU, {_ALIGNED}; null: reconstructed from messages",
    "launch_delay_ns": "from the start of the call that launched its first operation to the operation; null: unknown",
    "op_count": "its GPU operations; null: reconstructed from messages",
}
_MESSAGES = {
    "sender": "number of the lane that sends, as in `lanes`",
    "receiver": "number of the lane that receives, as in `lanes`",
    "step": "step of the sender; null: outside all steps",
    "direction": "forward (activations) or backward (gradients); null: unknown",
    "micro_batch": "number of the micro-batch; null: unknown",
    "size_bytes": "size of the message; null: not recorded",
    "send_start_ns": f"start of the sender's kernel {_ALIGNED}",
    "send_end_ns": "end of the sender's kernel",
    "receive_start_ns": "start of the receiver's kernel",
    "receive_end_ns": "end of the receiver's kernel",
    "send_wait_ns": "time of the sender's kernel before the receiver's start; null: clocks cannot be compared",
    "receive_wait_ns": "time of the receiver's kernel before the sender's start; null: clocks cannot be compared",
    "transfer_ns": "the rest of the receiver's kernel; null: clocks cannot be compared",
    "is_buffered": "the send ended before the receive began",
    "bound_ns": "error bound of waits and transfer: sum of the bounds of both lanes; null: unknown",
    "source": "source of the peer: `peer and order`, `only peer and order`, `stages and order`, or `ends`",
    "doubtful": "clocks: the pair is right only if clocks are wrong; null: certain",
}
_LANE_STATES = {
    "lane": _NUMBER,
    "step": "number of the step",
    "position": "warm-up: before the first backward of the lane in the step; cool-down: after its last forward; null: neither exists",
    "cause": "compute, or the cause of the bubble: message_wait, host, data, ...",
    "start_ns": f"start {_ALIGNED}",
    "end_ns": "end",
    "waits_for": "number of the late lane, of message_wait and collective_wait; null: unknown, or another cause",
}
_CLOCKS = {
    "machine": "name of the machine",
    "reports": "numbers of its reports, from 0",
    "group": "clocks of one group were compared with each other, directly or through others",
    "source": "evidence that the clock is aligned with: collectives, MPI, send/receive, UTC, ...",
    "offset_ns": "added to recorded UTC in the middle of the capture",
    "drift_ppm": "rate relative to the median clock of its group; positive: fast",
    "residual_median_ns": "median distance of the ends of shared operations after correction; null: none are shared",
    "residual_p95_ns": "95th percentile of this distance; null: none are shared",
    "bound_ns": "error bound relative to other clocks of its group; null: unknown",
    "collective_count": "collectives shared with other clocks",
    "mpi_count": "MPI calls shared with other clocks",
    "message_count": "messages shared with other clocks",
}
MEANINGS: Mapping[str, Mapping[str, str]] = {
    "jobs": _JOBS,
    "messages": _MESSAGES,
    "lane_states": _LANE_STATES,
    "clocks": _CLOCKS,
}
"""Meaning of each column, by table."""
