"""What a table of a training is: a title, a function of the training, and columns with their meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.training import Training

Columns = Mapping[str, tuple[pl.DataType | type[pl.DataType], str]]
"""Columns of a table in order: type, and what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that can be made of any training; an empty training makes an empty one.

    Attributes:
        title: One line that says what is in it.
        columns: Name -> what it says. Units are in the names: `_ns`, `_fraction`, `_count`.
        build: Makes the table.
    """

    title: str
    columns: Mapping[str, str]
    build: Callable[[Training], pl.DataFrame]


def build_table(title: str, columns: Columns, build: Callable[[Training], pl.DataFrame]) -> Table:
    """Make a table of the columns that also made its schema."""
    return Table(title=title, columns={name: says for name, (_, says) in columns.items()}, build=build)


def schema_of(columns: Columns) -> pl.Schema:
    """Return the types of the columns.

    >>> schema_of({"step": (pl.Int64, "its number")}).names()
    ['step']
    """
    return build_schema({name: dtype for name, (dtype, _) in columns.items()})
