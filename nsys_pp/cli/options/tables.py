"""Table options: `--table` and `--limit`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import click

from nsys_pp.cli.sections import SELECTION, Command, option


class TableNames(click.ParamType[tuple[str, ...]]):
    """Table names separated by commas, or `all`."""

    name = "names"

    def __init__(self, tables: Mapping[str, object], requested: Iterable[str] = ()) -> None:
        self.tables = tables
        self.names = (*tables, *requested)  # `all` has no requested ones

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the distinct names in the order of the text."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
        if names == ("all",):
            return tuple(self.tables)
        for name in names:
            if name not in self.names:
                self.fail(f"unknown table {name!r}; expected {', '.join(self.names)} or all", param, ctx)
        return names


def table_option(
    tables: Mapping[str, object], *, default_text: str, requested: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Return a decorator that adds `--table`, a tuple named `names`, or None; `all` is without requested tables."""
    return option(
        "--table",
        "names",
        section=SELECTION,
        type=TableNames(tables, requested),
        metavar="NAME,...|all",
        help="Tables to show or write.",
        values_text=f"Names: {', '.join(tables)}"
        + (f"; not in all: {', '.join(requested)}." if requested else "."),
        default_text=default_text,
    )


def limit_option(
    default: int | None = None, *, default_text: str | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that adds `--limit`, the maximum number of rows; 0 if all rows are wanted."""
    return option(
        "--limit",
        section=SELECTION,
        type=click.IntRange(min=0),
        metavar="N",
        default=default,
        help="Maximum number of rows per table, or per group of a summary; 0: all rows.",
        default_text=default_text,
    )
