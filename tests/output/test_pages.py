"""The page as text: its sections, links into the trace, hostile names, and its size."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from io import BytesIO

import polars as pl
import pytest
from msgspec.structs import replace as change

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.frames.table import AnyTable, fill_tables
from nsys_pp.frames.training import RUN_JOBS
from nsys_pp.frames.verdict import Finding, Verdict
from nsys_pp.output.chart.content import build_bars, select_step
from nsys_pp.output.pages.comparison import ComparisonSource, write_comparison
from nsys_pp.output.pages.report import SECTIONS, TraceLinks, name_rows
from nsys_pp.tables.compare import TABLES, describe_training, sample_training
from nsys_pp.tables.compare_verdict import (
    COMPARABILITY_TABLE,
    Comparison,
    build_comparison_verdict,
    compare_facts,
)
from nsys_pp.viewer import SITE, build_address
from tests.output.large_training import make_large_training
from tests.output.report_pages import (
    COMMANDS,
    inflate,
    make_source,
    read_data,
    read_heat_map,
    read_sections,
    read_text,
    write_page,
)
from tests.training.expected_training import expected_training, simulate_training
from tests.ui.test_chart import NASTY

pytestmark = pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")


LIMIT_BYTES = 10_000_000


def test_sections_are_those_of_the_registry_in_order() -> None:
    page = write_page(make_source(expected_training()))
    assert [*read_sections(page)] == [*SECTIONS]
    assert re.findall(r'<a href="#([a-z]+)">', page[: page.index("<main>")]) == [*SECTIONS]
    assert "://" not in page[: page.index('<script type="application/json"')]


def test_findings_link_to_their_evidence_and_into_the_trace() -> None:
    source = make_source(expected_training(), trace_links=COMMANDS)
    rows = source.rank_steps
    finding = Finding(
        kind="straggler", text="rank 2 computes", confidence="likely", subject="rank", gain_ns=2e6,
        gain_fraction=0.01, label="rank 2", lane=2, since_step=11,
    )  # fmt: skip
    sections = read_sections(write_page(change(source, verdict=Verdict(findings=(finding,)))))
    verdict = sections["verdict"]
    assert 'href="#stragglers-stage-2"' in verdict, "the only rank of its stage"
    assert ' id="stragglers-stage-2"' in sections["stragglers"]
    assert 'href="#steps" data-metric="excess_fraction" data-lane="2" data-step="11"' in verdict
    assert "Likely: rank 2 computes." in read_text(verdict)
    assert "gain 2.000 ms of a mean step (1.0 %)" in read_text(verdict)
    step = rows.filter(lane=2, step=11).row(0, named=True)
    command = f"nsys-pp open run.pftrace --zoom {step['start_ns']}ns:{step['end_ns']}ns --expand 'rank 2\\b'"
    assert command in read_text(verdict)


def test_commands_survive_a_shell_and_addresses_are_those_of_open() -> None:
    row = name_rows(
        pl.DataFrame(
            {"rank": [None], "gpu": ["it's $(x) GPU 0"]}, schema={"rank": pl.Int64, "gpu": pl.String}
        )
    )[0]
    text = COMMANDS.format(5, 9, row).replace("nsys-pp", "printf '%s|'", 1)
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split("|")[:4] == ["open", "run.pftrace", "--zoom", "5ns:9ns"]
    assert done.stdout.split("|")[5] == r"it's \$\(x\) GPU 0"
    address = build_address(SITE, "https://x/a b.pftrace")
    links = TraceLinks(is_link=True, head=f"{address}&visStart=", middle="&visEnd=", tail="")
    assert links.format(5, 9, row) == build_address(SITE, "https://x/a b.pftrace", window_ns=(5, 9))


def test_names_are_text() -> None:
    known = expected_training()
    jobs = known.jobs.with_columns(name=pl.lit(NASTY).cast(RUN_JOBS["name"]), label=pl.lit(NASTY))
    lanes = known.lanes.with_columns(label=pl.lit(NASTY), machine=pl.lit(NASTY), gpu=pl.lit(NASTY))
    finding = Finding(kind="host", text=NASTY, confidence="certain", subject="run", call=NASTY)
    source = change(
        make_source(replace(known, jobs=jobs, lanes=lanes), title=NASTY, trace_links=COMMANDS),
        verdict=Verdict(findings=(finding,)), notes=[NASTY], facts=[NASTY],
    )  # fmt: skip
    page = write_page(source)
    assert "<img" not in page
    assert "alert(1)</script>" not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert "\u202e" not in page


@pytest.mark.slow
def test_a_thousand_ranks_over_many_steps_fit() -> None:
    """The charts of as many are in `tests/ui`."""
    source = make_source(make_large_training(lanes=1024, steps=1, micro_batches=1, per_stage=64))
    many = pl.concat(
        source.rank_steps.with_columns(pl.col("step", "last_step") + step, pl.col("span_ns") + step * step)
        for step in range(200)
    )
    page = write_page(change(source, rank_steps=many.sort("lane", "step"), trace_links=COMMANDS))
    assert len(page.encode()) < LIMIT_BYTES
    assert len(read_heat_map(page)["columns"]["compute_ns"]) == 1024 * 200


def test_a_chart_with_too_many_bars_keeps_the_named_and_the_busiest_ranks() -> None:
    training = make_large_training(lanes=12, steps=2, micro_batches=8, per_stage=4)
    every = select_step(training, 1)
    assert len(every.lanes) == 12
    some = select_step(training, 1, named=[7], most_bars=200)
    assert 1 < len(some.lanes) < 12
    assert 7 in some.lanes["rank"].to_list()
    assert some.lanes["lane"].to_list() == [*range(len(some.lanes))]
    ranks = some.lanes["rank"].implode()
    for name in ("jobs", "lane_states", "steps"):
        original = getattr(every, name).filter(pl.col("lane").is_in(ranks))
        assert getattr(some, name)["start_ns"].sort().equals(original["start_ns"].sort())
    assert set(some.transfers["sender"]) | set(some.transfers["receiver"]) <= set(some.lanes["lane"])
    assert "of 12 ranks are shown" in some.notes[0]
    with pytest.raises(NsysPPError, match=r"nsys-pp chart REPORT\.\.\. --steps 1:2"):
        select_step(training, 1, most_bars=3)


def test_charts_hold_one_step_each() -> None:
    training = expected_training()
    source = make_source(training)
    data = read_data(write_page(source))["charts"]
    assert [*data["pages"]] == [f"chart-{shown.role}" for shown in source.steps]
    for shown in source.steps:
        chart = inflate(data["pages"][f"chart-{shown.role}"])
        assert chart["tables"]["jobs"]["length"] == len(build_bars(training).filter(step=shown.step))
        assert [step["step"] for step in chart["runSteps"]] == [shown.step]


def test_steps_that_last_years_are_drawn() -> None:
    """A clock that was set while it was recorded; a page has exact integers for 104 days."""
    years_ns = 5 * 365 * 86_400 * 10**9
    known = make_large_training(lanes=2, steps=3, micro_batches=1, per_stage=2)
    later = {
        name: getattr(known, name).with_columns(
            pl.col("end_ns") + pl.when(step=1).then(years_ns).when(step=2).then(years_ns).otherwise(0),
            pl.col("start_ns") + pl.when(step=2).then(years_ns).otherwise(0),
        )
        for name in ("steps", "lane_states")
    }
    source = make_source(replace(known, **later))
    page = write_page(source)
    spans = read_heat_map(page)["columns"]["span_ns"]
    assert spans == source.rank_steps["span_ns"].to_list()
    assert [span > years_ns for span in spans] == [False, True, False] * 2
    assert "events are 1,825 days apart" in read_text(read_sections(page)["charts"])


def write_comparison_page(a: str, b: str, *, name: str = "x", rank: str | None = None) -> str:
    trainings = [simulate_training(options) for options in (a, b)]
    samples = [sample_training(training) for training in trainings]
    if rank is not None:
        renamed = pl.col("subject").replace({"rank 5": rank})
        samples = [{**run, "ranks": run["ranks"].with_columns(renamed)} for run in samples]
    facts: tuple[RunFacts, RunFacts] = (describe_training(trainings[0]), describe_training(trainings[1]))
    comparability = compare_facts(*facts)
    tables: dict[str, AnyTable] = {COMPARABILITY_TABLE.name: COMPARABILITY_TABLE, **TABLES}
    comparison = Comparison(facts, (samples[0], samples[1]))
    frames = {COMPARABILITY_TABLE.name: comparability, **comparison.build_tables()}
    source = ComparisonSource(
        title=name,
        names=(name, "b"),
        facts=facts,
        samples=(samples[0], samples[1]),
        verdict=build_comparison_verdict(comparison),
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
    return write_comparison_page("--seed 1", "--slow-rank 5=1.25 --seed 2")


def test_the_page_needs_no_network_and_no_script(page: str) -> None:
    assert "://" not in page
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert len(page) < 200_000


def test_findings_link_to_their_evidence(page: str) -> None:
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r' id="([^"]+)"', page))
    assert re.search(
        r"Likely: rank 5 \(stage 2\) computes 2\d % longer.*?evidence: <a href=\"#ranks-rank-5\">", page
    )
    assert re.search(r"<summary>\d+ rows? without a difference</summary>", page)


def test_gates_say_which_failed(page: str) -> None:
    assert '<span class="failed">failed</span> <code>step&gt;3%</code>' in page
    assert '<span class="passed">passed</span> <code>bubble&gt;5%</code>' in page
