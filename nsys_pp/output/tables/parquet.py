"""A table as Parquet."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import polars as pl

from nsys_pp.output.files import open_output
from nsys_pp.output.tables.format import Content, Format, name_categories, select_categorical_frame

_SCHEMA = "ARROW:schema"  # key of a file's metadata: types of columns beyond those of Parquet


def write_parquet(content: Content, path: Path) -> None:
    """Write a table as Parquet; categories are strings, in dictionaries."""
    frame = _share_repeated(select_categorical_frame(content))
    with open_output(path) as stream:
        frame.write_parquet(
            stream,
            compression="zstd",
            compression_level=1,
            statistics=False,
            metadata={_SCHEMA: _describe_strings(frame)},
        )


def _share_repeated(frame: pl.DataFrame) -> pl.DataFrame:
    """Replace each column of one string, as the label of the only report, by a category.

    That is written in an eighth of the time. The queries keep such columns as one value with a length.
    """
    names = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    if not names or frame.is_empty():
        return frame
    texts = frame.head(1).select(names).row(0, named=True)
    is_repeated = frame.select(pl.col(name).eq_missing(pl.lit(text)).all() for name, text in texts.items())
    return frame.with_columns(
        pl.lit(text, pl.Enum([text])).alias(name)
        for name, text in texts.items()
        if text is not None and is_repeated[name].item()
    )


def _describe_strings(frame: pl.DataFrame) -> str:
    """Return the description of the types of a frame with strings in place of categories.

    polars writes the dictionary of a column of categories without a look at its strings, in half the time; only the
    description differs from that of strings.
    """
    empty = BytesIO()
    name_categories(frame.clear()).write_parquet(empty)
    empty.seek(0)
    return pl.read_parquet_metadata(empty)[_SCHEMA]


FORMAT = Format(name="parquet", suffixes=(".parquet",), holds_many=False, write=write_parquet)
