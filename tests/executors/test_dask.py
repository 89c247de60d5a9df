"""Items on a real Dask cluster."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

import nsys_pp
from nsys_pp.errors import NsysPPError
from nsys_pp.executors import dask as dask_run
from nsys_pp.executors.dask import DaskExecutor
from nsys_pp.progress import Share
from nsys_pp.run.inputs import Batch
from tests.cli.calls import PIPELINE, run, wait_until
from tests.executors import jobs
from tests.executors.cluster import Cluster
from tests.unpacking import read_folder

pytestmark = pytest.mark.skipif(find_spec("distributed") is None, reason="no Dask: install distributed")


_SELDOM_USED = 900  # of files that a process has open


def test_all_items_come_to_what_they_come_to_here(
    cluster: Cluster, items: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheduler in (str(cluster.file), cluster.address):
        found = {done.index: done.value for done in DaskExecutor(scheduler=scheduler).map(jobs.read, items)}
        assert found == {number: f"text of {number}" for number in range(6)}
    monkeypatch.chdir(items[0].parent)
    short = [Path(path.name) for path in items]
    assert {done.value for done in DaskExecutor(scheduler=cluster.address).map(jobs.read, short)} == set(
        found.values()
    )


class Sent:
    """Keeps where it was sent from, as often as it is."""

    sent: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        self.sent.append(self.name)
        return str, (self.name,)


def test_each_call_is_sent_its_own_argument_alone(cluster: Cluster, items: list[Path]) -> None:
    """What all calls are sent grows with the square of their number."""
    own = {path: Sent(path.stem) for path in items}
    for limit_s in (None, 600.0):
        Sent.sent.clear()
        executor = DaskExecutor(scheduler=cluster.address, timeout_s=limit_s)
        found = {done.index: done.value for done in executor.map(jobs.read_own, items, own)}
        assert found == {number: f"text of {number}, {number}" for number in range(6)}
        assert {*Sent.sent} == {path.stem for path in items}
        assert len(Sent.sent) <= 2 * len(items)  # Dask may pickle an argument twice


def test_one_odd_item_is_skipped_and_named(cluster: Cluster, items: list[Path]) -> None:
    for work in (jobs.crash_on_one, jobs.panic_on_one, jobs.need_too_much_on_one):
        batch = Batch(items, {"keep_going": True, "dask_scheduler": cluster.address})
        assert f"`{items[2]}` cannot be processed: " in jobs.skip_the_third(batch, items, work)


@pytest.mark.slow
def test_a_worker_is_killed_in_the_middle_of_a_merge(cluster: Cluster, tmp_path: Path) -> None:
    expected = tmp_path / "expected" / "run.pftrace"
    expected.parent.mkdir()
    nsys_pp.merge([PIPELINE], expected)
    (tmp_path / "found").mkdir()
    killed = False

    def kill(what: str, share: float) -> None:
        nonlocal killed
        if isinstance(share, Share) and share.doing == "drawing" and share.done == 1 and not killed:
            killed = cluster.kill_a_busy_worker()

    output = tmp_path / "found" / "run.pftrace"
    nsys_pp.merge([PIPELINE], output, dask_scheduler=cluster.file, progress=kill)
    assert killed
    assert output.read_bytes() == expected.read_bytes()
    assert list(output.parent.iterdir()) == [output]
    cluster.add_worker()


def test_parts_are_the_same(cluster: Cluster, tmp_path: Path) -> None:
    for name, scheduler in (("here", None), ("there", cluster.address)):
        (tmp_path / name).mkdir()
        nsys_pp.extract(PIPELINE / "node2", tmp_path / name, dask_scheduler=scheduler)
    for path in (tmp_path / "here").iterdir():
        assert (tmp_path / "there" / path.name).read_bytes() == path.read_bytes()
    assert len(list((tmp_path / "there").iterdir())) == 2


@pytest.mark.slow
def test_an_item_that_kills_its_workers_is_an_error(cluster: Cluster, items: list[Path]) -> None:
    """Dask gives it to four workers, and then gives it up."""
    for _ in range(3):
        cluster.add_worker()
    found = {done.index: done for done in DaskExecutor(scheduler=cluster.address).map(jobs.be_killed, items)}
    assert len(found) == 6
    error = found[2].error
    assert isinstance(error, NsysPPError)
    assert error.message.startswith(f"`{items[2]}` could not be processed with Dask: ")
    cluster.add_worker()


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("start", "words", "hint"),
    [
        ("import sys; sys.modules['nsys_pp'] = None", "has no nsys-pp", "install nsys-pp"),
        (
            "import importlib.metadata as m; v = m.version; m.version = lambda n: '77.0' if n == 'nsys-pp' else v(n)",
            r"has nsys-pp 77\.0 ",
            "",
        ),
    ],
    ids=["none", "another"],
)
def test_a_worker_without_the_same_nsys_pp_is_refused(
    cluster: Cluster, items: list[Path], tmp_path: Path, start: str, words: str, hint: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(start)
    worker = cluster.add_worker(PYTHONPATH=str(tmp_path))
    with pytest.raises(NsysPPError, match=rf"the Dask worker `.*` {words}") as raised:
        list(DaskExecutor(scheduler=cluster.address).map(jobs.read, items))
    assert hint in (raised.value.hint or "")
    cluster.processes[-1].terminate()
    wait_until(lambda: worker not in cluster.workers())


@pytest.mark.slow
def test_files_that_workers_do_not_see_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    """An open file of this process has a path here that no worker has."""
    (tmp_path / "a.txt").write_text("a")
    with (tmp_path / "a.txt").open() as opened:
        os.dup2(opened.fileno(), _SELDOM_USED)
    try:
        with pytest.raises(NsysPPError, match=rf"does not see `/proc/self/fd/{_SELDOM_USED}`") as raised:
            list(
                DaskExecutor(scheduler=cluster.address).map(
                    jobs.read, [Path(f"/proc/self/fd/{_SELDOM_USED}")]
                )
            )
    finally:
        os.close(_SELDOM_USED)
    assert "file system" in (raised.value.hint or "")


def test_no_scheduler_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NsysPPError, match="`nonsense://x` does not answer"):
        list(DaskExecutor(scheduler="nonsense://x").map(jobs.read, [tmp_path]))


@pytest.mark.slow
def test_the_command_line_takes_a_scheduler(cluster: Cluster, tmp_path: Path) -> None:
    output = tmp_path / "run.pftrace"
    done = run("merge", PIPELINE, "-o", output, "--dask-scheduler", cluster.file)
    assert (done.code, done.stderr.count("\n")) == (0, 4), done.stderr  # with three findings
    assert done.stderr.startswith(f"Wrote {output}")


@pytest.mark.slow
def test_an_item_beyond_the_time_limit_is_skipped_and_named(cluster: Cluster, items: list[Path]) -> None:
    options = {"keep_going": True, "dask_scheduler": cluster.address, "report_timeout_s": 8.0}
    batch = Batch(items, options)  # type: ignore[arg-type]
    why = jobs.skip_the_third(batch, items, jobs.wait_on_one)
    assert why == f"`{items[2]}` took longer than 8 s, and was stopped"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
def test_an_item_beyond_the_memory_limit_is_skipped_and_named(cluster: Cluster, items: list[Path]) -> None:
    options = {"keep_going": True, "dask_scheduler": cluster.address, "memory_bytes": 1_500_000_000}
    batch = Batch(items, options)  # type: ignore[arg-type]
    work = partial(jobs.fill_memory, size=50_000_000)
    assert set(batch.map("", items, work).values()) == {1000}
    ((path, error),) = batch.skipped
    assert path == items[2]
    assert f"`{path}` needs more memory than `--memory` allows" in error.message


@pytest.mark.slow
def test_limits_hold_below_a_nanny(cluster: Cluster, items: list[Path]) -> None:
    """A nanny starts its worker as a daemon, to which Python denies processes."""
    name = cluster.add_worker(nanny=True)
    limits = {"folder": os.getcwd(), "memory_bytes": None, "timeout_s": 5.0}
    for item, work in ((items[0], jobs.read), (items[2], jobs.wait_on_one)):
        done = cluster.client.submit(
            dask_run._run_remotely, work, item, 7, None, **limits, workers=[name], pure=False
        ).result()
        assert done.index == 7
        if work is jobs.read:
            assert (done.value, done.error) == ("text of 0", None)
        else:
            assert "took longer than 5 s" in done.error.message


def merge_both(cluster: Cluster, folder: Path, inputs: Any, **options: Any) -> list[nsys_pp.MergeResult]:
    """Merge here and on the cluster; the outputs are equal, and nothing else is left."""
    results = []
    for name, scheduler in (("here", None), ("there", cluster.file)):
        (folder / name).mkdir()
        output = folder / name / "run.pftrace"
        results.append(nsys_pp.merge(inputs, output, dask_scheduler=scheduler, **options))
    here, there = (read_folder(folder / name) for name in ("here", "there"))
    assert here.keys() == there.keys()
    assert here == there
    return results


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "options",
    [
        {"max_events": 1000},
        {"split": "machine"},
        {"split": "rank", "detail": "cpu"},
        {"split": "step"},
        {"split": "machine", "detail": "jobs"},
        {"start_ns": 1_000_000, "end_ns": 500_000_000},
    ],
    ids=str,
)
def test_traces_are_the_same(cluster: Cluster, tmp_path: Path, options: dict[str, Any]) -> None:
    here, there = merge_both(cluster, tmp_path, PIPELINE, **options)
    assert [file.title for file in here.files] == [file.title for file in there.files]
    assert [file.size_bytes for file in here.files] == [file.size_bytes for file in there.files]
    assert (here.slices, here.events, here.gpus) == (there.slices, there.events, there.gpus)
    assert there.files or "start_ns" in options


@pytest.mark.slow
def test_traces_of_parts_are_the_same(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    nsys_pp.extract(PIPELINE, tmp_path / "parts")
    for split in ("none", "machine"):
        (tmp_path / split).mkdir()
        merge_both(cluster, tmp_path / split, tmp_path / "parts", split=split)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:of 4 ranks, rank 0 has no report")
def test_broken_reports_are_skipped(cluster: Cluster, tmp_path: Path) -> None:
    shutil.copytree(PIPELINE, tmp_path / "reports", ignore=shutil.ignore_patterns("truth"))
    broken = tmp_path / "reports" / "node2" / "rank0.sqlite"
    broken.write_bytes(broken.read_bytes()[:50_000])
    results = merge_both(cluster, tmp_path, tmp_path / "reports", split="machine", keep_going=True)
    for result in results:
        assert [path for path, _ in result.skipped] == [broken]
        assert "is truncated" in result.skipped[0][1].message
        assert len(result.files) == 2


@pytest.mark.slow
def test_tables_are_the_same(cluster: Cluster) -> None:
    line = ("pipeline", PIPELINE, "--table", "steps,host,network,metrics", "--format", "json")
    here, there = run(*line), run(*line, "--dask-scheduler", cluster.file)
    assert here.code == there.code == 0, there.stderr
    assert here.stdout == there.stdout
    assert len(here.stdout) > 1000
