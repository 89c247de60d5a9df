"""A pool of real processes: whatever happens to them, every item comes to something."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fixtures.recording.bulk import write_bulk_report
from nsys_pp.errors import NsysPPError, ReportError, UnforeseenError
from nsys_pp.executors import executor as limits
from nsys_pp.executors.executor import SerialExecutor, list_tree, measure_tree
from nsys_pp.executors.pool import ProcessExecutor
from nsys_pp.run.inputs import Batch
from nsys_pp.run.options import BatchOptions
from tests.cli.calls import PATIENCE_S, environment, wait_until
from tests.executors import jobs


def test_all_items_come_to_what_they_come_to_here(items: list[Path]) -> None:
    expected = {done.index: done.value for done in SerialExecutor().map(jobs.read, items)}
    found = {done.index: done.value for done in ProcessExecutor(processes=2).map(jobs.read, items)}
    assert found == expected == {number: f"text of {number}" for number in range(6)}
    assert list(ProcessExecutor(processes=2).map(jobs.read, [])) == []


def test_each_call_has_its_own_argument(items: list[Path]) -> None:
    own = {path: f"own of {path.stem}" for path in items}
    expected = {number: f"text of {number}, own of {number}" for number in range(6)}
    for executor in (SerialExecutor(), ProcessExecutor(processes=2)):
        found = {done.index: done.value for done in executor.map(jobs.read_own, items, own)}
        assert found == expected
    assert Batch(items, {}).map("", items[1:3], jobs.read_own, own) == {
        items[1]: "text of 1, own of 1",
        items[2]: "text of 2, own of 2",
    }


def test_results_are_in_order_of_the_inputs_and_so_are_errors(items: list[Path]) -> None:
    batch = Batch(items, {"keep_going": True, "processes": 2})
    assert list(batch.map("reading", items, jobs.read_slowly)) == items
    with pytest.raises(ReportError, match=r"`1\.txt` is broken") as raised:  # 2 is the first to fail
        Batch(items[1:], {"processes": 2}).map("reading", items[1:], jobs.fail)
    assert raised.value.hint == "mend 1; `--keep-going` skips such reports"
    with pytest.raises(ReportError, match=r"`0\.txt` is broken"):
        batch.map("reading", items, jobs.fail)
    assert [path for path, _ in batch.skipped] == items


def test_warnings_of_other_processes_come_in_order(items: list[Path]) -> None:
    with pytest.warns(UserWarning, match="beware") as caught:
        Batch(items, {"processes": 2}).map("", items, jobs.warn)
    assert [str(one.message) for one in caught] == [f"beware of {number}" for number in range(6)]


def test_errors_that_nobody_expects_say_where_they_came_from(items: list[Path]) -> None:
    with pytest.raises(UnforeseenError, match=r"0\.txt` cannot be processed: unforeseen Zero") as raised:
        Batch(items, {"keep_going": True, "processes": 2}).map("", items, jobs.crash)
    assert "in crash" in raised.value.details
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    done = list(ProcessExecutor(processes=1).map(jobs.give_what_cannot_be_sent, items[:1]))
    assert isinstance(done[0].error, TypeError)


@pytest.mark.few(4)
@pytest.mark.parametrize("options", [{}, {"processes": 2}])
@pytest.mark.parametrize("work", [jobs.crash_on_one, jobs.panic_on_one, jobs.need_too_much_on_one])
def test_one_odd_item_is_skipped_and_named(
    items: list[Path], options: BatchOptions, work: Callable[[Path], str]
) -> None:
    why = jobs.skip_the_third(Batch(items, {"keep_going": True, **options}), items, work)
    assert f"`{items[2]}` cannot be processed: " in why
    with pytest.raises(NsysPPError, match=r"2\.txt"):
        Batch(items, options).map("", items, work)


def test_errors_of_outputs_and_interrupts_are_of_no_item(items: list[Path]) -> None:
    for error in (OSError(errno.ENOSPC, "full"), BrokenPipeError(errno.EPIPE, "closed"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            Batch(items, {"keep_going": True}).map("", items, partial(jobs.raise_on_one, error=error))


def test_processes_share_the_cores(items: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    found = {done.value for done in ProcessExecutor(processes=2).map(jobs.tell_threads, items)}
    each = max(limits.count_cores() // 2, 1)
    assert found == {(each, str(each))}
    assert "POLARS_MAX_THREADS" not in os.environ


@pytest.mark.slow
def test_an_item_whose_process_is_killed_is_tried_once_more(items: list[Path]) -> None:
    found = {
        done.index: (done.value, done.error)
        for done in ProcessExecutor(processes=3).map(jobs.be_killed_once, items)
    }
    assert found == {number: (f"text of {number}", None) for number in range(6)}
    assert items[2].with_suffix(".killed").exists()


def test_an_item_that_kills_its_process_twice_is_an_error_and_the_others_are_done(items: list[Path]) -> None:
    found = {done.index: done for done in ProcessExecutor(processes=2).map(jobs.be_killed, items)}
    assert {place: done.value for place, done in found.items() if place != 2} == {
        number: f"text of {number}" for number in range(6) if number != 2
    }
    error = found[2].error
    assert isinstance(error, NsysPPError)
    assert f"`{items[2]}` was killed by signal 9" in error.message
    assert "--processes 1" in (error.hint or "")
    assert "--memory" in (error.hint or "")
    tries = [len(path.with_suffix(".tries").read_text()) for path in items]
    assert tries == [1, 1, 2, 1, 1, 1]


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_whoever_stops_listening_stops_the_work(items: list[Path]) -> None:
    results = ProcessExecutor(processes=2).map(jobs.wait_for_ever_after_the_first, items)
    assert next(results).index == 0
    marks = [path.with_suffix(".pid") for path in items[1:3]]
    wait_until(lambda: any(mark.exists() and mark.read_text() for mark in marks))
    processes = [int(mark.read_text()) for mark in marks if mark.exists()]
    began = time.monotonic()
    results.close()
    assert time.monotonic() - began < jobs.ETERNITY_S / 2
    assert not any(map(is_alive, processes))


def test_memory_chooses_how_many(tmp_path: Path) -> None:
    small, large = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    for path, size in ((small, 1), (large, 125_000_000)):
        with path.open("wb") as file:
            file.truncate(size)
    paths = [large, *[small] * 9]
    assert limits.estimate_peak(large) == 1_000_000_000
    assert limits.choose_process_count(paths, processes=5) == 5  # as it is asked for
    assert limits.choose_process_count(paths, memory_bytes=4_500_000_000) <= 4
    assert limits.choose_process_count(paths, processes=2, memory_bytes=4_500_000_000) == 2
    assert limits.choose_process_count([small] * 99) <= limits.count_cores()
    assert limits.choose_process_count([small] * 3, processes=4) == 3
    with pytest.warns(
        UserWarning, match=r"b\.sqlite` may need 1\.0 GB of memory, which is more than `--memory`"
    ):
        assert limits.choose_process_count(paths, memory_bytes=900_000_000) == 1


def test_a_container_bounds_cores_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(limits, "_GROUPS", tmp_path)
    monkeypatch.setattr(limits, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(limits, "_OWN_GROUP", tmp_path / "own")
    assert (limits.count_cores(), limits.find_memory()) == (64, None)
    job = tmp_path / "slurm" / "job1"
    job.mkdir(parents=True)
    (tmp_path / "own").write_text("0::/slurm/job1\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:  8000 kB\n")
    (job / "cpu.max").write_text("max 100000\n")
    (job.parent / "cpu.max").write_text("250000 100000\n")
    (job / "memory.max").write_text("max\n")
    assert (limits.count_cores(), limits.find_memory()) == (3, 8_192_000)
    (job / "memory.max").write_text("5000000\n")
    (job / "memory.current").write_text("3000000\n")
    (job / "memory.stat").write_text("anon 7\ninactive_file 1000000\n")
    assert limits.find_memory() == 3_000_000


_MB = 1_000_000


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")


@pytest.mark.slow
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


@pytest.mark.slow
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
    why = jobs.skip_the_third(batch, items, jobs.wait_on_one)
    assert why == f"`{items[2]}` took longer than 8 s, and was stopped"


@pytest.mark.slow
@needs_proc
def test_programs_that_an_item_started_end_with_it(items: list[Path]) -> None:
    """Of the one that is late, and of another one that is then not needed."""
    two = items[:2]
    with pytest.raises(NsysPPError, match="took longer than 10 s"):
        Batch(two, {"report_timeout_s": 10.0, "processes": 2}).map("", two, jobs.start_a_program_that_waits)
    pids = [int(item.with_suffix(".pid").read_text()) for item in two]
    wait_until(lambda: not any(map(is_alive, pids)))


ROOT = Path(__file__).parents[2]


def read_example() -> str:
    page = (ROOT / "docs" / "library.md").read_text()
    return page.split("<!-- ended scripts -->\n```python\n")[1].split("```")[0]


def start_script(text: str, folder: Path) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(text)
    return subprocess.Popen(
        [sys.executable, "script.py"], cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_a_script_that_sigterm_ends_leaves_nothing(tmp_path: Path) -> None:
    """The program of docs/library.md."""
    if sys.platform == "win32":
        pytest.skip("no SIGTERM")
    (tmp_path / "reports").mkdir()
    for number in range(3):
        write_bulk_report(tmp_path / "reports" / f"{number}.sqlite", kernels=20_000 + number, ranges=20_000)
    with start_script(read_example(), tmp_path) as script:
        wait_until(lambda: any(tmp_path.glob(".run.*")), script)
        script.send_signal(signal.SIGTERM)
        _, stderr = script.communicate(timeout=PATIENCE_S)
    assert script.returncode == 143, stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reports", "script.py"]
