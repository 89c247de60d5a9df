"""How ranks are laid out over the ways to split a training: pipeline, tensors, data, experts, context."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import polars as pl

AXES = ("tp", "cp", "ep", "dp", "pp")
"""The ways to split, in the order in which Megatron counts ranks: neighbours differ in the first."""

_HINT = "write `pp=4,tp=2,dp=2` or `pp=4,tp=2,dp=2,order=tp-dp-pp`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How many parts each way has, and the order in which ranks count through them.

    Raises:
        ValueError: A way has no parts; or the order has an unknown way, has one twice, or lacks one.
    """

    pp: int = 1  # stages of the pipeline
    tp: int = 1  # parts of each tensor
    dp: int = 1  # replicas that see other data
    ep: int = 1  # groups of experts
    cp: int = 1  # parts of each sequence
    order: tuple[str, ...] = AXES  # the first varies fastest from rank to rank

    def __post_init__(self) -> None:
        """Check what a user may have written."""
        for axis in AXES:
            if getattr(self, axis) < 1:
                raise ValueError(f"`{axis}={getattr(self, axis)}` is less than one part")
        for axis in self.order:
            if axis not in AXES:
                raise ValueError(f"the order names `{axis}`, which is none of {', '.join(AXES)}")
            if self.order.count(axis) > 1:
                raise ValueError(f"the order names `{axis}` twice")
        lacking = [axis for axis in AXES if getattr(self, axis) > 1 and axis not in self.order]
        if lacking:
            raise ValueError(f"the order lacks `{lacking[0]}`, which has {getattr(self, lacking[0])} parts")


def parse_layout(text: str) -> Layout:
    """Read a layout as it is written on the command line.

    Without an order it is Megatron's: tp-cp-ep-dp-pp.

    Raises:
        ValueError: It cannot be read; the sentence says what is wrong and how to write one.

    >>> layout = parse_layout("pp=4,tp=2,dp=2,order=tp-dp-pp")
    >>> layout.pp, layout.order, count_ranks(layout)
    (4, ('tp', 'dp', 'pp'), 16)
    """
    parts: dict[str, str] = {}
    for entry in text.split(","):
        name, equals, value = (part.strip().lower() for part in entry.partition("="))
        if not equals or name not in (*AXES, "order"):
            raise ValueError(f"`{entry.strip()}` is no part of a layout: {_HINT}")
        if name in parts:
            raise ValueError(f"`{name}` is given twice: {_HINT}")
        parts[name] = value
    order = tuple(parts.pop("order").split("-")) if "order" in parts else AXES
    for name, value in parts.items():
        if not re.fullmatch(r"\d{1,9}", value):
            raise ValueError(f"`{name}={value}` is not a number of parts: {_HINT}")
    return Layout(**{name: int(value) for name, value in parts.items()}, order=order)


def count_ranks(layout: Layout) -> int:
    """Give the number of ranks that a layout has."""
    return math.prod(getattr(layout, axis) for axis in AXES)


def locate_ranks(ranks: pl.Series, layout: Layout) -> pl.DataFrame:
    """Give the place of each rank.

    Args:
        ranks: Any ranks.
        layout: The layout.

    Returns:
        Row by row of `ranks`, a column per name in `AXES`, from 0; null where the rank is null or beyond
        the layout. An axis that the order does not name is 0.

    >>> locate_ranks(pl.Series([0, 1, 2, 5]), Layout(pp=2, tp=2, dp=2)).select("pp", "dp", "tp").rows()
    [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 1)]
    """
    rank = pl.col("rank")
    is_known = rank.is_between(0, count_ranks(layout) - 1)
    step = 1
    columns = {axis: pl.lit(0) for axis in AXES}
    for axis in layout.order:
        columns[axis] = rank // step % getattr(layout, axis)
        step *= getattr(layout, axis)
    return (
        ranks.cast(pl.Int64)
        .alias("rank")
        .to_frame()
        .select(pl.when(is_known).then(column).cast(pl.Int64).alias(axis) for axis, column in columns.items())
    )
