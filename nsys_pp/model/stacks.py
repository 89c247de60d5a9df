"""Stacks of functions: their texts, from frames of stacks."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.names import NO_NAME
from nsys_pp.frames.raw import RawReport
from nsys_pp.model.names import resolve

CALLER = " < "
_ADDRESS = "^0x[0-9a-fA-F]+$"


def build_stacks(frames: pl.DataFrame, raw: RawReport) -> pl.DataFrame:
    """Build the text of each stack: its functions from the innermost on, like `read < main`.

    A function without a name is its address and the file of its module: `0x7f12 [libc.so.6]`.

    Args:
        frames: stack_id, symbol, module and depth.
        raw: The report, for names.

    Returns:
        stack_id, innermost (name of the function), stack; one row per stack. Empty in, empty out.
    """
    symbol = resolve(frames["symbol"], raw["strings"], dtype=pl.String())
    module = resolve(frames["module"], raw["strings"], dtype=pl.String())
    file = module.str.extract(r"([^/\\\[\]]+)\]?$")  # of `[Unknown]`, too
    named = pl.DataFrame({"symbol": symbol.fill_null(NO_NAME), "file": file}).select(
        text=pl.when(pl.col("symbol").str.contains(_ADDRESS) & pl.col("file").is_not_null())
        .then(pl.format("{} [{}]", "symbol", "file"))
        .otherwise("symbol"),
        symbol="symbol",
    )
    return (
        frames.select("stack_id", "depth")
        .hstack(named)
        .sort("stack_id", "depth", maintain_order=True)
        .group_by("stack_id", maintain_order=True)
        .agg(innermost=pl.col("symbol").first(), stack=pl.col("text").str.join(CALLER))
    )
