from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from nsys_pp.frames.report import API_CALLS, GPU_OPS, OP_DETAILS, OpDetails
from nsys_pp.frames.training import JOB_KIND, JOB_KINDS, JOBS
from nsys_pp.projection.launches import match_launches
from nsys_pp.training.jobs import THREADED_KINDS, find_job_kinds
from nsys_pp.training.kernels import sum_kernels
from nsys_pp.training.launched import LaunchedOps
from tests.training.report.test_kernel_aggregates import steps

Job = tuple[int, str, int, int]
Call = tuple[int, int]


def _jobs(rows: list[Job]) -> pl.DataFrame:
    """Make jobs of (thread, kind, start, end) of one process, one on each of two devices."""
    return pl.DataFrame(
        [
            {"process_key": 1, "thread_key": thread, "device_id": device, "kind": kind, "range_id": number}
            | {"host_start_ns": start, "host_end_ns": end}
            for number, (thread, kind, start, end) in enumerate(rows)
            for device in (0, 1)
        ],
        schema=JOBS,
    )


def _find(jobs: list[Job], calls: list[Call]) -> list[str | None]:
    """Find the kind of job of an operation for each call of (thread, start)."""
    numbers = range(len(calls))
    api_calls = pl.DataFrame(
        [
            {
                "process_key": 1,
                "thread_key": thread,
                "start_ns": start,
                "end_ns": start + 1,
                "correlation_id": n,
            }
            for n, (thread, start) in enumerate(calls)
        ],
        schema=API_CALLS,
    )
    ops = pl.DataFrame(
        [
            {"op_id": n, "kind": "kernel", "process_key": 1, "device_id": 0, "correlation_id": n, "name": "k"}
            | {"start_ns": 1000, "end_ns": 1001, "is_communication": False}
            for n in numbers
        ],
        schema=GPU_OPS,
    )
    launches = match_launches(api_calls, ops)
    launched = LaunchedOps(gpu_ops=ops, api_calls=api_calls, launches=launches)
    return find_job_kinds(launched, _jobs(jobs)).to_list()


def _expect(jobs: list[Job], call: Call) -> str | None:
    """Apply the definition: the job on the thread that started last, else such a job of another thread."""
    thread, at = call
    around = [job for job in jobs if job[2] <= at < job[3]]
    own = [job for job in around if job[0] == thread]
    other = [job for job in around if job[1] in THREADED_KINDS]
    chosen = own or other
    return max(chosen, key=lambda job: (job[2], -job[3]))[1] if chosen else None


def test_the_innermost_job_of_the_thread_comes_first_and_backwards_have_other_threads() -> None:
    jobs = [(1, "forward", 0, 50), (1, "send", 20, 30), (1, "backward", 60, 90), (2, "data", 0, 100)]
    calls = [(1, 10), (1, 25), (1, 55), (3, 70), (3, 10), (2, 70)]
    assert _find(jobs, calls) == ["forward", "send", None, "backward", None, "data"]


def test_nothing() -> None:
    assert _find([], []) == []
    assert _find([], [(1, 5)]) == [None]


@pytest.mark.parametrize("seed", range(30))
def test_kinds_equal_their_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    starts = random.permutation(200)[: random.integers(1, 25)]  # distinct, so that no two jobs are equal
    jobs = [
        (
            int(random.integers(3)),
            str(random.choice(JOB_KINDS)),
            int(start),
            int(start + random.integers(1, 80)),
        )
        for start in starts
    ]
    calls = [(int(random.integers(4)), int(random.integers(250))) for _ in range(40)]
    assert _find(jobs, calls) == [_expect(jobs, call) for call in calls]


def test_kernels_of_one_name_in_several_jobs_have_rows_of_their_own() -> None:
    ops = pl.DataFrame(
        [
            {"op_id": n, "kind": "kernel", "process_key": 1, "device_id": 0, "name": "k", "start_ns": n}
            | {"end_ns": n + 2, "is_communication": False}
            for n in range(5)
        ],
        schema=GPU_OPS,
    )
    kinds = pl.Series(["forward", "forward", "backward", None, "forward"], dtype=JOB_KIND)
    names = pl.Series(["void k<2>()", "void k<1>()", None, "void k<1>()"], dtype=OP_DETAILS["full_name"])
    distinct = OP_DETAILS.to_frame().clear(4).with_columns(names.alias("full_name"))
    details = OpDetails(distinct=distinct, row=np.array([1, 0, 2, 2, 3], dtype=np.uint32))
    sums = sum_kernels(ops, steps([(0, 0, 0, 10)]), details=details, job_kind=kinds)
    assert sums.select("full_name", "job_kind", "count", "total_ns").rows() == [
        ("void k<1>()", "forward", 2, 4),
        ("void k<2>()", "forward", 1, 2),
        (None, "backward", 1, 2),
        (None, None, 1, 2),
    ]
