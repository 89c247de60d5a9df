"""Phases: parts of inferred steps, on each device."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema

PHASE_KINDS = ("forward", "backward", "optimizer", "segment")
PHASE_KIND = pl.Enum(PHASE_KINDS)
"""Kind of a phase; a segment has a clear begin and end, but no certain meaning."""

PHASES = build_schema(
    {  # inferred parts of steps found by repetition, one row per phase, step and device; by process_key,
        # device_id, step, number. Launches whose phase is uncertain are in none.
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # of `STEPS`
        "number": pl.Int64,  # in its step: 0, 1, ...
        "kind": PHASE_KIND,
        "index": pl.Int64,  # among the phases of its kind in its step, as the micro-batch of a forward: 0, 1, ...
        "start_ns": pl.Int64,  # start of the first operation launched in it
        "end_ns": pl.Int64,  # end of its last operation
        "busy_ns": pl.Int64,  # union of its operations
        "op_count": pl.Int64,
        "confidence": pl.Float64,  # in the phases of the device, given the steps, 0 to 1
        "reason": pl.String,  # evidence, the same for all phases of the device
    },
    name="PHASES",
)
