"""`nsys-pp report`: outputs, options and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.calls import assert_refused, call
from tests.output.report.pages import read_heat_map

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"

pytestmark = pytest.mark.usefixtures("reports_read_once")


def test_it_says_what_it_wrote_and_found(tmp_path: Path) -> None:
    path, result = tmp_path / "x.html", tmp_path / "result.json"
    done = call("report", PIPELINE, "-o", path, "--title", "Run <7>", "--steps", "11:12", "--result", result)
    assert done.code == 0, done
    assert done.stdout == ""
    assert f"Wrote {path}" in done.stderr
    assert "1 step of 4 ranks." in done.stderr
    assert "Clocks agree" in done.stderr
    page = path.read_text()
    assert "<h1>Run &lt;7&gt;</h1>" in page
    assert [first for first, _ in read_heat_map(page)["steps"]] == [11]
    record = json.loads(result.read_text())
    assert record["outputs"][0]["path"] == str(path)
    assert record["verdict"]
    assert_refused(call("report", PIPELINE, "-o", path), "exists")
    assert path.read_text() == page
    assert call("report", PIPELINE, "-o", path, "--force").code == 0
    assert path.read_text() != page


def test_a_trace_that_is_not_there_is_noted(tmp_path: Path) -> None:
    trace = tmp_path / "run of 7.pftrace"
    done = call("report", PIPELINE, "-o", tmp_path / "x.html", "--trace", trace)
    assert f"no such file: `{trace}`" in done.stderr
    assert f"nsys-pp open &#x27;{trace}&#x27; --zoom " in (tmp_path / "x.html").read_text()
    trace.touch()
    done = call("report", PIPELINE, "-o", tmp_path / "x.html", "--trace", trace, "--force")
    assert "no such file" not in done.stderr


def test_refusals(tmp_path: Path) -> None:
    done = call("report", PIPELINE, "-o", "-")
    assert done.code == 2
    assert "cannot be printed" in done.stderr
    assert_refused(call("report", PIPELINE, "-o", tmp_path / "no" / "x.html"), "folder does not exist")
    assert_refused(call("report", PIPELINE, "-o", tmp_path / "x.html", "--steps", "90:91"), "no step is in")
    assert not [*tmp_path.iterdir()]
