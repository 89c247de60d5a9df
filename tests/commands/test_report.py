"""`nsys_pp.report` of whole runs: numbers of the other commands, parts, real reports, a slow rank."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pytest

import nsys_pp
from fixtures.serving.reports import write_reports
from fixtures.serving.simulate import draw_serving, serve
from fixtures.simulate import main as simulate
from nsys_pp.commands.pipeline import PIPELINE_TABLES
from nsys_pp.commands.summary import SUMMARY_TABLES
from nsys_pp.frames.table import AnyTable, FilledTable, build_table_schema, describe_columns
from nsys_pp.output.pages.page import MOST_ROWS
from nsys_pp.output.pages.report import SECTIONS
from nsys_pp.output.tables.text import arrange_table
from tests.cli.calls import PIPELINE, call
from tests.importer import Importer
from tests.output.report_pages import read_heat_map, read_sections, read_table, read_text
from tests.ui.test_report import open_report

SLOW = "--pp 2 --dp 3 --layers 1 --micro-batches 4 --steps 6 --slow-rank 4=1.4 --slow-since 13 --machines 2 --brief-truth"


@pytest.fixture(scope="module")
def pipeline_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    nsys_pp.report(PIPELINE, path, trace="run.pftrace")
    return path.read_text()


def rebuild(table: AnyTable, rows: list[dict[str, Any]]) -> FilledTable:
    known = describe_columns(table)
    columns = [known[name] for name in (rows[0] if rows else ())]
    return FilledTable(table=table, frame=pl.DataFrame(rows, schema=build_table_schema(columns)))


def assert_equal_tables(page: str, command: str, tables: dict[str, list[dict[str, Any]]]) -> int:
    """Compare the folded tables of a page with tables in JSON; returns their number."""
    of_command = PIPELINE_TABLES if command == "pipeline" else SUMMARY_TABLES
    count = 0
    for name, section in read_sections(page).items():
        for table in getattr(SECTIONS[name], "tables" if command == "pipeline" else "sums"):
            if table not in tables or not tables[table]:
                continue
            # of two tables of one name, the one of the training is first
            part = (
                section if command == "pipeline" else section[section.rindex(f'data-table="{table}"') - 25 :]
            )
            shown = arrange_table(rebuild(of_command[table], tables[table]), limit=MOST_ROWS, is_whole=True)
            headings, cells = read_table(part, table)
            assert headings == [column.heading for column in shown.columns]
            texts = zip(*(column.texts for column in shown.columns), strict=True)
            assert [[cell.strip() for cell in row] for row in cells] == [
                [text.strip() for text in row] for row in texts
            ], table
            count += 1
    return count


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
def test_numbers_are_those_of_the_other_commands(pipeline_page: str) -> None:
    training = json.loads(call("pipeline", PIPELINE, "--format", "json").stdout)["tables"]
    sums = json.loads(call("summary", PIPELINE, "--format", "json").stdout)["tables"]
    assert assert_equal_tables(pipeline_page, "pipeline", training) >= 9
    assert assert_equal_tables(pipeline_page, "summary", sums) >= 5
    lines = [row["line"] for row in training["verdict"]]
    assert all(line in read_text(read_sections(pipeline_page)["verdict"]) for line in lines)


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
def test_the_heat_map_adds_up_to_the_tables(pipeline_page: str) -> None:
    heat = read_heat_map(pipeline_page)
    result = nsys_pp.pipeline(PIPELINE)
    tables = result.tables(["lanes", "steps"])
    count = len(heat["steps"])
    assert [first for first, _ in heat["steps"]] == tables["steps"]["step"].to_list()
    assert [lane["label"] for lane in heat["lanes"]] == tables["lanes"]["label"].to_list()
    for name in ("span_ns", "compute_ns", "bubble_ns"):
        values = heat["columns"][name]
        means = [mean(values[lane * count : (lane + 1) * count]) for lane in range(len(heat["lanes"]))]
        assert means == pytest.approx(tables["lanes"][name].to_list())
    assert heat["lengths"] == tables["steps"]["span_ns"].to_list()
    bubbles = [
        sum(heat["columns"]["bubble_ns"][step::count]) / sum(heat["columns"]["span_ns"][step::count])
        for step in range(count)
    ]
    assert bubbles == pytest.approx(tables["steps"]["bubble_fraction"].to_list())
    training = result.training
    starts = training.steps.sort("lane", "step")["start_ns"] - training.zero_ns
    assert heat["columns"]["start_ns"] == starts.to_list()


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
def test_cells_open_the_trace_at_their_steps(importer: Importer, pipeline_page: str, tmp_path: Path) -> None:
    nsys_pp.merge(PIPELINE, tmp_path / "run.pftrace", detail="jobs")
    slices = importer.query(
        tmp_path / "run.pftrace", "SELECT name, ts, ts + dur FROM slice WHERE name GLOB 'step *'"
    )
    titles = importer.query(None, "SELECT DISTINCT ltrim(name) AS name FROM track WHERE name IS NOT NULL")[
        "name"
    ]
    drawn = {tuple(row) for row in slices.iter_rows()}
    heat = read_heat_map(pipeline_page)
    starts, lengths = heat["columns"]["start_ns"], heat["columns"]["length_ns"]
    for number, (lane, row) in enumerate(zip(heat["lanes"], heat["rows"], strict=True)):
        for at, (step, _) in enumerate(heat["steps"]):
            cell = number * len(heat["steps"]) + at
            assert (f"step {step}", starts[cell], starts[cell] + lengths[cell]) in drawn
        (pattern,) = shlex.split(row)
        expanded = [title for title in titles if re.search(pattern, title)]
        assert expanded
        assert all(title.startswith(f"{lane['label']} ") for title in expanded)


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
def test_a_slow_rank_is_in_verdict_heat_map_and_bars(tmp_path: Path) -> None:
    simulate([str(tmp_path / "run"), *SLOW.split()])
    page = tmp_path / "report.html"
    result = nsys_pp.report(tmp_path / "run", page, trace="https://example.org/run.pftrace")
    (finding, *_) = result.verdict.findings
    assert (finding.kind, finding.label, finding.since_step) == ("straggler", "rank 4", 13)
    assert repr(result).split("\n")[1:] == result.verdict.lines[:4], "below the counts"
    heat, count = read_heat_map(page.read_text()), 6
    assert heat["first"] == "excess_fraction"
    (named,) = heat["named"]
    assert heat["lanes"][named["lane"]]["label"] == "rank 4"
    rows = [heat["columns"]["excess_fraction"][lane * count : (lane + 1) * count] for lane in range(6)]
    slow = rows.pop(named["lane"])
    assert min(slow[3:]) > 300_000 > 100_000 > max(slow[:3] + [value for row in rows for value in row])
    sections = read_sections(page.read_text())
    assert 'class="row marked" id="stragglers-rank-4"><span class="label"' in sections["stragglers"]
    assert "slow since step 13" in sections["stragglers"]
    assert "visStart=" in sections["verdict"]
    found = open_report(page, [["evaluate", f"nsysReport.value('excess_fraction', {named['lane']}, 4)"]])
    assert found.values == [pytest.approx(0.4, abs=0.05)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
def test_parts_give_the_page_of_their_reports(tmp_path: Path, pipeline_page: str) -> None:
    nsys_pp.extract(PIPELINE, tmp_path / "parts")
    nsys_pp.report(tmp_path / "parts", tmp_path / "report.html", trace="run.pftrace")
    assert (tmp_path / "report.html").read_text() == pipeline_page


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
def test_serving_has_its_iterations(tmp_path: Path) -> None:
    serving = draw_serving(13, engine="vllm", count=4)
    write_reports(tmp_path / "run", serving, serve(serving, 13))
    result = nsys_pp.report(tmp_path / "run", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert [*read_sections(page)] == [*SECTIONS]
    assert 'data-table="iterations"' in read_sections(page)["steps"]
    assert 'data-table="iteration_families"' in read_sections(page)["kernels"]
    assert {"communication", "memory"} == {*result.empty}
    open_report(tmp_path / "report.html", [])
