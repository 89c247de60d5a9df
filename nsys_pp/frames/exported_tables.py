"""Tables of an export, and their use."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema

TABLE_USE = pl.Enum(["drawn", "on request", "summed", "counted", "facts", "unknown"])
"""Uses of a table, the first that fits: drawn in traces at some level of detail; drawn with `--show`; read for tables of results; only its rows
are counted; names and facts; not read."""

EXPORTED_TABLES = build_schema(
    {  # one row per table of the export but enumerations, by use, show and name
        "table": pl.String,  # its name there
        "use": TABLE_USE,
        "show": pl.String,  # kinds of `--show` that draw it: "os", "metrics,other"; null without one
        "sums": pl.String,  # table of results with sums of it: "summary --table os"; null without one
        "row_count": pl.Int64,
    },
    name="EXPORTED_TABLES",
)
