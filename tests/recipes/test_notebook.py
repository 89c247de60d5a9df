"""The notebook that recipes leave beside their results."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import REPOSITORY
from tests.recipes.notebooks import run_cells

NOTEBOOK = REPOSITORY / "recipes" / "nsys_pp_recipe" / "results.ipynb"


def test_it_is_a_notebook() -> None:
    nbformat = pytest.importorskip("nbformat", reason="no nbformat")
    nbformat.validate(nbformat.read(NOTEBOOK, as_version=4))


@pytest.mark.parametrize("has_chart", [True, False])
def test_it_shows_what_is_beside_it(tmp_path: Path, has_chart: bool) -> None:
    pytest.importorskip("pandas", reason="no pandas")
    pytest.importorskip("pyarrow", reason="no pyarrow")
    shutil.copy(NOTEBOOK, tmp_path)
    pl.DataFrame({"step": [7, 8], "span_ns": [123456, 5]}).write_parquet(tmp_path / "steps.parquet")
    kinds = {"kind": pl.Series(["forward"], dtype=pl.Enum(["forward"]))}
    pl.DataFrame(kinds).write_parquet(tmp_path / "kinds.parquet")
    if has_chart:
        (tmp_path / "pipeline.html").touch()
    overview, chart, tables = run_cells(tmp_path / NOTEBOOK.name)
    assert "steps" in overview
    assert "step, span_ns" in overview
    assert ("<iframe" in chart) == has_chart
    assert tables.index("<h3>kinds</h3>") < tables.index("<h3>steps</h3>")
    assert "<td>123456</td>" in tables
    assert "<td>forward</td>" in tables
