"""The page of a run: the verdict, and its evidence in charts, a heat map, bars and tables."""

from __future__ import annotations

import base64
import json
import re
import shlex
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, BinaryIO

import polars as pl
from msgspec import Struct

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.table import FilledTable, ShownStep
from nsys_pp.frames.training import BUBBLE_CAUSES, HOST_CAUSES, Training
from nsys_pp.frames.verdict import MOST_LINES, Finding, Verdict
from nsys_pp.output.chart.content import list_named_lanes, select_step
from nsys_pp.output.chart.page import describe_page, embed_json, pack_table, round_exact, split_page
from nsys_pp.output.colors import color_of
from nsys_pp.output.pages.page import (
    LEAST_SCALE,
    MANY,
    Bar,
    Drawn,
    Piece,
    Section,
    build_step_bar,
    color_part,
    draw_rows,
    format_change,
    format_finding,
    format_grid,
    format_notes,
    format_share,
    format_text,
    name_part,
    name_row,
    write_page,
)
from nsys_pp.units import NS_PER_S, format_bytes, format_count, format_duration

_SPECIAL = re.compile(r"([\\.^$*+?()\[\]{}|])")
_FEW = 12  # most bars of kinds that are each a line of a table
_PARTS_PER_UNIT = 1_000_000  # of a fraction, in the page's data
_TIMES = ("span_ns", "compute_ns", "bubble_ns", "wait_ns", "late_ns")
_METRICS = (  # name, title, color, mask of the cells to show, meaning
    (
        "excess_fraction",
        "own time against the peers",
        "send",
        pl.col("excess_fraction").is_not_null(),
        "own compute per micro-batch (per step without jobs), waiting not counted, relative to the median of"
        " the other ranks of the stage (of all other ranks where a stage has one)",
    ),
    (
        "compute_ns",
        "compute",
        "forward",
        pl.col("compute_ns").is_not_null(),
        "time of kernels other than communication",
    ),
    (
        "bubble_fraction",
        "bubble",
        "bubble",
        pl.col("bubble_ns").is_not_null(),
        "share of the step without compute",
    ),
    (
        "wait_ns",
        "communication",
        "message_wait",
        pl.col("wait_ns") != 0,
        "bubble for messages and collectives: waiting and transfers",
    ),
    (
        "late_ns",
        "late launches and data",
        "data",
        pl.col("late_ns") != 0,
        "bubble for late launches of the host, and loading of data",
    ),
    ("span_ns", "step length", "step", pl.col("span_ns").is_not_null(), "length of the rank's step"),
)
_METRIC_OF = {  # kind of finding -> value that shows it
    "straggler": "excess_fraction",
    "host": "late_ns",
    "profiler": "late_ns",
    "idle": "late_ns",
    "link": "wait_ns",
    "communication": "wait_ns",
    "gpu_clock": "compute_ns",
    "step": "span_ns",
}
_CANVAS = (
    '<div class="heat"><div class="controls" role="group" aria-label="Heat map"><label>Show <select'
    ' id="heat-metric"></select></label>'
    '<label>Order <select id="heat-order"><option value="stage">by stage and rank</option>'
    '<option value="value">by largest value</option></select></label><span id="heat-scale"></span></div>'
    '<p id="heat-meaning" class="muted"></p>'
    '<div id="heat-holder"><canvas id="heat" tabindex="0" role="img" aria-describedby="heat-meaning">'
    "</canvas></div>"
    '<p id="heat-read" role="status" aria-live="polite">Point at a cell, or use the arrow keys; Enter or a'
    " click keeps it, Escape leaves"
    ' it.</p><p id="heat-place"></p></div>'
)


_CONFIDENCE = {
    "certain": "certain: measured, or twice the excess that noise explains, in three steps and twelve"
    " samples or more",
    "likely": "likely: beyond noise",
    "guess": "guess: depends on inferred jobs, unknown stages, or an effect that is not recorded",
}
_UNPLACED = (
    "clocks",
    "missing",
    "losses",
    "requests",
    "none",
)  # kinds of findings without a place in the trace
_ROLES = {"typical": "the typical step", "worst": "the longest step"}
_MOST_UNFOLDED = 32
_LEAST_EXCESS = 0.05  # of a link that is shown although it is not slow
_PEERS = {
    "rank": "Ranks: median own compute per micro-batch (per step without jobs)",
    "stage": "Stages: median own compute per micro-batch (per step without jobs)",
    "link": "Links: median transfer of a message",
}


class TraceLinks(Struct, frozen=True, kw_only=True):
    """Texts that open a trace at a time.

    A text is head, start, middle, end, tail, with times in ns since the start of the run.

    Attributes:
        is_link: The text is the address of a link; otherwise it is a command.
        head: Text before the start.
        middle: Text between the times.
        tail: Text after the end.
    """

    is_link: bool
    head: str
    middle: str
    tail: str

    def format(self, start_ns: int, end_ns: int, row: str | None = None) -> str:
        """Format the text that opens the trace.

        Args:
            start_ns: Start of the time to show.
            end_ns: Its end.
            row: Argument of the command that expands rows (`name_rows`); links expand none.
        """
        text = f"{self.head}{max(start_ns, 0)}{self.middle}{max(end_ns, 1)}{self.tail}"
        return text if self.is_link or row is None else f"{text} --expand {row}"


class PageSource(Struct, frozen=True, kw_only=True):
    """Results of an analysis, as the sections of a page use them.

    Attributes:
        title: Heading of the page.
        facts: Short phrases about the run.
        training: The training.
        verdict: Its findings.
        tables: Tables of the training by name (`nsys-pp pipeline`), and "clocks" (`nsys-pp align`).
        sums: Tables of the summary by name (`nsys-pp summary`).
        rank_steps: `RANK_STEPS`.
        step_lengths: `STEP_LENGTHS`.
        steps: Steps whose charts are shown.
        lacking: Kinds of data that reports lack, one row per option of `nsys profile` that records them:
            option, titles (names of the kinds), report_count (reports that lack any of them).
        report_count: Number of reports.
        notes: Sentences on inferred, refused and doubtful results.
        trace_links: Texts that open the trace of the run; None: no trace was named.
        made_by: Version of nsys-pp.
    """

    title: str
    facts: Sequence[str]
    training: Training
    verdict: Verdict
    tables: Mapping[str, FilledTable]
    sums: Mapping[str, FilledTable]
    rank_steps: pl.DataFrame
    step_lengths: pl.DataFrame
    steps: Sequence[ShownStep]
    lacking: pl.DataFrame
    report_count: int
    notes: Sequence[str]
    trace_links: TraceLinks | None
    made_by: str


def name_rows(lanes: pl.DataFrame) -> list[str]:
    r"""Return the argument of `nsys-pp open --expand` that expands the rows of each lane, quoted for a shell.

    >>> name_rows(pl.DataFrame({"rank": [3, None], "gpu": ["GPU 0", "GPU 1"]}))
    ["'rank 3\\b'", "'GPU 1'"]
    """
    patterns = [
        _SPECIAL.sub(r"\\\1", gpu or "") if rank is None else rf"rank {rank}\b"
        for rank, gpu in lanes.select("rank", "gpu").iter_rows()
    ]
    return [shlex.quote(pattern) for pattern in patterns]


def list_tables() -> tuple[list[str], list[str]]:
    """List the tables of the training and of the summary that the sections need, by name, each once."""
    of_training = dict.fromkeys(name for section in SECTIONS.values() for name in section.tables)
    of_summary = dict.fromkeys(name for section in SECTIONS.values() for name in section.sums)
    return list(of_training), list(of_summary)


def write_report(source: PageSource, output: BinaryIO) -> dict[str, str]:
    """Write the page of a run.

    Args:
        source: Results of the analysis.
        output: A binary stream.

    Returns:
        The reason why a section is empty, by the name of the section; "" for others.
    """
    tables = {
        name: [
            *(source.tables[table] for table in section.tables if table in source.tables),
            *(source.sums[table] for table in section.sums if table in source.sums),
        ]
        for name, section in SECTIONS.items()
    }
    numbers = "the numbers are those of `nsys-pp pipeline`, `nsys-pp summary` and `nsys-pp align`."
    hint = " `--trace run.pftrace` adds commands that open the trace of `nsys-pp merge` at each place."
    return write_page(
        output,
        [*SECTIONS.values()],
        source,
        tables,
        title=source.title,
        facts=source.facts,
        foot=f"Written by nsys-pp {source.made_by}; {numbers}{'' if source.trace_links else hint}",
        scripts=("page", "heat_data", "heat", "charts", "main"),
    )


def _draw_verdict(source: PageSource, drawn: Mapping[str, Drawn]) -> Drawn:
    """Draw the findings, each with links to its evidence and to its time in the trace."""
    if not source.verdict.findings:
        return Drawn(absent="No finding: the reports have no GPU operations.")
    items = [
        format_finding(
            finding,
            SECTIONS.values(),
            drawn,
            _CONFIDENCE,
            objects=_name_objects(source, finding),
            cell=_format_cell(finding),
            gain="gain ",
            place=_format_finding_link(source, finding),
        )
        for finding in source.verdict.findings
    ]
    return Drawn(html=f'<ol class="findings">{"".join(items)}</ol>{format_notes(source.notes)}')


def _name_objects(source: PageSource, finding: Finding) -> list[str]:
    """Name what shows a finding, the best one first: its object in its step, its object, its stage."""
    names = [] if finding.label is None else [finding.label]
    if finding.lane is not None:
        label, stage = source.training.lanes.filter(lane=finding.lane).select("label", "stage").row(0)
        names += [label, f"stage {stage}"]
    return [*(f"{name} step {finding.step}" for name in names if finding.step is not None), *names]


def _format_cell(finding: Finding) -> str:
    """Format the attributes of a link to the heat map: the value to show, and the rank and step if known."""
    if finding.kind not in _METRIC_OF:
        return ""
    step = finding.step if finding.step is not None else finding.since_step
    known = {"metric": _METRIC_OF[finding.kind], "lane": finding.lane, "step": step}
    return "".join(f' data-{name}="{value}"' for name, value in known.items() if value is not None)


def _format_finding_link(source: PageSource, finding: Finding) -> str:
    """Format the place of a finding in the trace.

    The place is its step (or the first one, or the longest one), on its rank.
    """
    if finding.kind in _UNPLACED:
        return ""
    step = finding.step if finding.step is not None else finding.since_step
    if step is None and source.steps:
        step = source.steps[-1].step
    rows = source.rank_steps.filter(pl.col("step") <= step, pl.col("last_step") >= step)
    row = None
    if finding.lane is not None:
        rows = rows.filter(lane=finding.lane)
        row = name_rows(source.training.lanes.filter(lane=finding.lane))[0]
    if rows.is_empty():
        return ""
    start, end = rows.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return _format_trace_link(source.trace_links, start, end, text=f"step {step} in the trace", row=row)


def _format_trace_link(
    trace_links: TraceLinks | None, start_ns: int, end_ns: int, *, text: str, row: str | None = None
) -> str:
    """Format a link into the trace, or the command that opens it; "" without a trace."""
    if trace_links is None:
        return ""
    target = trace_links.format(start_ns, end_ns, row)
    if trace_links.is_link:
        return f'<a class="place" href="{escape(target)}" rel="noreferrer">{escape(text)}</a>'
    return (
        f'<span class="place">{escape(text)}: <code>{escape(target)}</code>'
        '<button type="button" class="copy">Copy</button></span>'
    )


def _draw_charts(source: PageSource) -> Drawn:
    """Draw a typical step and the longest one: pages of `nsys_pp.output.chart`, each in a frame."""
    if not source.steps:
        return Drawn(absent="No step was found: no kernel ran in one.")
    named = list_named_lanes(source.training.lanes, source.verdict.findings)
    unfolded = (
        source.training.lanes.drop_nulls("stage")
        .filter(pl.len().over("stage") <= _MOST_UNFOLDED)
        .filter(pl.col("lane").is_in([*named]))["stage"]
        .unique()
        .sort()
        .to_list()
    )
    figures, packed = [], {}
    for shown in source.steps:
        role = f", {_ROLES[shown.role]}" if len(source.steps) > 1 else ""
        title = escape(f"Step {shown.step}{role}: {format_duration(round(shown.span_ns))}")
        place = _format_trace_link(
            source.trace_links, shown.start_ns, shown.end_ns, text=f"step {shown.step} in the trace"
        )
        try:
            training = select_step(source.training, shown.step, named=named)
            page = describe_page(training, title=title, verdict=source.verdict, unfolded=unfolded)
            packed[f"chart-{shown.role}"] = _pack_text(embed_json(page))
        except NsysPPError as refused:
            figures.append(f'<h3>{title}</h3><p class="absent">{format_text(str(refused))}</p>{place}')
            continue
        figures.append(
            '<figure class="chart"><div class="holder">'
            f'<iframe id="chart-{shown.role}" title="{title}" style="--lanes:{len(training.lanes)}"></iframe>'
            f'<p class="drawing">Drawing {title} …</p></div>{place}</figure>'
        )
    return Drawn(
        html="".join(figures),
        data={"shell": _pack_text(json.dumps(split_page("chart"))), "pages": packed} if packed else {},
    )


def _draw_steps(source: PageSource) -> Drawn:
    frame = source.rank_steps
    if frame.is_empty():
        return Drawn(absent="No step was found: no kernel ran in one.")
    if len(frame) == 1:
        return Drawn(
            absent="One rank and one step: nothing develops over time. Steps come from ranges, jobs, or"
            " launches that"
            " repeat; `nsys_pp.capture` marks them in a program."
        )
    return Drawn(html=_CANVAS, data={"packed": _pack_text(embed_json(describe_heat_map(source)))})


def _pack_text(text: str) -> str:
    """Deflate a text, in base64, for `unpack` of `page.js`."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode("ascii")


def describe_heat_map(source: PageSource) -> dict[str, Any]:
    """Describe the data of the heat map: a dense grid, by lane and step, in which null is an absent step."""
    frame, lanes = source.rank_steps, source.training.lanes
    steps = frame.select("step", "last_step").unique().sort("step")
    grid = (
        lanes.select("lane")
        .join(steps.select("step"), how="cross")
        .join(frame, on=["lane", "step"], how="left", maintain_order="left")
    )
    metrics = [metric for metric in _METRICS if len(frame.filter(metric[3]))]
    names = [name for name, *_ in metrics]
    # the metric of a finding on ranks before one of the run, which shows less of them
    ranked = sorted(source.verdict.findings, key=lambda finding: finding.subject == "run")
    of_findings = [_METRIC_OF.get(finding.kind, "") for finding in ranked]
    columns = grid.select(
        *(round_exact(grid[name]) for name in _TIMES),
        pl.col("start_ns").cast(pl.Float64),
        (pl.col("excess_fraction") * _PARTS_PER_UNIT).round().cast(pl.Int64),
        "is_complete",
        length_ns=(pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64),
    )
    return {
        "lanes": lanes.select("label", "stage", "machine").to_dicts(),
        "rows": name_rows(lanes),
        "steps": steps.rows(),
        # of each step, or the mean of each block of steps; None for steps that the capture cuts
        "lengths": steps.join_where(
            source.step_lengths.rename({"step": "number"}),
            pl.col("number") >= pl.col("step"),
            pl.col("number") <= pl.col("last_step"),
        )
        .group_by("step")
        .agg(pl.col("span_ns").mean())
        .join(steps, on="step", how="right")
        .sort("step")["span_ns"]
        .to_list(),
        "grid": pack_table(columns),
        "metrics": [
            {"name": name, "title": title, "color": color_of(color), "meaning": meaning}
            for name, title, color, _, meaning in metrics
        ],
        "first": next(filter({*names}.__contains__, of_findings), names[0]),
        "cool": color_of("forward"),
        "named": [
            {"lane": lane, "since": finding.since_step, "step": finding.step}
            for finding in source.verdict.findings
            for lane in list_named_lanes(lanes, [finding])
        ],
        "shown": {shown.role: shown.step for shown in source.steps},
        "traceLinks": None
        if source.trace_links is None
        else {
            "isLink": source.trace_links.is_link,
            "parts": [source.trace_links.head, source.trace_links.middle, source.trace_links.tail],
        },
    }


def _draw_bubbles(source: PageSource) -> Drawn:
    noun, frame, lanes = "stage", source.tables["stages"].frame, source.tables["lanes"].frame
    if frame["stage"].null_count() == len(frame):
        noun, frame = "rank", lanes
    else:
        frame = frame.with_columns(label=pl.format("stage {}", "stage").fill_null("unknown stage"))
    if frame.is_empty():
        return Drawn(absent="No complete step was found, so there are no bubbles to explain.")
    whose = "all ranks, and of " if len(lanes) > 1 else ""
    if whose:
        frame = pl.concat([_average(lanes), frame], how="diagonal_relaxed")
    shown = frame.head(MANY)
    parts = [part for part in ("compute", "pause", *BUBBLE_CAUSES) if (shown[f"{part}_ns"] != 0).any()]

    def build(row: dict[str, Any]) -> Bar:
        text = f"bubble {format_duration(round(row['bubble_ns']))}"
        if row["bubble_fraction"] is not None:
            text += f" ({format_share(row['bubble_fraction'])})"
        if row["ideal_bubble_fraction"] is not None:
            text += f", ideal {format_share(row['ideal_bubble_fraction'])}"
        times = {part: row[f"{part}_ns"] for part in parts}
        return build_step_bar(row["label"], times, text, row=name_row("bubbles", row["label"]))

    return Drawn(
        html=draw_rows(
            frame,
            build,
            caption=f"A mean step of {whose}each {noun}: compute, and the bubble by cause{{of}}",
            most=MANY,
            legend={color_part(part): name_part(part) for part in parts if part != "pause"},
        )
    )


def _average(lanes: pl.DataFrame) -> pl.DataFrame:
    count = pl.col("step_count")
    means = pl.col("^.*_ns$", "ideal_bubble_fraction")
    return lanes.select(
        ((means * count).sum() / pl.when(means.is_not_null()).then(count).sum()).fill_nan(None),
        label=pl.lit("all ranks"),
    ).with_columns(bubble_fraction=pl.col("bubble_ns") / pl.col("span_ns"))


def _draw_stragglers(source: PageSource) -> Drawn:
    frame = source.tables["stragglers"].frame
    if frame.is_empty():
        return Drawn(
            absent="Nothing to compare: there is a single rank and stage, or no range is known to be a"
            " forward or a"
            " backward (`nsys-pp pipeline --explain-jobs`)."
        )
    drawn = []
    least = max(LEAST_SCALE, *frame["excess_fraction"].drop_nulls())  # one scale for all kinds
    for kind, what in _PEERS.items():
        rows = frame.filter(what=kind).sort("excess_fraction", descending=True, nulls_last=True)
        if kind != "link" or (rows["is_slow"] | (rows["excess_fraction"] >= _LEAST_EXCESS)).any():
            drawn.append(
                draw_rows(
                    rows,
                    lambda row: _draw_straggler(source, row),
                    caption=f"{what}, relative to the peers{{of}}",
                    most=_FEW,
                    order="slowest",
                    least=least,
                )
            )
    return Drawn(html="".join(drawn))


def _draw_straggler(source: PageSource, row: dict[str, Any]) -> Bar:
    """Draw a rank, stage or link; the table compares all steps, the verdict also those since a change."""
    excess, findings = row["excess_fraction"] or 0.0, source.verdict.findings
    finding = next((one for one in findings if _names_straggler(source, one, row)), None)
    text = format_change(excess, row["noise_fraction"])
    if finding is not None:
        text += ", slow"
    elif row["is_slow"]:
        text += ", beyond noise" + "; a step gains too little for a finding" * (len(findings) < MOST_LINES)
    if row["what"] == "link":
        value, usual = (format_duration(round(row[name])) for name in ("value_ns", "usual_ns"))
        text = f"{value} instead of {usual}, {text}"
    if finding is not None and finding.since_step is not None:
        text += f" since step {finding.since_step}"
    return Bar(
        label=row["label"],
        pieces=(Piece(key="" if finding is None else "bubble", value=excess, text=text),),
        text=text,
        is_marked=finding is not None,
        row=name_row("stragglers", row["label"]),
    )


def _names_straggler(source: PageSource, finding: Finding, row: Mapping[str, Any]) -> bool:
    # or the machine of its rank
    if finding.kind not in ("straggler", "link"):
        return False
    lanes = source.training.lanes
    of_machine = finding.subject == "machine" and row["what"] == "rank"
    is_inside = of_machine and row["label"] in lanes.filter(machine=finding.label)["label"]
    return is_inside or (finding.subject, finding.label) == (row["what"], row["label"])


def _draw_communication(source: PageSource) -> Drawn:
    filled = source.sums["communication"]
    if filled.frame.is_empty():
        return Drawn(absent=f"No communication between GPUs: {filled.absence or 'no kernel of NCCL ran'}.")

    def build(row: dict[str, Any]) -> Bar:
        size = "" if row["size_bytes"] is None else f", {format_bytes(row['size_bytes'])}"
        ranks = "" if row["rank_count"] is None else f", {format_count(row['rank_count'], 'rank')}"
        text = f"{format_duration(round(row['total_ns']))} in {format_count(row['count'], 'kernel')}"
        return Bar(
            label=f"{row['call']}{size}{ranks}",
            pieces=(Piece(key="communication", value=row["total_ns"], text=text),),
            text=text,
        )

    return Drawn(
        html=draw_rows(
            filled.frame,
            build,
            caption="Time of communication kernels, summed over ranks, by call and size{of}; waiting for late"
            " ranks included",
            most=_FEW,
        )
    )


def _draw_kernels(source: PageSource) -> Drawn:
    filled = source.sums["families"]
    families = filled.frame.filter(~pl.col("name").str.starts_with(" "))  # indented rows are their kernels
    if families.is_empty():
        return Drawn(absent=f"No GPU operations: {filled.why_empty}.")

    def build(row: dict[str, Any]) -> Bar:
        share = "" if row["fraction"] is None else f" ({format_share(row['fraction'])})"
        text = f"{format_duration(round(row['total_ns']))}{share}"
        spoken = f"{text}, {format_count(row['count'], 'operation')}"
        color = "communication" if row["name"] == "communication" else "forward"
        return Bar(
            label=row["name"],
            pieces=(Piece(key=color, value=row["total_ns"], text=spoken),),
            text=text,
            row=name_row("kernels", row["name"]),
        )

    return Drawn(
        html=draw_rows(
            families, build, caption="Time of GPU operations by family, summed over ranks{of}", most=_FEW
        )
    )


def _draw_host(source: PageSource) -> Drawn:
    """Draw the longest gaps that the host or loading data causes, with the activity in them."""
    frame = source.tables["gaps"].frame
    if frame.is_empty():
        return Drawn(absent="No gap between kernels was found.")
    by_host = frame.filter(pl.col("cause").cast(pl.String).is_in(HOST_CAUSES))
    rows = by_host.top_k(_FEW, by=pl.col("length_ns") * pl.col("cause_fraction"))
    if rows.is_empty():
        return Drawn(
            absent="None of the longest gaps is caused by the host or by loading data; the table has all of"
            " them."
        )
    has_lanes = len(source.training.lanes) > 1
    rows = rows.with_columns(is_longest=pl.struct("lane", "step").is_first_distinct())  # they descend

    def build(row: dict[str, Any]) -> Bar:
        calls = [f"in {row[kind]}" for kind in ("os_call", "call", "range") if row[kind] is not None]
        length, part = row["length_ns"], round(row["length_ns"] * row["cause_fraction"])
        step = [] if row["step"] is None else [f"step {row['step']}"]
        where = [*step, f"at {row['start_ns'] / NS_PER_S:.3f} s"]
        text = f"{name_part(row['cause'])} {format_duration(part)}"
        if part < length:
            text += f" of {format_duration(length)}"
        return Bar(
            label=", ".join([row["lane"], *where] if has_lanes else where),
            pieces=(
                Piece(key=row["cause"], value=part, text=", ".join([text, *calls])),
                Piece(key="idle", value=length - part, text=f"other {format_duration(length - part)}"),
            ),
            text=", ".join([text, *calls[:1]]),
            row=name_row("host", row["lane"], *step) if row["is_longest"] else "",
        )

    return Drawn(
        html=draw_rows(
            rows,
            build,
            caption="The gaps between kernels of which the host or loading data causes most",
            most=_FEW,
            legend={
                **{cause: name_part(cause) for cause in rows["cause"].unique(maintain_order=True)},
                "idle": "other causes",
            },
        )
    )


def _draw_memory(source: PageSource) -> Drawn:
    filled = source.sums["memory"]
    if filled.frame.is_empty():
        return Drawn(absent=f"Use of memory: {filled.why_empty}.")
    kinds = filled.frame.filter(~pl.col("name").str.starts_with(" "), pl.col("peak_bytes") > 0)

    def build(row: dict[str, Any]) -> Bar:
        size = format_bytes(row["peak_bytes"])
        return Bar(
            label=row["kind"] or "unknown",
            pieces=(Piece(key="copy", value=row["peak_bytes"], text=size),),
            text=size,
        )

    return Drawn(
        html=draw_rows(kinds, build, caption="Most memory in use on a single GPU, by kind", most=_FEW)
    )


def _draw_clocks(source: PageSource) -> Drawn:
    frame = source.tables["clocks"].frame
    if len(frame) < 2:
        return Drawn(absent="There is a single clock: nothing to align.")

    def build(row: dict[str, Any]) -> Bar:
        bound = row["bound_ns"]
        text = "unknown" if bound is None else format_duration(bound)
        return Bar(
            label=f"{row['machine']}, {row['report']}",
            pieces=() if bound is None else (Piece(key="step", value=bound, text=f"error at most {text}"),),
            text=text,
            row=name_row("clocks", row["report"]),
        )

    return Drawn(
        html=draw_rows(
            frame.sort("bound_ns", descending=True, nulls_last=False),
            build,
            caption="Bound of the error of each clock against the others{of}",
            most=MANY,
            order="largest",
        )
    )


def _draw_missing(source: PageSource) -> Drawn:
    """Draw the kinds of data that were not recorded, with the options that record them."""
    if source.lacking.is_empty():
        return Drawn(absent="All known kinds of data were recorded.")
    of = format_count(source.report_count, "report")
    rows = [
        (
            escape(", ".join(titles)),
            f"<code>{escape(option)}</code>",
            "all" if report_count == source.report_count else f"{report_count:,} of {of}",
        )
        for titles, option, report_count in source.lacking.select("titles", "option", "report_count").rows()
    ]
    return Drawn(html=format_grid(("Not recorded", "Option of <code>nsys profile</code>", "Reports"), rows))


# Sections by name, in order.
SECTIONS: Mapping[str, Section] = {
    section.name: section
    for section in (
        Section(
            name="verdict",
            title="Verdict",
            lead="Findings by the time of a mean step that could be gained, then what describes the run."
            " Nothing within noise is named.",
            draw=_draw_verdict,
        ),
        Section(
            name="charts",
            title="A typical step, and the longest one",
            lead="Jobs, messages and bubbles of each rank, in the step of median length and in the longest"
            " one of the complete steps. "
            "Drag to move, Ctrl + wheel to zoom.",
            kinds=("step",),
            draw=_draw_charts,
        ),
        Section(
            name="steps",
            title="Steps over time, by rank",
            lead="Which rank, and since when: a row per rank, a column per step. The bars on top show by how"
            " much a step is longer than the shortest one.",
            kinds=("straggler", "host", "idle", "profiler", "gpu_clock", "step", "none"),
            tables=("steps", "lanes", "kinds", "iterations"),
            draw=_draw_steps,
        ),
        Section(
            name="bubbles",
            title="Bubbles, by cause and stage",
            lead="Where the time without compute goes: waiting for other ranks, transfers, late launches,"
            " or nothing left to do.",
            kinds=("bubble", "communication", "idle", "profiler", "requests"),
            tables=("stages", "schedule", "critical"),
            draw=_draw_bubbles,
        ),
        Section(
            name="stragglers",
            title="Stragglers",
            lead="Ranks, stages and links compared with the median of their peers; waiting for others is"
            " not counted.",
            kinds=("straggler", "link"),
            tables=("stragglers",),
            draw=_draw_stragglers,
        ),
        Section(
            name="communication",
            title="Communication",
            lead="Kernels of NCCL by call and size, and the waits and transfers of messages on each link.",
            tables=("links",),
            sums=("communication",),
            draw=_draw_communication,
        ),
        Section(
            name="kernels",
            title="Kernels, by family",
            lead="What the GPUs run, by families that the names of kernels show; below, by kind of job and"
            " by name.",
            kinds=("layout",),
            tables=("families", "stage_families", "iteration_families"),
            sums=("families", "kernels"),
            draw=_draw_kernels,
        ),
        Section(
            name="host",
            title="Host gaps",
            lead="What the host did while GPUs waited: calls and ranges of the thread that launched the"
            " next kernel. Times count from the start of the run.",
            kinds=("host",),
            tables=("gaps",),
            sums=("idle", "launches", "sync"),
            draw=_draw_host,
        ),
        Section(
            name="memory",
            title="Memory",
            lead="Allocations by CUDA itself, which frameworks keep and reuse: memory that is reserved, not"
            " used.",
            sums=("memory",),
            draw=_draw_memory,
        ),
        Section(
            name="clocks",
            title="Clocks and their bounds",
            lead="Corrections of recorded UTC by operations that ranks share, and the largest errors that"
            " they leave.",
            kinds=("clocks",),
            tables=("clocks",),
            draw=_draw_clocks,
        ),
        Section(
            name="missing",
            title="What was not recorded",
            lead="Data that would explain more, and the option that records it; tracing may also have been"
            " on without any event.",
            draw=_draw_missing,
        ),
    )
}
