"""A cluster of folders in which batch scripts run, and what the stub `sbatch` queued, run as Slurm would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calls import PATIENCE_S, PIPELINE, REPORTS, Result, environment, succeed

NEVER = "never"  # a job whose dependency cannot come true, as `--kill-on-invalid-dep=yes` ends it


def run_queue(queue: Path, environment: Mapping[str, str]) -> dict[int, list[int] | str]:
    """Run all jobs; the exit statuses of the tasks of each, or that it never ran.

    The job that was submitted last runs first, unless it depends on another, and so do the tasks of arrays.
    """
    jobs = {job["number"]: job for job in map(read_result, queue.glob("*.json"))}
    done: dict[int, list[int] | str] = {}
    while len(done) < len(jobs):
        ready = [number for number in jobs.keys() - done if _other(jobs[number]) not in jobs.keys() - done]
        number = max(ready)
        if _may_run(jobs[number], done):
            done[number] = [_run(jobs[number], task, queue, environment) for task in _tasks(jobs[number])]
        else:
            done[number] = NEVER
        (queue / f"{number}.json").rename(queue / f"{number}.done")
    return done


def read_result(path: Path) -> Any:
    """Read what `--result` wrote, or a job of the queue."""
    return json.loads(path.read_text())


def _other(job: dict[str, Any]) -> int | None:
    """The job that a job waits for."""
    return int(job["dependency"].split(":")[1]) if job["dependency"] else None


def _may_run(job: dict[str, Any], done: dict[int, list[int] | str]) -> bool:
    other = _other(job)
    if other is None or job["dependency"].startswith("afterany:"):
        return True
    assert job["dependency"].startswith("afterok:")
    return done[other] != NEVER and not any(done[other])


def _tasks(job: dict[str, Any]) -> list[int | None]:
    """The tasks of an array, the last one first; of other jobs there is one without a number."""
    if not job["array"]:
        return [None]
    numbers: list[int | None] = []
    for word in job["array"].split(","):
        first, _, last = word.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers[::-1]


def _run(job: dict[str, Any], task: int | None, queue: Path, environment: Mapping[str, str]) -> int:
    number = job["number"]
    variables = {
        "SLURM_JOB_ID": number if task is None else number + 1 + task,
        "SLURM_JOB_NAME": job["job_name"],
        "SLURM_SUBMIT_DIR": job["folder"],
        "SLURM_NNODES": job["nodes"],
        "SLURM_NTASKS_PER_NODE": job["ntasks_per_node"],
        "SLURM_NTASKS": job["nodes"] * job["ntasks_per_node"],
        "SLURM_CPUS_PER_TASK": job["cpus_per_task"],
        "SLURM_NODEID": 0,
        "SLURM_PROCID": 0,
    }
    if job["mem"]:
        variables["SLURM_MEM_PER_NODE"] = int(job["mem"].removesuffix("G")) * 1024
    if task is not None:
        variables |= {
            "SLURM_ARRAY_JOB_ID": number,
            "SLURM_ARRAY_TASK_ID": task,
            "SLURM_ARRAY_TASK_COUNT": len(_tasks(job)),
        }
    names = {"%x": job["job_name"], "%j": variables["SLURM_JOB_ID"], "%A": number, "%a": task}
    log = re.sub(r"%[a-zA-Z]", lambda found: str(names[found[0]]), job["output"])
    # the script is a copy, elsewhere
    script = queue / f"{variables['SLURM_JOB_ID']}.sh"
    script.write_text(job["script"])
    with (Path(job["folder"]) / log).open("w") as said:
        return subprocess.run(
            ["bash", script, *job["arguments"]],
            cwd=job["folder"],
            env={**environment, **{name: str(value) for name, value in variables.items()}},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=PATIENCE_S,
        ).returncode


ROOT = Path(__file__).parents[2]


SCRIPTS = ROOT / "docs" / "batch"


@dataclass(frozen=True)
class World:
    """Runs scripts in a folder of its own, with a PATH on which stubs come first."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str | Path, timeout: int = PATIENCE_S, **variables: str) -> Result:
        done = subprocess.run(
            list(map(str, words)),
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def run_queue(self, **variables: str) -> dict[int, list[int] | str]:
        """Run what was submitted; see `run_queue`."""
        return run_queue(self.folder / "slurm", {**self.environment, **variables})

    def forget_jobs(self, *numbers: int) -> None:
        """Take some jobs, or all, out of the queue."""
        for path in (self.folder / "slurm").glob("*.json"):
            if not numbers or int(path.stem) in numbers:
                path.rename(path.with_suffix(".forgotten"))

    def merge(self, reports: Sequence[Path]) -> bytes:
        """The trace that `merge` makes of some reports at once."""
        trace = self.folder / "expected" / "run.pftrace"
        trace.parent.mkdir(exist_ok=True)
        succeed("merge", *reports, "-o", trace, "--force", env=dict(self.environment))
        return trace.read_bytes()

    def copy_reports(self, to: Path) -> None:
        for report in REPORTS:
            (to / report.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(report, to / report.parent.name)

    def logs(self) -> str:
        return "".join(f"{path.name}: {path.read_text()}" for path in sorted(self.folder.rglob("*.log")))


def make_world(folder: Path, *stubs: str) -> World:
    """Make a world with some of the `stubs`; nsys-pp is this one.

    Skips where the tools of clusters are others.
    """
    if sys.platform != "linux":
        pytest.skip("scripts for Linux")
    for name in ("bin", "slurm", "cache"):
        (folder / name).mkdir()
    program = folder / "bin" / "nsys-pp"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nsys_pp "$@"\n')
    program.chmod(0o755)
    # what says that these tests themselves run inside a job
    ours = {name: value for name, value in environment().items() if not name.startswith("SLURM_")}
    path = [
        str(folder / "bin"),
        *(str(Path(__file__).parent / "stubs" / name) for name in stubs),
        os.environ["PATH"],
    ]
    changes = {
        "PATH": os.pathsep.join(path),
        "HOME": str(folder),
        "NSYS_PP_CACHE": str(folder / "cache"),
        "NSYS_PP_NSYS": "",
        "STUB_SLURM": str(folder / "slurm"),
        "STUB_HOSTS": str(folder / "hosts"),
        "STUB_REPORTS": str(PIPELINE),
    }
    return World(folder=folder, environment={**ours, **changes})
