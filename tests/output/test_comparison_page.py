from __future__ import annotations

import re
from io import BytesIO

import polars as pl
import pytest

from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.frames.table import AnyTable, fill_tables
from nsys_pp.output.pages.comparison import ComparisonSource, write_comparison
from nsys_pp.tables.compare import TABLES, compare_samples, describe_training, sample_training
from nsys_pp.tables.compare_verdict import COMPARABILITY_TABLE, build_comparison_verdict, compare_facts
from tests.training.expected_training import simulate_training

HOSTILE = '<script>alert(1)</script>"\x1b[2J'


def write(a: str, b: str, *, name: str = "x", rank: str | None = None) -> str:
    trainings = [simulate_training(options) for options in (a, b)]
    samples = [sample_training(training) for training in trainings]
    if rank is not None:
        renamed = pl.col("subject").replace({"rank 5": rank})
        samples = [{**run, "ranks": run["ranks"].with_columns(renamed)} for run in samples]
    facts: tuple[RunFacts, RunFacts] = (describe_training(trainings[0]), describe_training(trainings[1]))
    comparability = compare_facts(*facts)
    tables: dict[str, AnyTable] = {COMPARABILITY_TABLE.name: COMPARABILITY_TABLE, **TABLES}
    frames = {COMPARABILITY_TABLE.name: comparability, **compare_samples(*samples)}
    source = ComparisonSource(
        title=name,
        names=(name, "b"),
        facts=facts,
        samples=(samples[0], samples[1]),
        verdict=build_comparison_verdict(facts, (samples[0], samples[1])),
        comparability="the runs are alike",
        tables={filled.table.name: filled for filled in fill_tables(tables, frames)},
        failures=["`step>3%`: step went from 1 ms to 2 ms"],
        gates=["step>3%", "bubble>5%"],
        notes=[f"A: {name}"],
        made_by="1",
    )
    stream = BytesIO()
    write_comparison(source, stream)
    return stream.getvalue().decode()


@pytest.fixture(scope="module")
def page() -> str:
    return write("--seed 1", "--slow-rank 5=1.25 --seed 2")


def test_the_page_needs_no_network_and_no_script(page: str) -> None:
    assert "://" not in page
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert len(page) < 200_000


def test_findings_link_to_their_evidence(page: str) -> None:
    sections = set(re.findall(r'<section id="([a-z]+)"', page))
    assert set(re.findall(r'href="#([a-z]+)"', page)) == sections
    assert re.search(r"Rank 5 \(stage 2\) computes 2\d % longer.*?evidence: <a href=\"#ranks\">", page)


def test_plots_are_named_for_those_who_do_not_see_them(page: str) -> None:
    plots = re.findall(r"<svg [^>]*>", page)
    assert len(plots) > 10
    assert all('role="img" aria-label="' in plot or 'aria-hidden="true"' in plot for plot in plots)
    assert page.count("<circle") == 8, "a point for each step of both runs"
    assert "7 of 8 ranks within noise" in page


def test_gates_say_which_failed(page: str) -> None:
    assert '<span class="failed">failed</span> <code>step&gt;3%</code>' in page
    assert '<span class="passed">passed</span> <code>bubble&gt;5%</code>' in page


def test_names_are_text() -> None:
    page = write("--seed 1", "--slow-rank 5=1.25 --seed 2", name=HOSTILE, rank=HOSTILE)
    assert "<script" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;" in page


def test_a_run_of_one_step_has_a_page() -> None:
    assert "single step" in write("--seed 1", "--seed 2 --steps 1")
