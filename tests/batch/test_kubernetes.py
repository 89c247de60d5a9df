"""The Kubernetes jobs: what their containers would run, run here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.batch.world import SCRIPTS, World, make_world, read_result
from tests.cli.calls import PATIENCE_S


def read_jobs() -> tuple[dict[str, str], dict[str, Any]]:
    settings, *jobs = yaml.safe_load_all((SCRIPTS / "kubernetes.yaml").read_text())
    return settings["data"], {job["metadata"]["name"]: job["spec"] for job in jobs}


def container_of(job: dict[str, Any]) -> Any:
    [container] = job["template"]["spec"]["containers"]
    return container


def start(world: World, job: dict[str, Any], index: int | None = None) -> subprocess.Popen[str]:
    """Start a pod of a job, which has one core, and the folder of the world for a volume."""
    container = container_of(job)
    settings, _ = read_jobs()
    named = {one["name"]: one["value"] for one in container.get("env", [])}
    variables = {**settings, **named, "KIND": "sqlite", "RUN": str(world.folder / "run")}
    if index is not None:
        variables["JOB_COMPLETION_INDEX"] = str(index)
    cores = sorted(os.sched_getaffinity(0))
    one = str(cores[(index or 0) % len(cores)])
    return subprocess.Popen(
        ["taskset", "-c", one, *container["command"], *container["args"]],
        env={**world.environment, **variables},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_pods_make_parts_and_the_pod_that_waits_merges_them(tmp_path: Path, merged: bytes) -> None:
    world = make_world(tmp_path)
    world.copy_reports(tmp_path / "run" / "reports")
    _, jobs = read_jobs()
    # the pod that merges may well be the first to run
    pods = [start(world, jobs["nsys-pp-merge"])]
    extract = jobs["nsys-pp-extract"]
    pods += [start(world, extract, index) for index in range(extract["completions"])]
    try:
        for pod in reversed(pods):
            said, _ = pod.communicate(timeout=PATIENCE_S)
            assert pod.returncode == 0, said
    finally:
        for pod in pods:
            pod.kill()
            pod.communicate()
    assert (tmp_path / "run" / "run.pftrace").read_bytes() == merged
    assert len(read_result(tmp_path / "run" / "extract-1.json")["outputs"]) == 2


def test_what_belongs_together_is_the_same() -> None:
    settings, jobs = read_jobs()
    extract = jobs["nsys-pp-extract"]
    assert extract["completionMode"] == "Indexed"
    assert int(settings["TASKS"]) == extract["completions"] == extract["parallelism"]
    for job in jobs.values():
        spec, container = job["template"]["spec"], container_of(job)
        assert spec["restartPolicy"] == "Never"
        assert [volume["name"] for volume in spec["volumes"]] == ["data"]
        [mount] = container["volumeMounts"]
        assert mount["name"] == "data"
        assert os.path.commonpath([settings["RUN"], mount["mountPath"]]) == mount["mountPath"]
        # Kubernetes puts variables of its own into `$(NAME)`
        assert not any(f"$({name})" in container["args"][0] for name in settings)
