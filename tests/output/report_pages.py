"""Pages as tests read them: sections, tables, data."""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from functools import cache
from html import unescape
from typing import Any

import numpy as np
import polars as pl

import nsys_pp
from nsys_pp.commands.summary import SUMMARY_TABLES
from nsys_pp.frames.table import FilledTable, fill_tables
from nsys_pp.frames.training import Training
from nsys_pp.output.pages.report import PageSource, TraceLinks, list_tables, write_report
from nsys_pp.tables.analysis import Evidence
from nsys_pp.tables.listings import CLOCK_TABLE, build_clock_table
from nsys_pp.tables.page import build_rank_steps, choose_steps, measure_steps
from nsys_pp.tables.registry import TABLES
from nsys_pp.tables.verdict import build_verdict
from tests.cli.calls import PIPELINE

_TYPES = {"u8": "u1", "i8": "i1", "u16": "<u2", "i16": "<i2", "u32": "<u4", "i32": "<i4", "f64": "<f8"}


def write_page(source: PageSource) -> str:
    stream = io.BytesIO()
    write_report(source, stream)
    return stream.getvalue().decode()


def read_data(page: str) -> dict[str, Any]:
    """Read the data of the page's scripts, by section."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(text)
    return data


def inflate(packed: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def read_heat_map(page: str) -> dict[str, Any]:
    """Read the heat map, its columns as lists with None for absent values."""
    heat: dict[str, Any] = inflate(read_data(page)["steps"]["packed"])
    columns = {}
    for name, column in heat["grid"]["columns"].items():
        values = np.frombuffer(base64.b64decode(column["data"]), _TYPES[column["type"]])
        columns[name] = [None if value == column.get("missing") else value.item() for value in values]
    return {**heat, "columns": columns}


def read_sections(page: str) -> dict[str, str]:
    parts = re.split(r'<section id="([a-z]+)"', page[page.index("<main>") : page.index("</main>")])
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def read_table(page: str, name: str) -> tuple[list[str], list[list[str]]]:
    """Read the headings and the cells of a folded table, the first one of this name."""
    found = re.search(rf'<details class="table" data-table="{name}">(.*?)</details>', page, re.DOTALL)
    assert found is not None, name
    rows = [
        [
            read_text(cell).replace("\u00a0", " ")
            for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        ]
        for row in re.findall(r"<tr>(.*?)</tr>", found[1], re.DOTALL)
    ]
    return rows[0], rows[1:]


def read_text(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


COMMANDS = TraceLinks(is_link=False, head="nsys-pp open run.pftrace --zoom ", middle="ns:", tail="ns")


def make_source(
    training: Training, *, title: str = "a run", trace_links: TraceLinks | None = None
) -> PageSource:
    """Make the source of a page from a training; sums and clocks are those of the fixture."""
    of_training, _ = list_tables()
    frames = {name: TABLES[name].build(training) for name in of_training if name in TABLES}
    clocks, sums = read_sums()
    lengths = measure_steps(Evidence(training))
    return PageSource(
        title=title,
        facts=["simulated"],
        training=training,
        verdict=build_verdict(training),
        tables={filled.table.name: filled for filled in fill_tables(TABLES, frames)} | {"clocks": clocks},
        sums=sums,
        rank_steps=build_rank_steps(Evidence(training)),
        step_lengths=lengths,
        steps=choose_steps(training, lengths),
        lacking=pl.DataFrame({"option": ["--trace=osrt"], "titles": [["OS calls"]], "report_count": [2]}),
        report_count=2,
        notes=training.notes,
        trace_links=trace_links,
        made_by="0.0.0",
    )


@cache
def read_sums() -> tuple[FilledTable, dict[str, FilledTable]]:
    aligned = nsys_pp.align(PIPELINE / "node2")
    summed = nsys_pp.summary(PIPELINE / "node2")
    sums = fill_tables(SUMMARY_TABLES, summed.tables, summed.absent)
    clocks = FilledTable(table=CLOCK_TABLE, frame=build_clock_table(aligned.clocks, aligned.labels))
    return clocks, {filled.table.name: filled for filled in sums}
