"""Data loading of the threads of one process, by the GPUs that it delays."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.training import GATHERED_FRAMES, LANES
from nsys_pp.run.run_training import _data_jobs
from tests.training.scheduled_runs import fill_columns

_LANES = fill_columns(
    pl.DataFrame({"lane": [0, 1, 2], "report": 0, "process_key": [5, 5, 6], "device_id": [0, 1, 0]}), LANES
)


def find(*rows: tuple[int, int, str, int | None, int]) -> set[tuple[int, int]]:
    """Find the lanes and starts of loads, of jobs (process, thread, kind, device, start on the host)."""
    columns = ["process_key", "thread_key", "kind", "device_id", "host_start_ns"]
    jobs = pl.DataFrame(rows, schema=columns, orient="row").with_columns(
        report=pl.lit(0), host_end_ns=pl.col("host_start_ns") + 5
    )
    loads = _data_jobs(fill_columns(jobs, GATHERED_FRAMES["jobs"]), _LANES)
    assert (loads["host_end_ns"] == loads["host_start_ns"] + 5).all()
    return {*loads.select("lane", "host_start_ns").rows()}


def test_each_thread_delays_the_gpus_of_its_jobs() -> None:
    assert find(
        (5, 50, "data", None, 10),
        (5, 50, "forward", 0, 20),
        (5, 51, "data", None, 30),
        (5, 51, "forward", 1, 40),
    ) == {(0, 10), (1, 30)}


def test_a_thread_with_jobs_on_several_gpus_delays_these() -> None:
    found = find((5, 50, "data", None, 10), (5, 50, "forward", 0, 20), (5, 50, "forward", 1, 20))
    assert found == {(0, 10), (1, 10)}


def test_a_thread_whose_jobs_launched_nothing_delays_all_gpus_of_its_process() -> None:
    assert find((5, 50, "data", None, 10), (5, 50, "other", None, 20)) == {(0, 10), (1, 10)}


def test_a_thread_that_only_loads_delays_nothing() -> None:
    assert find((5, 52, "data", None, 10), (5, 50, "forward", 0, 20)) == set()
    assert find((5, 50, "forward", 0, 20)) == set()
