"""Sources of pages: of any training, with the sums of a fixture."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import nsys_pp
from nsys_pp.commands.summarise import SUMMARY_TABLES
from nsys_pp.frames.table import FilledTable, fill_tables
from nsys_pp.frames.training import Training
from nsys_pp.output.pages.report import LackingData, PageSource, TraceLinks, list_tables
from nsys_pp.tables.listings import CLOCK_TABLE, build_clock_table
from nsys_pp.tables.page import build_rank_steps, choose_steps, measure_steps
from nsys_pp.tables.registry import TABLES
from nsys_pp.tables.verdict import build_verdict

PIPELINE = Path(__file__).parents[3] / "fixtures" / "pipeline"
COMMANDS = TraceLinks(is_link=False, head="nsys-pp open run.pftrace --zoom ", middle="ns:", tail="ns")


def make_source(
    training: Training, *, title: str = "a run", trace_links: TraceLinks | None = None
) -> PageSource:
    """Make the source of a page from a training; sums and clocks are those of the fixture."""
    of_training, _ = list_tables()
    frames = {name: TABLES[name].build(training) for name in of_training if name in TABLES}
    clocks, sums = read_sums()
    lengths = measure_steps(training)
    return PageSource(
        title=title,
        facts=["simulated"],
        training=training,
        verdict=build_verdict(training),
        tables={filled.table.name: filled for filled in fill_tables(TABLES, frames)} | {"clocks": clocks},
        sums=sums,
        rank_steps=build_rank_steps(training),
        step_lengths=lengths,
        steps=choose_steps(training, lengths),
        lacking=[LackingData(titles=("OS calls",), option="--trace=osrt", report_count=2)],
        report_count=2,
        notes=training.notes,
        trace_links=trace_links,
        made_by="0.0.0",
    )


@cache
def read_sums() -> tuple[FilledTable, dict[str, FilledTable]]:
    """Read the clocks and sums of two reports."""
    aligned = nsys_pp.align(PIPELINE / "node2")
    summed = nsys_pp.summarise(PIPELINE / "node2")
    sums = fill_tables(SUMMARY_TABLES, summed.tables, summed.absent)
    clocks = FilledTable(table=CLOCK_TABLE, frame=build_clock_table(aligned.clocks, aligned.labels))
    return clocks, {filled.table.name: filled for filled in sums}
