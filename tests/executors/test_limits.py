"""Limits of memory and time of processes: measured, for the whole tree, and named with the report."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from nsys_pp.errors import NsysPPError
from nsys_pp.executors.limits import list_tree, measure_tree
from nsys_pp.executors.pool import ProcessExecutor
from nsys_pp.run.batch import Batch
from tests.executors import jobs
from tests.executors.test_pool import is_alive, wait_until

_MB = 1_000_000
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")


@needs_proc
def test_an_item_beyond_the_memory_limit_is_an_error_and_the_others_are_done(items: list[Path]) -> None:
    own = measure_tree(os.getpid())
    executor = ProcessExecutor(processes=2, memory_bytes=own + 900 * _MB)
    found = {done.index: done for done in executor.map(partial(jobs.fill_memory, size=20 * _MB), items)}
    assert {number: done.value for number, done in found.items() if number != 2} == dict.fromkeys(
        (0, 1, 3, 4, 5), 1000
    )
    error = found[2].error
    assert isinstance(error, NsysPPError)
    assert f"`{items[2]}` needs more memory than `--memory` allows" in error.message
    assert len(items[2].with_suffix(".tries").read_text()) <= 2


@needs_proc
def test_items_that_do_not_fit_together_are_done_one_after_the_other(items: list[Path]) -> None:
    own = measure_tree(os.getpid())
    executor = ProcessExecutor(processes=3, memory_bytes=own + 1100 * _MB)
    found = {
        done.index: done.value
        for done in executor.map(partial(jobs.hold_memory_together, size=500 * _MB), items[:3])
    }
    assert found == dict.fromkeys(range(3), 500 * _MB)


@needs_proc
def test_memory_is_that_of_all_processes_below() -> None:

    code = "b = bytearray(b'x') * 100_000_000; print(len(b), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in list_tree(os.getpid())
        assert 100 * _MB <= measure_tree(child.pid) < 200 * _MB
        assert measure_tree(os.getpid()) >= measure_tree(child.pid)
        child.communicate(b"\n")
    assert measure_tree(child.pid) == 0


def test_an_item_beyond_the_time_limit_is_skipped_and_named(items: list[Path]) -> None:
    batch = Batch(items, {"report_timeout_s": 8.0, "keep_going": True})
    assert len(batch.map("", items, jobs.wait_on_one)) == 5
    ((path, error),) = batch.skipped
    assert path == items[2]
    assert error.message == f"`{path}` took longer than 8 s, and was stopped"


@needs_proc
def test_programs_that_an_item_started_end_with_it(items: list[Path]) -> None:
    with pytest.raises(NsysPPError, match="took longer than 2 s"):
        Batch(items[:1], {"report_timeout_s": 2.0}).map("", items[:1], jobs.start_a_program_that_waits)
    pid = int(items[0].with_suffix(".pid").read_text())
    wait_until(lambda: not is_alive(pid))
