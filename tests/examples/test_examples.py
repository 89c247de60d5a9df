"""Notebooks of `examples/`, made from the scripts beside them: cells begin with `# %%`.

    python -m tests.examples.test_examples

writes them anew. A cell `[script]` is in the script alone, and `display(value)` at the end of a cell becomes `value`.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.serving.reports import write_reports
from fixtures.serving.simulate import draw_serving, serve
from tests.conftest import REPOSITORY
from tests.recipes.notebooks import run_cells

EXAMPLES = REPOSITORY / "examples"


_CELL = re.compile(r"^# %%(?: \[(markdown|script)\])?\n", re.MULTILINE)


_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def list_scripts() -> list[Path]:
    """Return the scripts that have a notebook."""
    return sorted(EXAMPLES.glob("*.py"))


def convert_script(script: str) -> str:
    """Return the notebook of a script, without outputs."""
    cells: list[dict[str, object]] = [
        {
            "cell_type": kind,
            "id": f"cell-{number}",
            "metadata": {},
            **({"execution_count": None, "outputs": []} if kind == "code" else {}),
            "source": source.splitlines(keepends=True),
        }
        for number, (kind, source) in enumerate(_list_cells(script))
    ]
    notebook = {"cells": cells, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _list_cells(script: str) -> Iterator[tuple[str, str]]:
    _, *parts = _CELL.split(script)
    for kind, source in zip(parts[::2], parts[1::2], strict=True):
        if kind == "markdown":
            yield (
                "markdown",
                "\n".join(line.removeprefix("#").removeprefix(" ") for line in source.strip().split("\n")),
            )
        elif kind is None:
            yield "code", _show_last(source.strip())


def _show_last(source: str) -> str:
    """Replace `display(value)` at the end by `value`."""
    last = ast.parse(source).body[-1]
    if not (isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)):
        return source
    call = last.value
    if not (isinstance(call.func, ast.Name) and call.func.id == "display"):
        return source
    lines = source.splitlines()
    shown = ast.get_source_segment(source, call.args[0])
    assert shown is not None
    kept = "\n".join(lines[: last.lineno - 1])
    inner = shown.split("\n")
    if len(inner) == 1:
        return f"{kept}\n{shown}".lstrip("\n")
    # A chain of methods over several lines needs brackets of its own.
    text = (
        "\n".join(line.removeprefix("    ") for line in inner)
        if shown.startswith("nsys_pp.")
        else f"(\n    {shown}\n)"
    )
    return f"{kept}\n{text}".lstrip("\n")


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
            f"{script.name} changed: python -m tests.examples.test_examples"
        )


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_notebook(name: str) -> None:
    nbformat = pytest.importorskip("nbformat", reason="no nbformat")
    nbformat.validate(nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4))


@pytest.mark.slow
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


@pytest.mark.slow
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


if __name__ == "__main__":
    for path in list_scripts():
        path.with_suffix(".ipynb").write_text(
            convert_script(path.read_text(encoding="utf-8")), encoding="utf-8"
        )
