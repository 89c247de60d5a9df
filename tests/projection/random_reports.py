"""Random frames for projection: the irregularities of real reports, with few rows."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import strategies as st

from nsys_pp.frames.report import API_CALLS, GPU_OPS, RANGES

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]


@st.composite
def frames(draw: st.DrawFn) -> Frames:
    """Draw RANGES, API_CALLS and GPU_OPS of a random report; shrinks towards few rows and one thread."""
    return random_frames(
        seed=draw(st.integers(0, 2**32 - 1)),
        range_count=draw(st.integers(0, 25)),
        call_count=draw(st.integers(0, 40)),
        span=draw(st.sampled_from([6, 30, 400])),
        processes=draw(st.integers(1, 2)),
        threads=draw(st.integers(1, 3)),
        devices=draw(st.integers(1, 2)),
        streams=draw(st.integers(1, 3)),
        is_sequential=draw(st.booleans()),
        is_queued=draw(st.booleans()),
    )


def random_frames(
    *,
    seed: int,
    range_count: int,
    call_count: int,
    span: int,
    processes: int,
    threads: int,
    devices: int,
    streams: int,
    is_sequential: bool,
    is_queued: bool,
) -> Frames:
    """Draw frames whose times lie around zero, so that some are negative.

    With `is_sequential` the calls of a thread follow each other, as real ones do; without, they
    overlap and nest arbitrarily. With `is_queued` operations follow each other on their stream.
    Correlation ids restart in every process; calls have none, one or many operations (graphs);
    some operations have no call, or no correlation id.
    """
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, processes, range_count)
    thread = owner * 100 + rng.integers(0, threads, range_count)
    start = rng.integers(-span // 2, span // 2, range_count)
    names = np.array(["step", "forward", "backward", None], dtype=object)
    crosses = (rng.random(range_count) < 0.1) & (threads > 1)
    ranges = pl.DataFrame(
        {
            "range_id": rng.permutation(range_count) + 1,
            "kind": np.where(rng.random(range_count) < 0.7, "push_pop", "start_end"),
            "process_key": owner,
            "thread_key": thread,
            "end_thread_key": [int(t) + 1 if c else None for t, c in zip(thread, crosses, strict=True)],
            "start_ns": start,
            "end_ns": start + rng.integers(0, span, range_count) * (rng.random(range_count) < 0.9),
            "is_open": rng.random(range_count) < 0.1,
            "domain": names[rng.integers(0, 4, range_count)].tolist(),
            "name": names[rng.integers(0, 4, range_count)].tolist(),
            "category": None,
            "color_argb": None,
            "payload": None,
        },
        schema=RANGES,
    )
    calls = _random_calls(rng, call_count, span, processes, threads, is_sequential)
    return ranges, calls, _random_ops(rng, calls, span, devices, streams, is_queued)


def _random_calls(
    rng: np.random.Generator, count: int, span: int, processes: int, threads: int, is_sequential: bool
) -> pl.DataFrame:
    owner = rng.integers(0, processes, count)
    thread = owner * 100 + rng.integers(0, threads, count)
    if is_sequential:
        gap, length = rng.integers(0, 3, count), rng.integers(0, 3, count)
        start, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for key in np.unique(thread):
            rows = np.flatnonzero(thread == key)
            end[rows] = np.cumsum(gap[rows] + length[rows]) - span // 2
            start[rows] = end[rows] - length[rows]
    else:
        start = rng.integers(-span // 2, span // 2, count)
        end = start + rng.integers(0, max(span // 4, 1), count)
    correlation_id = np.zeros(count, np.int64)
    for process in range(processes):
        rows = np.flatnonzero(owner == process)
        correlation_id[rows] = rng.permutation(len(rows)) + 1
    return pl.DataFrame(
        {
            "process_key": owner,
            "thread_key": thread,
            "correlation_id": correlation_id,
            "start_ns": start,
            "end_ns": end,
            "name": ["cudaLaunchKernel"] * count,
        },
        schema=API_CALLS,
    )


def _random_ops(
    rng: np.random.Generator, calls: pl.DataFrame, span: int, devices: int, streams: int, is_queued: bool
) -> pl.DataFrame:
    per_call = rng.choice([0, 1, 1, 1, 1, 5, 40], len(calls), p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.08, 0.02])
    of_call = np.repeat(np.arange(len(calls)), per_call)
    of_call = of_call[np.argsort(rng.random(len(of_call)))]
    count = len(of_call)
    stray = rng.random(count)
    correlation_id = calls["correlation_id"].to_numpy()[of_call].astype(object)
    correlation_id[stray < 0.05] = None
    correlation_id[stray > 0.95] = 10_000
    device, stream = rng.integers(0, devices, count), rng.integers(7, 7 + streams, count)
    start = rng.integers(-span, span, count)
    end = start + rng.integers(0, max(span // 2, 1), count)
    if is_queued:
        for queue in np.unique(device * 1000 + stream):
            rows = np.flatnonzero(device * 1000 + stream == queue)
            rows = rows[np.argsort(of_call[rows], kind="stable")]
            length, gap = rng.integers(0, 5, len(rows)), rng.integers(0, 2, len(rows))
            end[rows] = np.cumsum(length + gap)
            start[rows] = end[rows] - length
    return pl.DataFrame(
        {
            "op_id": np.arange(count),
            "kind": rng.choice(["kernel", "memcpy", "memset", "graph"], count, p=[0.6, 0.2, 0.1, 0.1]),
            "process_key": calls["process_key"].to_numpy()[of_call],
            "device_id": device,
            "context_id": 1,
            "stream_id": stream,
            "correlation_id": correlation_id.tolist(),
            "start_ns": start,
            "end_ns": end,
            "name": [f"op_{n}" for n in rng.integers(0, 5, count)],
            "is_communication": False,
            "graph_id": None,
        },
        schema=GPU_OPS,
    )
