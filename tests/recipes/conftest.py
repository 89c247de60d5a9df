"""Reports that the real nsys recorded here, what runs recipes, and interpreters that lack nsys-pp."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
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


def make_interpreter(folder: Path, packages: Iterable[str] = ()) -> Path:
    """Make a virtual environment with a few packages of this one, and give its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in packages:
        source = Path(str(importlib.import_module(name).__file__)).parent
        for part in (source, source.with_name(f"{source.name}.libs")):  # wheels bring libraries beside
            if part.is_dir():
                os.symlink(part, site / part.name)
    return folder / "bin" / "python3"
