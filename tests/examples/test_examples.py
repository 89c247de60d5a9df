"""The examples run, as notebooks and as scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.serving.reports import write_reports
from fixtures.serving.simulate import draw_serving, serve
from tests.conftest import REPOSITORY
from tests.examples.convert import EXAMPLES, convert_script, list_scripts
from tests.recipes.notebooks import run_cells

NAMES = ["inference", "pipeline"]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The input of each example: a simulated engine on one GPU, and the committed run."""
    folder = tmp_path_factory.mktemp("serving")
    serving = draw_serving(1, engine="vllm")
    write_reports(folder, serving, serve(serving, 1))
    (report,) = folder.glob("*.sqlite")
    return {"inference": str(report), "pipeline": str(REPOSITORY / "fixtures" / "pipeline")}


def test_each_script_has_its_notebook() -> None:
    assert [script.stem for script in list_scripts()] == NAMES
    for script in list_scripts():
        written = script.with_suffix(".ipynb").read_text(encoding="utf-8")
        assert written == convert_script(script.read_text(encoding="utf-8")), (
            f"{script.name} changed: python -m tests.examples.convert"
        )


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_notebook(name: str) -> None:
    nbformat = pytest.importorskip("nbformat", reason="no nbformat")
    nbformat.validate(nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4))


def test_the_notebook_of_a_pipeline_shows_chart_and_tables(reports: dict[str, str], tmp_path: Path) -> None:
    shown = run_notebook("pipeline", reports, tmp_path)
    assert any("<svg" in text and "<table>" in text for text in shown)
    joined = "\n".join(shown)
    for word in ("message_wait_ns", "times_median", "longest_ns", "bound_ns"):
        assert word in joined
    assert (tmp_path / "run.pftrace").stat().st_size > 100_000


def test_the_notebook_of_an_inference_shows_batches_and_kernels(
    reports: dict[str, str], tmp_path: Path
) -> None:
    joined = "\n".join(run_notebook("inference", reports, tmp_path))
    for word in ("prefill", "decode", "mixed", "flash_fwd_kernel", "launched too late", "execute_context"):
        assert word in joined


@pytest.mark.few(1)
@pytest.mark.parametrize("name", NAMES)
def test_the_script_prints_the_same(name: str, reports: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        cwd=tmp_path,
        env={**os.environ, "NSYS_PP_EXAMPLE_REPORTS": reports[name]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "shape: (" in done.stdout


def run_notebook(name: str, reports: dict[str, str], folder: Path) -> list[str]:
    """Run a copy of a notebook, and return what its cells show."""
    notebook = Path(shutil.copy(EXAMPLES / f"{name}.ipynb", folder))
    return run_cells(notebook, NSYS_PP_EXAMPLE_REPORTS=reports[name])
