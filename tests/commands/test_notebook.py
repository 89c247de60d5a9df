"""What results show in a notebook."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

import nsys_pp
from nsys_pp.output.chart import picture

FIXTURES = Path(__file__).parents[2] / "fixtures"

pytestmark = pytest.mark.usefixtures("reports_read_once")


def test_a_pipeline_shows_its_chart_and_tables() -> None:
    shown = nsys_pp.pipeline(FIXTURES / "pipeline")._repr_html_()
    svg = shown[: shown.index("</svg>") + len("</svg>")]
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    assert "jobs-forward" in svg
    for heading in ("Stages", "Bubble"):
        assert heading in shown
    assert shown.count("<table>") >= 4


def test_large_runs_have_no_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "_MOST_JOBS", 10)
    assert "<svg" not in nsys_pp.pipeline(FIXTURES / "pipeline")._repr_html_()


def test_a_summary_shows_its_tables() -> None:
    shown = nsys_pp.summarise(FIXTURES / "pipeline")._repr_html_()
    assert "ncclDevKernel_SendRecv" in shown
    assert "more rows" in shown


def test_an_answer_of_a_query_is_a_table() -> None:
    shown = nsys_pp.sql("SELECT kind FROM jobs LIMIT 1", FIXTURES / "pipeline")._repr_html_()
    assert "forward" in shown


def test_a_comparison_shows_its_verdict_and_tables() -> None:
    result = nsys_pp.compare(FIXTURES / "pipeline", FIXTURES / "pipeline")
    shown = result._repr_html_()
    assert result.verdict.lines[0] in shown
    assert "Comparability" in shown
    assert "on a lane, median" in shown
    assert len(repr(result)) < 700
