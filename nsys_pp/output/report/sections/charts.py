"""Charts of a typical step and of the longest one: pages of `nsys_pp.output.chart`, each in a frame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.util import find_spec

import polars as pl

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.table import ShownStep
from nsys_pp.output.chart.content import TooManyBarsError, select_step
from nsys_pp.output.chart.page import describe_page, embed_json, split_page
from nsys_pp.output.report.fragments import format_text, format_trace_link, pack_text
from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import PageSource
from nsys_pp.units import format_duration

_ROLES = {"typical": "the typical step", "worst": "the longest step"}
_LEAST_PX, _MOST_PX, _LANE_PX, _AROUND_PX = 300, 760, 40, 190
_MOST_UNFOLDED = 32


def _draw(source: PageSource) -> Drawn:
    if not source.steps:
        return Drawn(absent="No step was found: no kernel ran in one.")
    if find_spec("bokeh") is None:
        return Drawn(
            absent="No charts: the library that draws them is not installed; `pip install 'nsys-pp[chart]'`, and write the page again."
        )
    named = [finding.lane for finding in source.verdict.findings if finding.lane is not None]
    figures, packed = [], {}
    for shown in source.steps:
        title = _title(source, shown)
        place = format_trace_link(
            source.trace_links, shown.start_ns, shown.end_ns, text=f"step {shown.step} in the trace"
        )
        try:
            training = select_step(source.training, shown.step, named=named)
            unfolded = _list_unfolded(source.training.lanes, named)
            page = describe_page(training, title=title, unfolded=unfolded)
            packed[f"chart-{shown.role}"] = pack_text(embed_json(page))
        except (NsysPPError, TooManyBarsError) as refused:
            figures.append(
                f'<h3>{escape(title)}</h3><p class="absent">{format_text(str(refused))}</p>{place}'
            )
            continue
        height = min(max(_LANE_PX * len(training.lanes) + _AROUND_PX, _LEAST_PX), _MOST_PX)
        figures.append(
            f'<figure class="chart"><div class="holder"><iframe id="chart-{shown.role}" title="{escape(title)}" style="height:{height}px">'
            f'</iframe><p class="drawing">Drawing {escape(title)} …</p></div>{place}</figure>'
        )
    data = {"shell": pack_text(json.dumps(split_page("chart"))), "pages": packed} if packed else {}
    return Drawn(html="".join(figures), data=data)


def _title(source: PageSource, shown: ShownStep) -> str:
    length = format_duration(round(shown.span_ns))
    if len(source.steps) == 1:
        return f"Step {shown.step}: {length}"
    return f"Step {shown.step}, {_ROLES[shown.role]}: {length}"


def _list_unfolded(lanes: pl.DataFrame, named: Sequence[int]) -> list[int]:
    """List the stages of lanes that the verdict names, if they are small enough to be shown with all ranks."""
    small = lanes.drop_nulls("stage").filter(pl.len().over("stage") <= _MOST_UNFOLDED)
    stages: list[int] = small.filter(pl.col("lane").is_in([*named]))["stage"].unique().sort().to_list()
    return stages


SECTION = Section(
    name="charts",
    title="A typical step, and the longest one",
    lead="Jobs, messages and bubbles of each rank, in the step of median length and in the longest one of the complete steps. "
    "Drag to move, Ctrl + wheel to zoom.",
    kinds=("step",),
    draw=_draw,
)
