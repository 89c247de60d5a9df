"""Reports that the real nsys recorded here, and what runs recipes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fixtures.simulate import main as simulate
from tests.conftest import REPOSITORY
from tests.recording import record

collect_ignore = ["fake"]  # other processes import it
RECIPES = REPOSITORY / "recipes"
RunRecipe = Callable[..., "subprocess.CompletedProcess[str]"]
_PROGRAM = """
import multiprocessing, threading, time
import nvtx

def work(number):
    with nvtx.annotate(f"step {number}", domain="training", payload=number):
        for batch in range(3):
            with nvtx.annotate(f"forward {batch}", color="red", payload=1.5, category="compute"):
                time.sleep(0.001)

def child(number):
    work(number)
    thread = threading.Thread(target=work, args=(number + 10,))
    thread.start()
    thread.join()

if __name__ == "__main__":
    handed = nvtx.start_range("handed over")
    nvtx.mark("mark")
    processes = [multiprocessing.get_context("spawn").Process(target=child, args=(number,)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    thread = threading.Thread(target=nvtx.end_range, args=(handed,))
    thread.start()
    thread.join()
"""


@pytest.fixture(scope="session")
def nsys(each_nsys: str) -> str:
    """Every real version runs the recipes."""
    return each_nsys


@pytest.fixture(scope="session")
def recorded(nsys: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two reports of a program with processes, threads, domains, payloads, and no GPU: rank2 and rank10."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "program.py").write_text(_PROGRAM)
    options = ["-t", "nvtx,osrt", "--sample=none", "--cpuctxsw=none"]
    for rank in (2, 10):  # one by one: of two that began at once, one once left no report
        environ = {**os.environ, "RANK": str(rank), "TMPDIR": str(folder)}
        record(nsys, folder, options, ["program.py"], name=f"rank{rank}", environ=environ)
    return folder


@pytest.fixture(scope="session")
def with_gpu(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with simulated GPUs: what is simulated lies beside, as if it were an export of what was recorded."""
    simulated, folder = tmp_path_factory.mktemp("simulated"), tmp_path_factory.mktemp("with_gpu")
    options = "--pp 2 --machines 2 --layers 1 --steps 2 --micro-batches 3 --host --no-truth"
    simulate([str(simulated), *options.split()])
    for rank, report in zip((2, 10), sorted(simulated.rglob("*.sqlite")), strict=True):
        shutil.copy(recorded / f"rank{rank}.nsys-rep", folder)
        shutil.copyfile(report, folder / f"rank{rank}.sqlite")
    return folder


@pytest.fixture
def run_recipe(nsys: str, tmp_path: Path) -> RunRecipe:
    """Run a recipe by the real nsys, in the folder of the test; its results are in `out` there."""
    pytest.importorskip("psutil", reason="recipes of nsys need psutil")

    def run(
        *words: str | Path, python: Path = Path(sys.executable), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "NSYS_RECIPE_PATH": str(RECIPES),
            "NSYS_PP_CACHE": str(tmp_path / "cache"),
            **variables,
        }
        environment.pop("NSYS_PP_NSYS", None)  # the nsys that runs the recipe is to be found
        return subprocess.run(
            [nsys, "recipe", *map(str, words)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def cluster(nsys: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Dask cluster: its worker knows the packages of nsys, as nsys wants it, and no recipe."""
    pytest.importorskip("distributed", reason="no Dask: install distributed")
    folder = tmp_path_factory.mktemp("cluster")
    file, packages = folder / "scheduler.json", Path(nsys).resolve().parent / "python" / "packages"
    words = ["--scheduler-file", str(file), "--no-dashboard"]
    start = [sys.executable, "-m", "distributed.cli"]
    commands = [
        [f"{start[-1]}.dask_scheduler", *words, "--port", "0"],
        [
            f"{start[-1]}.dask_worker",
            *words,
            "--nworkers",
            "1",
            "--nthreads",
            "2",
            "--no-nanny",
            "--local-directory",
            str(folder),
        ],
    ]
    with (folder / "log").open("w") as log:
        running = [
            subprocess.Popen(
                [*start[:-1], *command],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(packages)},
                stdout=log,
                stderr=log,
            )
            for command in commands
        ]
        try:
            for _ in range(300):
                if file.exists() and file.stat().st_size:
                    break
                time.sleep(0.1)
            else:
                pytest.skip(f"no Dask cluster can be started here: {(folder / 'log').read_text()[-200:]}")
            yield json.loads(file.read_text())["address"]
        finally:
            for one in running:  # a worker that is asked waits for its scheduler
                one.kill()
                one.wait()
