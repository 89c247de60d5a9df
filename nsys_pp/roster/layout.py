"""Layout of ranks over the axes of parallelism: pipeline, tensor, data, expert, context."""

from __future__ import annotations

import math
import re

import polars as pl
from msgspec import Struct

from nsys_pp.frames.roster import MOST_RANKS

AXES = ("tp", "cp", "ep", "dp", "pp")
"""Axes in Megatron's order of ranks: the first varies fastest from rank to rank."""

_HINT = "write `pp=4,tp=2,dp=2` or `pp=4,tp=2,dp=2,order=tp-dp-pp`"


class Layout(Struct, frozen=True, kw_only=True):
    """Number of parts of each axis, and the order of the axes.

    Raises:
        ValueError: An axis has no parts; or the order has an unknown axis, has one twice, or lacks one.
    """

    pp: int = 1  # stages of the pipeline
    tp: int = 1  # parts of each tensor
    dp: int = 1  # replicas that see other data
    ep: int = 1  # groups of experts
    cp: int = 1  # parts of each sequence
    order: tuple[str, ...] = AXES  # the first varies fastest from rank to rank

    def __post_init__(self) -> None:
        """Check the axes."""
        for axis in AXES:
            if getattr(self, axis) < 1:
                raise ValueError(
                    f"invalid number of parts `{axis}={getattr(self, axis)}`; expected 1 or more"
                )
        if count_ranks(self) > MOST_RANKS:
            raise ValueError(f"a layout of {count_ranks(self):,} ranks; expected at most {MOST_RANKS:,}")
        for axis in self.order:
            if axis not in AXES:
                raise ValueError(f"invalid axis `{axis}` in the order; expected one of {', '.join(AXES)}")
            if self.order.count(axis) > 1:
                raise ValueError(f"the order names `{axis}` twice")
        lacking = [axis for axis in AXES if getattr(self, axis) > 1 and axis not in self.order]
        if lacking:
            raise ValueError(f"the order lacks `{lacking[0]}`, which has {getattr(self, lacking[0])} parts")


def parse_layout(text: str) -> Layout:
    """Parse a layout. The default order is Megatron's: tp-cp-ep-dp-pp.

    Raises:
        ValueError: It is invalid; the message contains an example.

    >>> layout = parse_layout("pp=4,tp=2,dp=2,order=tp-dp-pp")
    >>> layout.pp, layout.order, count_ranks(layout)
    (4, ('tp', 'dp', 'pp'), 16)
    """
    parts: dict[str, str] = {}
    for entry in text.split(","):
        name, equals, value = (part.strip().lower() for part in entry.partition("="))
        if not equals or name not in (*AXES, "order"):
            raise ValueError(f"invalid part of a layout `{entry.strip()}`: {_HINT}")
        if name in parts:
            raise ValueError(f"`{name}` occurs twice: {_HINT}")
        parts[name] = value
    order = tuple(parts.pop("order").split("-")) if "order" in parts else AXES
    for name, value in parts.items():
        if not re.fullmatch(r"\d{1,9}", value):
            raise ValueError(f"invalid number of parts `{name}={value}`: {_HINT}")
    return Layout(**{name: int(value) for name, value in parts.items()}, order=order)


def count_ranks(layout: Layout) -> int:
    """Return the number of ranks of a layout."""
    return math.prod(getattr(layout, axis) for axis in AXES)


def locate_ranks(ranks: pl.Series, layout: Layout) -> pl.DataFrame:
    """Find the coordinates of each rank.

    Args:
        ranks: Any ranks.
        layout: The layout.

    Returns:
        One row per rank, in order, with a column per axis of `AXES`, from 0; null where the rank is null or beyond
        the layout. Axes that are not in the order are 0.

    >>> locate_ranks(pl.Series([0, 1, 2, 5]), Layout(pp=2, tp=2, dp=2)).select("pp", "dp", "tp").rows()
    [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 1)]
    """
    rank = pl.col("rank")
    is_valid = rank.is_between(0, count_ranks(layout) - 1)
    step = 1
    columns = {axis: pl.lit(0) for axis in AXES}
    for axis in layout.order:
        columns[axis] = rank // step % getattr(layout, axis)
        step *= getattr(layout, axis)
    return (
        ranks.cast(pl.Int64)
        .alias("rank")
        .to_frame()
        .select(pl.when(is_valid).then(column).cast(pl.Int64).alias(axis) for axis, column in columns.items())
    )
