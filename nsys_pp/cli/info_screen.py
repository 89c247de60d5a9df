"""Contents of a report, and the data that it lacks: one screen, or plain types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nsys_pp.arrays.search import group_pairs
from nsys_pp.cli.result import escape_line, list_rows
from nsys_pp.commands.info import ROSTER_TABLE, ReportInfo
from nsys_pp.errors import describe_path
from nsys_pp.frames.table import FilledTable
from nsys_pp.output.tables.terminal import print_tables
from nsys_pp.output.tables.text import Content
from nsys_pp.units import NS_PER_S, format_count, format_duration

_LABEL_WIDTH = 14
_MOST_ROWS = 8
_NARROW = 80  # cells; below, headings have a line for each word
_LEAST_NAME = 9
_MOST_LETTERS = 10_000  # of a line
_TRACE = "--trace="
_FACTS = "facts"  # use of tables, of which no row is drawn
_ROSTER_COLUMNS = (
    *("machine", "machine_source", "pid", "device_id", "gpu", "gpu_number", "gpu_name", "uuid"),
    *("bus_location", "rank", "rank_source", "stage", "tensor", "replica", "stage_source"),
)
_GRAPH_MODES = {"Graph": "each traced as one operation", "Node": "traced node by node"}


def print_info(info: ReportInfo, console: Console, *, with_fact_tables: bool = False) -> None:
    """Print the facts of one report, no wider than the console.

    Tables of facts are counted, or listed on request.
    """
    # In a file or a pipe, a path is not wrapped, so that it can be searched.
    path = Text(escape_line(str(info.path)), style="bold", overflow="fold")
    console.print(path, soft_wrap=not console.is_terminal)
    console.print(_build_grid(_list_facts(info)))
    contents = info.contents
    bus = pl.when(pl.col("bus_location") != "").then("bus_location")
    busiest = contents.processes.sort("op_count", "call_count", "range_count", descending=True)
    _print_rows(
        console,
        contents.gpus,
        {
            "GPU": "gpu",
            "name": pl.col("name").fill_null("unknown"),
            "bus or uuid": pl.coalesce(bus, pl.col("uuid").str.head(8), pl.lit("")),
            "process": pl.format("{} (device {})", "pid", "device_id"),
            "operations": "op_count",
        },
    )
    _print_rows(
        console,
        busiest,
        {
            "process": pl.col("pid").cast(pl.String),
            "name": pl.col("name").fill_null(""),
            "threads": "thread_count",
            "ranges": "range_count",
            "CUDA calls": "call_count",
            "operations": "op_count",
        },
    )
    _print_rows(
        console,
        contents.domains,
        {
            "NVTX domain": pl.when(pl.col("domain") != "").then("domain").otherwise(pl.lit("(default)")),
            "push/pop": "push_pop_count",
            "start/end": "start_end_count",
            "left open": "open_count",
            "across threads": "cross_thread_count",
            "marks": "mark_count",
        },
    )
    console.print()
    width = console.width - _LABEL_WIDTH - 2
    console.print(_build_grid(_list_kinds(info, width)))
    console.print(_build_grid(_list_tables(info, width, with_fact_tables=with_fact_tables)))
    for sentence in contents.anomalies:
        console.print(_build_grid([("note", sentence)], style="yellow"))


def describe_info(info: ReportInfo) -> dict[str, Any]:
    """Return a report as plain types; the keys are stable."""
    session, contents = info.session, info.contents
    return {
        "report": describe_path(info.path),
        "exporter_version": session.nsys_version,
        "schema_version": session.schema_version,
        "machine": session.machine,
        "machine_source": session.machine_source,
        "hardware_id": session.hardware_id,
        "rank": session.rank,
        "rank_source": session.rank_source,
        "launcher": session.launcher,
        "who": info.roster.select(_ROSTER_COLUMNS).to_dicts(),
        "utc_start": None if session.utc_epoch_ns is None else format_utc(session.utc_epoch_ns),
        "utc_epoch_ns": session.utc_epoch_ns,
        "system_clock_ns": session.system_clock_ns,
        "time_shift_ns": session.time_shift_ns,
        "start_ns": contents.start_ns,
        "end_ns": contents.end_ns,
        "has_capture": contents.has_capture,
        "graph_mode": session.graph_mode,
        "gpus": contents.gpus.to_dicts(),
        "processes": [
            {**process, "threads": contents.threads.filter(process_key=key).drop("process_key").to_dicts()}
            for process in contents.processes.to_dicts()
            for key in [process.pop("process_key")]  # nsys' own
        ],
        "domains": contents.domains.to_dicts(),
        "op_count": contents.op_count,
        "matched_count": contents.matched_count,
        "communication_count": contents.communication_count,
        "recorded": dict(contents.recorded.select("kind", "row_count").rows()),
        "missing": [
            {"kind": kind, "why": "not recorded", "record_with": [option]}
            for kind, option in contents.missing.select("kind", "option").rows()
        ],
        "rows": list_rows(contents.row_counts.with_columns(report=pl.lit(str(info.path))))[0]["tables"],
        "tables": contents.tables.to_dicts(),
        "notes": contents.anomalies,
    }


def print_roster(infos: Sequence[ReportInfo], console: Console) -> None:
    """Print a row per report, process and device."""
    roster = pl.concat(info.roster.with_columns(label=pl.lit(info.label)) for info in infos)
    filled = FilledTable(table=ROSTER_TABLE, frame=ROSTER_TABLE.build(roster))
    print_tables(Content(tables=[filled]), console=console)


def format_utc(utc_ns: int) -> str:
    """Format a time with all its digits.

    >>> format_utc(1_730_298_196_891_765_359)
    '2024-10-30T14:23:16.891765359Z'
    """
    seconds, fraction = divmod(utc_ns, NS_PER_S)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def _build_grid(rows: Iterable[tuple[str, ...]], *, style: str = "cyan") -> Table:
    """Build rows of a label and lines of text; a label that is that of the row above is left out."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=_LABEL_WIDTH, no_wrap=True, style=style)
    grid.add_column(overflow="fold")
    above = ""
    for label, *lines in rows:
        # rich takes time with the square of a text without spaces
        shown = (line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}…" for line in lines)
        grid.add_row("" if label == above else label, Text("\n".join(map(escape_line, shown))))
        above = label
    return grid


def _list_facts(info: ReportInfo) -> Iterator[tuple[str, str]]:
    session, contents = info.session, info.contents
    nsys = session.nsys_version or "of unknown version (exports of 2019 and 2020 do not contain it)"
    schema = f", schema {session.schema_version}" if session.schema_version else ""
    yield "exporter", f"nsys {nsys}{schema}; the nsys that recorded is not in exports"
    machine, source = info.roster.select("machine", "machine_source").row(0)
    yield "machine", f"{machine} (from the {source})"
    ranks = info.roster.select("rank", "rank_source").drop_nulls().unique()
    if len(ranks) == 1:
        yield "rank", f"{ranks['rank'][0]} (from {ranks['rank_source'][0]})"
    started = "unknown"
    if session.utc_epoch_ns is not None:
        started = f"{format_utc(session.utc_epoch_ns)[:23].replace('T', ' ')} UTC"  # to the millisecond
    yield "started", started
    if contents.start_ns is not None and contents.end_ns is not None:
        note = "" if contents.has_capture else ", from the first to the last event"
        yield "lasted", f"{format_duration(contents.end_ns - contents.start_ns)}{note}"
    if session.time_shift_ns:
        is_utc = session.time_shift_ns == session.utc_epoch_ns
        yield "shifted", f"{session.time_shift_ns:+,} ns by the export{' (times are UTC)' if is_utc else ''}"
    if session.graph_mode:
        yield "CUDA graphs", _GRAPH_MODES.get(session.graph_mode, session.graph_mode)
    if contents.op_count:
        share = _percent(contents.matched_count, contents.op_count)
        yield "launches", f"{share} of {contents.op_count:,} GPU operations found their CUDA call"
        yield "communication", f"{contents.communication_count:,} of them"


def _percent(part: int, whole: int) -> str:
    """Format a share; only the whole is 100 %.

    >>> _percent(3, 3), _percent(99_999, 100_000), _percent(1, 3)
    ('100 %', '99.9 %', '33.3 %')
    """
    return "100 %" if part == whole else f"{part * 1000 // whole / 10:.1f} %"


def _print_rows(console: Console, frame: pl.DataFrame, columns: Mapping[str, str | pl.Expr]) -> None:
    """Print the first rows as a table that wraps only names, on a narrow console also headings.

    Args:
        console: The console.
        frame: The rows; without any, nothing is printed.
        columns: The columns to print, by heading.
    """
    if frame.is_empty():
        return
    rows = frame.select(**columns)
    is_narrow = console.width < _NARROW
    table = Table(box=None, pad_edge=False, header_style="cyan")
    for heading, values in rows.to_dict().items():
        is_long = heading in {"name", "NVTX domain"}
        table.add_column(
            heading.replace(" ", "\n") if is_narrow else heading,
            min_width=_LEAST_NAME if is_long and is_narrow else None,
            justify="right" if values.dtype.is_numeric() else "left",
            no_wrap=not is_long,
            overflow="fold" if is_long else "ellipsis",
        )
    for row in rows.head(_MOST_ROWS).rows():
        cells = (cell if isinstance(cell, str) else f"{cell:,}" for cell in row)
        table.add_row(*(Text(escape_line(" ".join(cell.split()))) for cell in cells))
    console.print()
    console.print(table)
    if len(rows) > _MOST_ROWS:
        console.print(f"... {len(rows) - _MOST_ROWS:,} more, by `--json`", style="dim")


def _list_kinds(info: ReportInfo, width: int) -> Iterator[tuple[str, ...]]:
    contents = info.contents
    recorded = [
        f"{title} {count:,}" for title, count in contents.recorded.select("title", "row_count").rows()
    ]
    yield "recorded", *(_pack(recorded, width) or ["no known kinds of data"])
    for option, titles in _group_options(contents.missing).items():
        yield "not recorded", f"{', '.join(titles)}: {option}"
    left_out = contents.row_counts.drop_nulls("reason")
    for table, source, reason, count in left_out.select("table", "source", "reason", "row_count").rows():
        yield "left out", f"{count:,} of {source or table}: {reason}"


def _list_tables(info: ReportInfo, width: int, *, with_fact_tables: bool) -> Iterator[tuple[str, ...]]:
    """List the tables with rows by their use; enumerations and empty tables are left out."""
    tables = info.contents.tables.filter(pl.col("row_count") > 0)
    for (use,), rows in tables.group_by("use", maintain_order=True):
        names = [
            f"{name} {count:,}{_note(show, sums)}"
            for name, count, show, sums in rows.select("table", "row_count", "show", "sums").rows()
        ]
        if use == _FACTS and not with_fact_tables:
            counts = format_count(len(rows), "table"), format_count(int(rows["row_count"].sum()), "row")
            names = [f"{counts[0]}, {counts[1]}; --verbose lists them"]
        names[0] = f"{use}: {names[0]}"
        yield "tables", *_pack(names, width)


def _note(show: str | None, sums: str | None) -> str:
    """Format the kinds of `--show` that draw a table, and the table of results with its sums.

    >>> _note("os", "summary --table os"), _note("mpi", None), _note(None, None)
    (' (merge --show os; summary --table os)', ' (merge --show mpi)', '')
    """
    notes = [*([f"merge --show {show}"] if show else []), *([sums] if sums else [])]
    return f" ({'; '.join(notes)})" if notes else ""


def _group_options(missing: pl.DataFrame) -> dict[str, list[str]]:
    """Group the missing kinds of data by the option that records them; `--trace` has several values."""
    is_traced = pl.col("option").str.starts_with(_TRACE)
    traced = missing.filter(is_traced)
    values = traced["option"].str.strip_prefix(_TRACE).unique(maintain_order=True)
    grouped = {_TRACE + ",".join(values): traced["title"].to_list()} if len(values) else {}
    return grouped | group_pairs(missing.filter(~is_traced).select("option", "title").rows())


def _pack(items: Iterable[str], width: int) -> list[str]:
    """Join items into lines that break only between items.

    >>> _pack(["kernels 3", "copies 12", "sets 1"], 22)
    ['kernels 3, copies 12,', 'sets 1']
    """
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 2 < width:
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return [f"{line}," for line in lines[:-1]] + lines[-1:]
