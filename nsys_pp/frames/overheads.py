"""Time in which tracing or CUDA held threads, and its sums by step."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema

OVERHEADS = build_schema(
    {  # one row per interval, any order
        "thread_key": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": pl.String,  # "CUPTI Buffer flush"; null where unknown
        "is_of_profiler": pl.Boolean,  # false: CUDA or the program loads or compiles code, or launches are too many
    },
    name="OVERHEADS",
)

OVERHEAD_SUMS = build_schema(
    {  # overhead of the threads that launch on a device, one row per step and name; any order
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # of `STEPS`; null outside all steps
        "name": pl.String,  # null: all of the profiler, of which several may be at once
        "is_of_profiler": pl.Boolean,
        "time_ns": pl.Int64,
        "count": pl.Int64,  # intervals that began in the step
        "step_ns": pl.Int64,  # length of the step; null outside
        # Of flushes on other threads of the process: the part in which the device waited for a thread that was inside a CUDA call.
        "beside_ns": pl.Int64,
    },
    name="OVERHEAD_SUMS",
)

_OF_OTHERS = r"(?i)\b(?:function|module) loading\b|\bjit\b|compil|command buffer|^dl[a-z]+\("


def mark_of_profiler(name: pl.Expr) -> pl.Expr:
    """Return the mask of names of overhead that the profiler causes.

    CUDA loads modules and compiles kernels without a profiler, too; it waits where its buffer of commands is full; and libraries
    that a program opens (`dlopen`) are loaded anyway.
    """
    return ~name.str.contains(_OF_OTHERS).fill_null(value=False)
