"""Runs what the stub `sbatch` queued, as Slurm would, and in the order that is least kind."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

NEVER = "never"  # a job whose dependency cannot come true, as `--kill-on-invalid-dep=yes` ends it


def run_queue(queue: Path, environment: Mapping[str, str]) -> dict[int, list[int] | str]:
    """Run all jobs; the exit statuses of the tasks of each, or that it never ran.

    The job that was submitted last runs first, unless it depends on another, and so do the tasks of arrays.
    """
    jobs = {job["number"]: job for job in map(_read, queue.glob("*.json"))}
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


def _read(path: Path) -> Any:
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
