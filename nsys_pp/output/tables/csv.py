"""A table as CSV: comma-separated values below one line of names."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl

from nsys_pp.output.files import open_output
from nsys_pp.output.tables.format import Content, Format, select_frame

_FORMULA = r"^[=+\-@\t\r]"


def format_csv(content: Content) -> str:
    """Format a table as CSV."""
    return quote_formulas(select_frame(content)).write_csv()


def write_csv(content: Content, path: Path) -> None:
    """Write a table as CSV."""
    frame = quote_formulas(select_frame(content))
    with open_output(path) as stream:
        frame.write_csv(stream)


def quote_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Quote names that a spreadsheet would run as formulas, with an apostrophe; `$NSYS_PP_CSV=raw` omits this.

    Args:
        frame: The table. Columns of numbers are unchanged.
    """
    if os.environ.get("NSYS_PP_CSV") == "raw":
        return frame
    kinds = (pl.String, pl.Categorical, pl.Enum)
    texts = [name for name, dtype in frame.schema.items() if dtype.base_type() in kinds]
    quoted = [
        pl.when(text.str.contains(_FORMULA))
        .then(pl.concat_str(pl.lit("'"), text))
        .otherwise(text)
        .alias(name)
        for name in texts
        for text in [pl.col(name).cast(pl.String)]
    ]
    return frame.with_columns(quoted)


FORMAT = Format(name="csv", suffixes=(".csv",), holds_many=False, write=write_csv, text=format_csv)
