"""Batches: iterations of inference, on each device."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema

BATCH_KIND = pl.Enum(["prefill", "decode", "mixed"])
"""Kind of a batch of inference: new requests, tokens of running requests, or both."""
BATCH_COUNTS = ("context_requests", "context_tokens", "generation_requests", "generation_tokens")
"""Counts of a batch: requests and tokens of prefills (context), and of running requests (generation)."""
HOST_ACTIVITIES = (
    "scheduling",
    "preparing",
    "launching",
    "sampling",
    "tokenising",
    "copying",
    "waiting",
    "other",
)
"""Activities of the host while the GPU is idle between two batches.

Scheduling, preparing inputs, launching (and the rest of the forward), sampling (with the update of requests), tokenising (with the output of
responses), copying, waiting (synchronising calls, locks), and time without any of these.
"""
HOST_ACTIVITY_COLUMNS = tuple(f"{activity}_ns" for activity in HOST_ACTIVITIES)

BATCHES = build_schema(
    {  # steps of inference, one row per step and device; by process_key, device_id, step
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # of `STEPS`
        "kind": BATCH_KIND,  # null where unknown
        "source": pl.Enum(["name", "launches"]),  # of `kind`; null where unknown
        # Counts in the name of the range; null where it has none.
        **dict.fromkeys(BATCH_COUNTS, pl.Int64),
        # Operations launched from the start of its range to the start of the next one, without copies on streams aside, and
        # kernels of other threads there: first start and last end.
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "busy_ns": pl.Int64,  # union of all operations between both
        "kernel_ns": pl.Int64,  # sum of the durations of its kernels
        "graph_ns": pl.Int64,  # of these in CUDA graphs
        "launch_count": pl.Int64,  # calls that launched kernels
        "graph_launch_count": pl.Int64,  # of these that launched CUDA graphs
        "gap_ns": pl.Int64,  # from its end to the start of the next batch of the device; null for the last one
        # Parts of the gap by the activity of the thread that launched the next batch; null without a gap.
        **dict.fromkeys(HOST_ACTIVITY_COLUMNS, pl.Int64),
    },
    name="BATCHES",
)
