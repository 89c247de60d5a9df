"""`nsys-pp sql`: a query over the frames and tables of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Unpack

import polars as pl

from nsys_pp.commands.pipeline import PIPELINE_TABLES, PipelineResult, pipeline
from nsys_pp.commands.project import ProjectResult, define_projection_table, project
from nsys_pp.commands.summary import SUMMARY_TABLES, SummaryResult, summary
from nsys_pp.errors import OptionError
from nsys_pp.frames.clock import CLOCKS
from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.table import AnyTable
from nsys_pp.frames.training import LANE_STATES, RUN_JOBS, TRANSFERS
from nsys_pp.run.inputs import Result, Skipped
from nsys_pp.run.options import BatchOptions, Inputs, RunOptions, check_keywords

SQL_COLUMNS = build_schema(
    {  # one row per column that a query may use, by table
        "table": pl.String,
        "column": pl.String,
        "type": pl.String,
        "meaning": pl.String,  # "" for most columns of frames, whose names say it
    },
    name="SQL_COLUMNS",
)
# Before the names of the tables of `summary`, some of which `pipeline` has, too.
SUMMARY_PREFIX = "summary_"

_HINT = "`nsys-pp sql --explain` lists all tables and columns"
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CHANGE = re.compile(r"\s*(alter|create|delete|drop|insert|truncate|update)\b", re.IGNORECASE)
_MOST_LETTERS = 5_000  # polars ends the process, or does not end, in expressions of any depth

# Frames of a pipeline's result that are tables of queries, with their schemas.
_RUN_FRAMES: Mapping[str, tuple[pl.Schema, Callable[[PipelineResult], pl.DataFrame]]] = {
    "jobs": (RUN_JOBS, lambda result: result.training.jobs),
    "messages": (TRANSFERS, lambda result: result.training.transfers),
    "lane_states": (LANE_STATES, lambda result: result.training.lane_states),
    "clocks": (CLOCKS, lambda result: result.run.clocks.table),
}


_MEANINGS = {("lane_states", "cause"): "compute includes pauses between kernels; table `lanes` has both"}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SqlResult(Result):
    """Answer of a query."""

    table: pl.DataFrame
    notes: list[str]  # doubtful facts of the run, in sentences

    def _repr_html_(self) -> str:
        """Return the table, for notebooks."""
        return self.table._repr_html_()


def sql(query: str, inputs: Inputs, **options: Unpack[RunOptions]) -> SqlResult:
    """Query the frames and tables of a run in SQL, in the dialect of polars.

    Only tables that the query names are built. Times end in `_ns`; those of jobs, messages and lane states
    are on the aligned clock, those of projections on the clocks of their reports.

    Args:
        query: One query, as in `SELECT kind, avg(compute_ns) FROM jobs GROUP BY kind`; names are those of
            `list_sql_columns`.
        inputs: Reports, parts, folders of them, or glob patterns.
        options: See `nsys_pp.RunOptions`.

    Raises:
        OptionError: The query is invalid, or names no table.
        ReportError: A report cannot be read, or is named twice.
    """
    check_keywords(options, RunOptions)
    words = {word.lower() for word in _WORD.findall(query)}
    for reason, is_refused in (
        (f"has more than {_MOST_LETTERS:,} letters", len(query) > _MOST_LETTERS),
        # functions of polars, for files and addresses
        ("reads a file, and may read tables of the run alone", any(word[:5] == "read_" for word in words)),
        ("changes tables, which can only be read", _CHANGE.match(query) is not None),
        ("is recursive, which polars does not end", "recursive" in words),
    ):
        if is_refused:
            raise OptionError("query", f"the query {reason}", _HINT)
    names = [name for name in _list_tables() if name in words]
    if not names:
        tables = ", ".join(_list_tables())
        raise OptionError("query", f"the query names none of the tables: {tables}", _HINT)
    frames, skipped, counts, notes = _build_frames(names, inputs, options)
    try:
        with pl.SQLContext(frames) as context:
            answer = context.execute(query, eager=True)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeEncodeError) as error:
        reason = str(error).split("\n")[0]
        raise OptionError("query", f"the query is invalid: {reason}", _HINT) from None
    # of types that not all formats of tables have, and with the words that queries compare with
    answer = answer.with_columns(
        pl.col(pl.Duration).dt.to_string(),
        pl.col(pl.Binary).bin.encode("hex"),
        pl.selectors.enum().cast(pl.String),
    )
    if not answer.width:
        raise OptionError("query", "the query has no answer: it selects nothing", _HINT)
    return SqlResult(table=answer, notes=notes, skipped=skipped, row_counts=counts)


def list_sql_columns() -> pl.DataFrame:
    """List all tables and columns that a query may use: `SQL_COLUMNS`."""
    rows = [
        (name, column, str(dtype.base_type()), meaning)
        for name, columns in _list_tables().items()
        for column, dtype, meaning in columns
    ]
    return pl.DataFrame(rows, schema=SQL_COLUMNS, orient="row")


@cache
def _list_tables() -> Mapping[str, list[tuple[str, Any, str]]]:
    tables: dict[str, AnyTable] = {
        "projections": define_projection_table(("kernel",), "auto"),
        **PIPELINE_TABLES,
        **{SUMMARY_PREFIX + name: table for name, table in SUMMARY_TABLES.items()},
    }
    return {
        **{
            name: [(*column, _MEANINGS.get((name, column[0]), "")) for column in schema.items()]
            for name, (schema, _) in _RUN_FRAMES.items()
        },
        **{
            name: [(column.name, column.dtype, column.meaning) for column in table.columns]
            for name, table in tables.items()
        },
    }


def _build_frames(
    names: list[str], inputs: Inputs, options: RunOptions
) -> tuple[dict[str, pl.DataFrame], Skipped, pl.DataFrame, list[str]]:
    """Build the named tables; each kind of analysis runs at most once."""
    frames: dict[str, pl.DataFrame] = {}
    notes: list[str] = []
    results: list[PipelineResult | SummaryResult | ProjectResult] = []
    of_run = [name for name in names if name in _RUN_FRAMES or name in PIPELINE_TABLES]
    if of_run:
        result = pipeline(inputs, **options)
        results.append(result)
        notes = result.training.notes
        for name in of_run:
            frames[name] = (
                _RUN_FRAMES[name][1](result) if name in _RUN_FRAMES else result.tables([name])[name]
            )
    of_summary = [name.removeprefix(SUMMARY_PREFIX) for name in names if name.startswith(SUMMARY_PREFIX)]
    if of_summary:
        summed = summary(inputs, tables=of_summary, **options)
        results.append(summed)
        for name in of_summary:
            if name in summed.absent:
                raise OptionError(
                    "query",
                    f"`{SUMMARY_PREFIX}{name}` has no rows: its data was not recorded",
                    str(summed.absent[name]),
                )
            frames[SUMMARY_PREFIX + name] = summed.tables[name]
    if "projections" in names:
        shared = {name: value for name, value in options.items() if name in BatchOptions.__annotations__}
        ranges = project(inputs, **shared)  # type: ignore[arg-type]
        results.append(ranges)
        frames["projections"] = ranges.ranges
    skipped = {path: error for result in results for path, error in result.skipped}
    # later analyses read the same rows again
    return frames, [*skipped.items()], results[0].row_counts, notes
