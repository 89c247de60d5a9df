"""Many reports with every kind of broken one, inputs that vanish, full disks, and kills at random points."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import nsys_pp
from nsys_pp.errors import NsysPPError
from tests.breaks import BREAKS
from tests.cli.calls import (
    PATIENCE_S,
    PIPELINE,
    RANK0,
    REPORTS,
    assert_refused,
    call,
    command_line,
    environment,
    run,
)
from tests.draws import count_draws
from tests.executors.cluster import Cluster
from tests.load.ways import check_skipped, draw_run, merge_folder


def test_every_broken_report_is_skipped_and_named(tmp_path: Path) -> None:
    words = draw_run(tmp_path / "run", count=24, broken=len(BREAKS) - 2, seed=5)
    merged = [
        merge_folder(tmp_path / "run", tmp_path / f"{processes}.pftrace", "--processes", processes)
        for processes in ("1", "2")
    ]
    for one in merged:
        check_skipped(one, words)
    for report in words:
        report.unlink()
    assert call("merge", tmp_path / "run", "-o", tmp_path / "whole.pftrace").code == 0
    expected = (tmp_path / "whole.pftrace").read_bytes()
    assert [one.trace.read_bytes() == expected for one in merged] == [True, True]


@pytest.mark.filterwarnings("ignore:of 4 ranks")
@pytest.mark.parametrize("after", range(0, 12, 3))
@pytest.mark.parametrize("keep_going", [False, True])
def test_a_folder_that_vanishes(after: int, keep_going: bool, tmp_path: Path) -> None:
    shutil.copytree(PIPELINE, tmp_path / "run")
    (tmp_path / "out").mkdir()
    output, calls = tmp_path / "out" / "run.pftrace", 0

    def vanish(_: str, __: float) -> None:
        nonlocal calls
        if calls == after:
            shutil.rmtree(tmp_path / "run" / "node2")
        calls += 1

    result: nsys_pp.MergeResult | NsysPPError
    try:
        result = nsys_pp.merge(tmp_path / "run", output, keep_going=keep_going, progress=vanish)
    except NsysPPError as error:
        result = error
    assert calls > after
    if isinstance(result, NsysPPError):
        assert not keep_going
        assert f"`{tmp_path / 'run' / 'node2'}" in str(result)
        assert os.listdir(output.parent) == []
    else:
        gone = {path for path, _ in result.skipped}
        assert all(path.parent.name == "node2" for path in gone)
        assert os.listdir(output.parent) == [output.name]
        assert not gone or keep_going


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    output = tmp_path_factory.mktemp("expected") / "run.pftrace"
    nsys_pp.merge(PIPELINE, output)
    return output.read_bytes()


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "run.pftrace"


class TestFullDisk:
    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Path]:
        """Mount a disk that a trace does not fit on; a merge fills it while it writes."""
        folder = tmp_path / "disk"
        folder.mkdir()
        line = ["mount", "-t", "tmpfs", "-o", "size=100k", "none", str(folder)]
        if subprocess.run(line, capture_output=True, check=False).returncode:
            pytest.skip("no disk can be mounted here")
        yield folder
        subprocess.run(["umount", str(folder)], check=True)

    @pytest.mark.parametrize("options", [[], ["--keep-going"], ["--processes", "2"], ["--split", "machine"]])
    def test_a_disk_that_fills_up(self, disk: Path, options: list[str]) -> None:
        refused = run("merge", PIPELINE, "-o", disk / "run.pftrace", *options)
        assert_refused(refused, "the disk is full")
        # the trace or its folder, and no temporary file
        assert f"cannot write `{disk / 'run.'}" in refused.stderr
        assert list(disk.iterdir()) == []

    @pytest.mark.parametrize("command", ["extract", "extract --processes 2", "scrub"])
    def test_copies_and_parts(self, disk: Path, command: str) -> None:
        (disk / "other").write_bytes(bytes(70_000))
        command, *options = command.split()
        refused = run(command, *REPORTS, "-o", disk, *options)
        assert_refused(refused, "the disk is full")
        assert f"cannot write `{disk / 'rank'}" in refused.stderr or command == "scrub"
        finished = [path for path in disk.iterdir() if path.name != "other"]
        for path in finished:  # those before it are whole
            assert call("info", path).code == 0 if command == "scrub" else call("pipeline", path).code == 0

    def test_a_disk_that_is_read_only(self, disk: Path, output: Path, expected: bytes) -> None:
        """Reports are read from it, with nothing written beside them.

        An output on it is refused before the work.
        """
        reports = disk / "reports"
        reports.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", str(reports)], check=True)
        try:
            run_folder = shutil.copytree(PIPELINE, reports / PIPELINE.name)
            before = sorted(reports.rglob("*"))
            subprocess.run(["mount", "-o", "remount,ro", str(reports)], check=True)
            refused = run("merge", run_folder, "-o", reports / "run.pftrace")
            assert_refused(refused, "the file system is read-only")
            assert run("merge", run_folder, "-o", output).code == 0
            assert len(output.read_bytes()) > len(expected) // 2  # paths of reports are in it
            assert sorted(reports.rglob("*")) == before
        finally:
            subprocess.run(["umount", str(reports)], check=True)


@pytest.mark.parametrize("suffix", ["pftrace", "json"])
def test_a_limit_of_file_sizes(output: Path, suffix: str) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    target = output.with_suffix(f".{suffix}")
    environ = environment(PYTHONDONTWRITEBYTECODE="1")  # it would be cut, and stay behind
    refused = run("merge", PIPELINE, "-o", target, preexec_fn=limit, env=environ)
    assert_refused(refused, f"cannot write `{target}`")
    assert list(output.parent.iterdir()) == []


@pytest.mark.parametrize("keep_going", [False, True])
@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("kind", ["reports", "parts"])
def test_a_network_folder_that_vanishes(
    output: Path, tmp_path: Path, kind: str, processes: str, keep_going: bool
) -> None:
    """All files of a folder are gone as soon as the program has opened one of them."""
    folder = tmp_path / "run"
    if kind == "reports":
        shutil.copytree(PIPELINE, folder)
    else:
        for machine in ("node2", "node10"):
            nsys_pp.extract(PIPELINE / machine, folder / machine)
    options = ["--keep-going"] * keep_going
    line = command_line("merge", folder, "-o", output, "--processes", processes, *options)
    environ = environment(PYTHONWARNINGS="")
    process = subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        if any(output.parent.iterdir()) or _reads_from(process.pid, folder):
            break
        time.sleep(0.001)
    folder.rename(tmp_path / "gone")
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in stderr
    assert "unforeseen" not in stderr
    assert process.returncode in ((0, 1, 3) if keep_going else (0, 1)), stderr
    assert [path.name for path in output.parent.iterdir()] == (
        [output.name] if process.returncode != 1 else []
    )
    if process.returncode == 1:
        assert "Error: `" in stderr


def _reads_from(pid: int, folder: Path) -> bool:
    try:
        return any(
            str(os.readlink(link)).startswith(str(folder)) for link in Path(f"/proc/{pid}/fd").iterdir()
        )
    except OSError:
        return False


def test_an_output_folder_that_vanishes(output: Path) -> None:
    def vanish(_: str, __: float) -> None:
        shutil.rmtree(output.parent, ignore_errors=True)

    with pytest.raises(NsysPPError, match="cannot write"):
        nsys_pp.merge(PIPELINE, output, keep_going=True, progress=vanish)
    assert not output.parent.exists()


@pytest.mark.few(1)
@pytest.mark.parametrize("when", ["before", "during"])
def test_a_stopped_dask_worker(
    output: Path, expected: bytes, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask gives up a worker that does not answer after five minutes, and moves its reports to others."""
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL", "3s")
    cluster = Cluster(tmp_path)
    stopped = cluster.processes[-1]
    try:
        if when == "before":
            stopped.send_signal(signal.SIGSTOP)
        line: list[str | Path] = [
            "merge",
            PIPELINE,
            "-o",
            output,
            "--dask-scheduler",
            cluster.file,
            "--result",
            tmp_path / "r.json",
        ]
        process = subprocess.Popen(
            command_line(*line), env=environment(PYTHONWARNINGS=""), stderr=subprocess.PIPE, text=True
        )
        if when == "during":
            while not any(tmp_path.glob("out/.*/*")) and process.poll() is None:
                time.sleep(0.002)
            stopped.send_signal(signal.SIGSTOP)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        stopped.send_signal(signal.SIGCONT)
        cluster.close()
    assert process.returncode == 0, stderr
    assert output.read_bytes() == expected
    assert json.loads((tmp_path / "r.json").read_text())["skipped"] == []


_OLD = b"the output of an earlier run"


@pytest.mark.draws
@pytest.mark.parametrize("command", ["merge", "merge --processes 2", "scrub"])
def test_a_kill_at_any_point_leaves_whole_outputs(command: str, tmp_path: Path) -> None:
    inputs = [RANK0] if command == "scrub" else [PIPELINE]
    folder = tmp_path / "out"
    folder.mkdir()
    output = folder / ("clean.sqlite" if command == "scrub" else "run.pftrace")
    line = command_line(*command.split(), *inputs, "-o", output, "--force")
    began = time.monotonic()
    assert run(*line[3:], before=[], env=environment()).code == 0
    whole_s, expected = time.monotonic() - began, output.read_bytes()
    rng = random.Random(len(command))
    killed = 0
    delays_s = [rng.uniform(0.0, 1.0) * whole_s for _ in range(count_draws(12, least=4))]
    for delay_s in [0.0, *delays_s]:  # the first is killed on any machine, while it starts
        output.write_bytes(_OLD)
        process = subprocess.Popen(
            line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(delay_s)
        process.kill()
        killed += process.wait() != 0
        is_whole = output.read_bytes() in (_OLD, expected)
        assert is_whole
    assert killed
    assert run(*line[3:], before=[], env=environment()).code == 0
    assert output.read_bytes() == expected
    assert [path.name for path in folder.iterdir()] == [output.name]
    shutil.rmtree(folder)
