"""The real nsys runs the recipes; results are those of the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nsys_pp
from nsys_pp.frames.table import fill_tables
from nsys_pp.output.tables.formats import write_tables
from nsys_pp.output.tables.text import Content
from tests.recipes.conftest import RunRecipe, make_interpreter
from tests.recipes.notebooks import run_cells

# modes differ in who starts the commands, which is the same in all recipes
RUNS = [("merge", "none"), ("pipeline", "concurrent"), ("summary", "dask-futures")]


@pytest.fixture(scope="module")
def expected(with_gpu: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands give for the reports with GPUs."""
    folder = tmp_path_factory.mktemp("expected")
    nsys_pp.merge([with_gpu], folder / "run.pftrace")
    nsys_pp.chart([with_gpu], folder / "pipeline.html")
    summary = nsys_pp.summary([with_gpu])
    verdict = fill_tables(nsys_pp.PIPELINE_TABLES, {"verdict": summary.verdict_table()})
    for name, tables in (
        ("pipeline", fill_tables(nsys_pp.PIPELINE_TABLES, nsys_pp.pipeline([with_gpu]).tables())),
        ("summary", [*verdict, *fill_tables(nsys_pp.SUMMARY_TABLES, summary.tables)]),
    ):
        (folder / name).mkdir()
        write_tables(Content(tables=tables), folder / name, format="parquet", force=False)
    return folder


def _assert_tables_equal(found: Path, expected: Path) -> None:
    names = {path.name for path in expected.glob("*.parquet")}
    assert names
    assert {path.name for path in found.glob("*.parquet")} == names
    for name in names:
        assert_frame_equal(pl.read_parquet(found / name), pl.read_parquet(expected / name))


def _assert_notebook_runs(folder: Path, name: str) -> None:
    """Run the notebook beside the results that it is about."""
    pytest.importorskip("pandas", reason="no pandas")
    overview, chart, tables = run_cells(folder / "results.ipynb")
    for table in folder.glob("*.parquet"):
        assert f"<th>{table.stem}</th>" in overview
        assert f"<h3>{table.stem}</h3>" in tables
    assert ("<iframe" in chart) == (name != "summary")


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "mode"), RUNS)
def test_results_are_those_of_the_command_line(
    name: str,
    mode: str,
    with_gpu: Path,
    expected: Path,
    run_recipe: RunRecipe,
    tmp_path: Path,
) -> None:
    variables = {"NSYS_DASK_N_WORKERS": "2", "NSYS_DASK_THREADS_PER_WORKER": "1"}
    if mode == "dask-futures":
        pytest.importorskip("distributed", reason="no Dask: install distributed")
    done = run_recipe(f"nsys_pp_{name}", "--input", with_gpu, "--mode", mode, "--output", "out", **variables)
    assert done.returncode == 0, done.stdout
    assert "was not extracted" not in done.stdout
    found = tmp_path / "out"
    _assert_tables_equal(found, expected / ("summary" if name == "summary" else "pipeline"))
    for file in {"merge": ["run.pftrace", "pipeline.html"], "pipeline": ["pipeline.html"], "summary": []}[
        name
    ]:
        assert (found / file).read_bytes() == (expected / file).read_bytes()
    told = json.loads((found / "out.nsys-analysis").read_text())
    assert (told["RecipeName"], told["Mode"]) == (f"nsys_pp_{name}", mode)
    assert told["Outputs"]["results.ipynb"] == "Notebook"
    assert next(iter(told["Outputs"])) == "results.ipynb"
    assert set(told["Outputs"]) == {path.name for path in found.iterdir()} - {"out.nsys-analysis"}
    _assert_notebook_runs(found, name)
    assert [Path(path).name for path in told["InputFiles"]] == ["rank10.nsys-rep", "rank2.nsys-rep"]
    assert not (found / "parts").exists()


@pytest.mark.slow
def test_what_nsys_recorded_is_exported_by_the_nsys_that_runs_the_recipe(
    nsys: str, recorded: Path, run_recipe: RunRecipe, tmp_path: Path
) -> None:
    reports = sorted(recorded.glob("*.nsys-rep"))
    done = run_recipe(
        "nsys_pp_merge", "--input", *reports, "--detail", "cpu", "--output", "out", "--keep-parts"
    )
    assert done.returncode == 0, done.stdout
    trace = (tmp_path / "out" / "run.pftrace").read_bytes()
    assert "no chart: none of the 2 reports has GPU operations" in done.stdout
    parts = sorted((tmp_path / "out" / "parts").rglob("*.nspart"))
    assert [part.name for part in parts] == ["rank2.nspart", "rank10.nspart"]
    nsys_pp.merge([recorded], tmp_path / "run.pftrace", detail="cpu", nsys=nsys)
    assert (tmp_path / "run.pftrace").read_bytes() == trace


@pytest.mark.slow
def test_what_cannot_be_read_ends_the_recipe_or_is_left_out(
    with_gpu: Path, run_recipe: RunRecipe, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.nsys-rep"
    broken.write_bytes(b"no report")
    words = ["nsys_pp_summary", "--input", broken, with_gpu / "rank2.nsys-rep", "--output", "out"]
    done = run_recipe(*words)
    assert done.returncode == 1
    assert f"`{broken}` cannot be exported" in done.stdout
    assert "Traceback" not in done.stdout
    assert not (tmp_path / "out").exists()
    done = run_recipe(*words, "--keep-going")
    assert done.returncode == 0, done.stdout
    assert f"WARNING: skipped {broken}" in done.stdout
    assert (tmp_path / "out" / "overview.parquet").exists()
    done = run_recipe("nsys_pp_merge", *words[1:], "--clock", "sundial", "--force-overwrite")
    assert done.returncode == 1
    assert "argument --clock: invalid choice: 'sundial'" in done.stdout
    assert (tmp_path / "out" / "overview.parquet").exists()  # no work was done


@pytest.mark.slow
def test_installed_recipes_find_nsys_pp_from_an_interpreter_without_it(
    with_gpu: Path, run_recipe: RunRecipe, tmp_path: Path
) -> None:
    python = make_interpreter(tmp_path / "bare", ["psutil", "numpy"])
    missing = subprocess.run([python, "-c", "import polars"], cwd=tmp_path, capture_output=True, check=False)
    assert missing.returncode == 1
    subprocess.run(
        [sys.executable, "-m", "nsys_pp", "recipe", "install", "--to", tmp_path / "recipes"], check=True
    )
    words = ("nsys_pp_summary", "--input", with_gpu / "rank2.nsys-rep", "--output", "out", "--mode", "none")
    path = f"{python.parent}:/usr/bin:/bin"
    done = run_recipe(*words, python=python, PATH=path)
    assert done.returncode == 1
    assert "`nsys-pp recipe install`" in done.stdout
    assert "Traceback" not in done.stdout
    done = run_recipe(*words, python=python, PATH=path, NSYS_RECIPE_PATH=str(tmp_path / "recipes"))
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "out" / "overview.parquet").exists()
