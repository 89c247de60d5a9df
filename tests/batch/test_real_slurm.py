"""The Slurm scripts, run by a real Slurm of two nodes on this machine.

Skipped where Slurm is not installed.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.batch.world import REPORTS, ROOT, SCRIPTS, World, make_world, read_result

_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "sinfo", "squeue")
_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world in which `sbatch` and `srun` are real."""
    world = make_world(tmp_path, "recorder")
    path = f"{world.environment['PATH']}:{_PATH}"
    if missing := [name for name in _PROGRAMS if shutil.which(name, path=path) is None]:
        pytest.skip(f"no {missing[0]}: apt-get install slurmctld slurmd slurm-client")
    with subprocess.Popen(
        ["bash", ROOT / "tests" / "tools" / "start_slurm.sh", tmp_path / "slurm"],
        env=world.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as slurm:  # which ends when its standard input does
        assert slurm.stdout is not None
        settings = slurm.stdout.readline().strip()
        assert settings, f"it ended with status {slurm.wait()}"
        yield replace(world, environment={**world.environment, "SLURM_CONF": settings})


def wait_for_jobs(world: World) -> None:
    """Wait until no job is left."""
    for _ in range(600):
        if not (left := world.run("squeue", "--noheader").stdout):
            return
        time.sleep(0.2)
    pytest.fail(f"{left}\n{world.logs()}")


def test_jobs_merge_what_nodes_extract(world: World) -> None:
    reports = REPORTS[:2]
    run, late = world.folder / "run", world.folder / "late"
    for folder in (run / "parts", late, world.folder / "reports"):
        folder.mkdir(parents=True)
    (late / "parts").symlink_to("../run/parts")
    for report in reports:
        shutil.copy(report, world.folder / "reports")
    # one merge waits for parts, another for the jobs that make them
    assert world.run("sbatch", SCRIPTS / "merge.sbatch", "late", "2").code == 0
    said = world.run(SCRIPTS / "submit.sh", "reports", TASKS="2")
    assert said.code == 0, said
    trained = world.run("sbatch", "--parsable", "--ntasks-per-node=1", SCRIPTS / "train.sbatch")
    assert trained.code == 0, trained
    wait_for_jobs(world)

    merged = world.merge(reports)
    assert (late / "run.pftrace").read_bytes() == merged, world.logs()
    assert (run / "run.pftrace").read_bytes() == merged, world.logs()
    assert len(list(run.glob("nsys-pp-extract-*_[01].log"))) == 2
    recorded = sorted((world.folder / "slurm").rglob("*.nsys-rep"), key=lambda path: path.stem)
    assert [path.parts[-3] for path in recorded] == ["node1", "node2"]
    run = world.folder / f"run_{trained.stdout.strip()}"
    assert (run / "run.pftrace").read_bytes() == world.merge(recorded), world.logs()
    for node in range(2):
        assert len(read_result(run / f"extract-{node}.json")["outputs"]) == 1
