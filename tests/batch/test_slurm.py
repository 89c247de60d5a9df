"""The Slurm scripts, run by stubs of sbatch and srun, and by real ones."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.batch.test_hosts import find_block
from tests.batch.world import NEVER, ROOT, SCRIPTS, World, make_world, read_result
from tests.cli.calls import REPORTS


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, "slurm", "recorder")


def test_an_array_makes_parts_and_the_job_after_it_one_trace(world: World, merged: bytes) -> None:
    world.copy_reports(world.folder / "reports")
    said = world.run(SCRIPTS / "submit.sh", "reports", TASKS="4")
    assert said.stdout == "4 reports: array 101 extracts parts, then job 102 merges them; logs in run/\n"
    run = world.folder / "run"

    # a task of the array by itself makes the parts of its share
    world.forget_jobs()
    assert world.run("sbatch", "--array=3", SCRIPTS / "extract.sbatch", "run", "4").code == 0
    assert world.run_queue() == {103: [0]}, world.logs()
    names = (run / "reports.txt").read_text().split()
    assert len(names) == 4
    [part] = (run / "parts").iterdir()
    assert part.stem == Path(names[3 - 1]).name  # lines are counted from 1
    made_at = part.stat().st_mtime_ns

    # a second call makes all others
    assert world.run(SCRIPTS / "submit.sh", "reports", TASKS="4").code == 0
    assert world.run_queue() == {104: [0, 0, 0, 0], 105: [0]}, world.logs()
    assert part.stat().st_mtime_ns == made_at
    assert (run / "run.pftrace").read_bytes() == merged
    logs = {f"nsys-pp-extract-104_{task}.log" for task in range(4)} | {"nsys-pp-merge-105.log"}
    assert {path.name for path in run.glob("*.log")} == logs
    inputs = [read_result(run / f"extract-{task}.json")["inputs"] for task in range(4)]
    assert sorted(len(one) for one in inputs) == [1, 1, 1, 1]
    assert len(read_result(run / "merge.json")["inputs"]) == 4


def test_what_is_missing_is_told_or_ends_it(world: World) -> None:
    world.copy_reports(world.folder / "all")
    (world.folder / "all" / "node2").rename(world.folder / "reports")
    bad = world.folder / "reports" / "rank0.sqlite"
    bad.write_bytes(bad.read_bytes()[:5000])
    run = world.folder / "run"

    assert world.run(SCRIPTS / "submit.sh", "reports", TASKS="1", AFTER="afterok").code == 0
    assert world.run_queue() == {101: [3], 102: NEVER}, world.logs()
    [skipped] = read_result(run / "extract-0.json")["skipped"]
    assert skipped["path"] == "reports/rank0.sqlite"
    assert "truncated" in skipped["reason"]
    assert not (run / "run.pftrace").exists()

    assert world.run(SCRIPTS / "submit.sh", "reports", TASKS="1").code == 0
    world.forget_jobs(103)  # it would end as 101 did
    world.run_queue(WAIT="1s")
    assert (run / "run.pftrace").is_file()
    [missing] = read_result(run / "merge.json")["skipped"]
    assert (missing["path"], missing["reason"]) == (
        "run/parts",
        "after 1s, 1 of 2 reports are there and whole",
    )
    if shutil.which("jq"):
        told = world.run("bash", "-euc", find_block("skipped inputs")).stdout.splitlines()
        assert told[0].startswith("reports/rank0.sqlite: `reports/rank0.sqlite` is truncated")
        assert told[1] == "run/parts: after 1s, 1 of 2 reports are there and whole"


def test_a_report_and_its_export_are_one(world: World) -> None:
    (world.folder / "reports").mkdir()
    for suffix in ("nsys-rep", "sqlite"):
        (world.folder / "reports" / f"a.{suffix}").write_bytes(REPORTS[0].read_bytes())
    assert world.run(SCRIPTS / "submit.sh", "reports").stdout.startswith("1 reports: array 101 ")
    world.forget_jobs(102)
    assert world.run_queue() == {101: [0]}, world.logs()
    assert [path.name for path in (world.folder / "run" / "parts").iterdir()] == ["a.nspart"]


def test_reports_that_cannot_be_told_apart_are_refused(world: World) -> None:
    for name in ("a", "b", "c"):
        folder = world.folder / "reports" / name
        folder.mkdir(parents=True)
        for report in ("report1.nsys-rep", f"report{name}.nsys-rep", "report2.sqlite"):
            (folder / report).touch()
    said = world.run(SCRIPTS / "submit.sh", "reports")
    assert (said.code, said.stderr) == (1, "several reports have the same name: report1, report2\n")
    (world.folder / "empty").mkdir()
    said = world.run(SCRIPTS / "submit.sh", "empty")
    assert (said.code, said.stderr) == (1, "empty holds no reports\n")
    assert world.run_queue() == {}


def test_nodes_extract_what_they_recorded_even_of_a_training_that_failed(world: World) -> None:
    assert world.run("sbatch", SCRIPTS / "train.sbatch").stdout == "Submitted batch job 101\n"
    assert world.run_queue(STUB_TRAINING_STATUS="7") == {101: [7]}, world.logs()
    recorded = sorted((world.folder / "slurm").rglob("*.nsys-rep"), key=lambda path: path.stem)
    assert [path.parts[-3] for path in recorded] == ["node1", "node1", "node2", "node2"]
    run = world.folder / "run_101"
    assert (run / "run.pftrace").read_bytes() == world.merge(recorded)
    for node in range(2):
        assert len(read_result(run / f"extract-{node}.json")["outputs"]) == 2


_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "sinfo", "squeue")


_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


@pytest.fixture
def real_world(tmp_path: Path) -> Iterator[World]:
    """A real_world in which `sbatch` and `srun` are real."""
    real_world = make_world(tmp_path, "recorder")
    path = f"{real_world.environment['PATH']}:{_PATH}"
    if missing := [name for name in _PROGRAMS if shutil.which(name, path=path) is None]:
        pytest.skip(f"no {missing[0]}: apt-get install slurmctld slurmd slurm-client")
    with subprocess.Popen(
        ["bash", ROOT / "tests" / "tools" / "start_slurm.sh", tmp_path / "slurm"],
        env=real_world.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as slurm:  # which ends when its standard input does
        assert slurm.stdout is not None
        settings = slurm.stdout.readline().strip()
        assert settings, f"it ended with status {slurm.wait()}"
        yield replace(real_world, environment={**real_world.environment, "SLURM_CONF": settings})


def wait_for_jobs(real_world: World) -> None:
    """Wait until no job is left."""
    for _ in range(600):
        if not (left := real_world.run("squeue", "--noheader").stdout):
            return
        time.sleep(0.2)
    pytest.fail(f"{left}\n{real_world.logs()}")


def test_jobs_merge_what_nodes_extract(real_world: World) -> None:
    reports = REPORTS[:2]
    run, late = real_world.folder / "run", real_world.folder / "late"
    for folder in (run / "parts", late, real_world.folder / "reports"):
        folder.mkdir(parents=True)
    (late / "parts").symlink_to("../run/parts")
    for report in reports:
        shutil.copy(report, real_world.folder / "reports")
    # one merge waits for parts, another for the jobs that make them
    assert real_world.run("sbatch", SCRIPTS / "merge.sbatch", "late", "2").code == 0
    said = real_world.run(SCRIPTS / "submit.sh", "reports", TASKS="2")
    assert said.code == 0, said
    trained = real_world.run("sbatch", "--parsable", "--ntasks-per-node=1", SCRIPTS / "train.sbatch")
    assert trained.code == 0, trained
    wait_for_jobs(real_world)

    merged = real_world.merge(reports)
    assert (late / "run.pftrace").read_bytes() == merged, real_world.logs()
    assert (run / "run.pftrace").read_bytes() == merged, real_world.logs()
    assert len(list(run.glob("nsys-pp-extract-*_[01].log"))) == 2
    recorded = sorted((real_world.folder / "slurm").rglob("*.nsys-rep"), key=lambda path: path.stem)
    assert [path.parts[-3] for path in recorded] == ["node1", "node2"]
    run = real_world.folder / f"run_{trained.stdout.strip()}"
    assert (run / "run.pftrace").read_bytes() == real_world.merge(recorded), real_world.logs()
    for node in range(2):
        assert len(read_result(run / f"extract-{node}.json")["outputs"]) == 1
