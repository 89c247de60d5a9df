"""The tables of a summary in the layout of Paddle's Profiler: its titles, names, columns and cells.

A cell holds five values, `Total / Avg / Max / Min / Ratio(%)`, with two decimals, times in ms, and `-` where
there is none (`python/paddle/profiler/profiler_statistic.py`). The layout is that of text formats; data
formats have the columns of the other summaries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl
from msgspec.structs import replace

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.table import ALL_ROWS, Column, Table, View
from nsys_pp.tables.summary import (
    COPY_TABLE,
    DEVICE_TABLE,
    GROUP_COLUMNS,
    KERNEL_TABLE,
    MEMORY_TABLE,
    MODEL_TABLE,
    OPERATOR_TABLE,
    OVERVIEW_TABLE,
    PADDLE_DISTRIBUTION_TABLE,
    RANGE_TABLE,
)
from nsys_pp.units import NS_PER_MS

_NO_CELL = "- / - / - / - / -"
_EVENT_TYPES = {  # activity -> event type
    "span": "ProfileStep",
    "operators": "Operator",
    "ranges": "UserDefined",
    "CUDA calls": "CudaRuntime",
    "data": "Dataloader",
    "forward": "Forward",
    "backward": "Backward",
    "optimizer": "Optimization",
    "communication": "Communication",
    "kernels": "Kernel",
    "copies": "Memcpy",
    "sets": "Memset",
}
_PHASES = {
    "step": "ProfileStep",
    "data": "Dataloader",
    "forward": "Forward",
    "backward": "Backward",
    "optimizer": "Optimization",
    "outside phases": "Others",
}
_KERNEL_WIDTH, _OPERATOR_WIDTH = 90, 52
_PARAMETERS = r"\([^()]*(?:\([^()]*\)[^()]*)*\)$"
_CALLS = Column("count", pl.Int64, "number of calls", heading="Calls", priority=9)
_RATIO = Column("ratio", pl.String, "share in percent", heading="Ratio (%)", priority=9)


def _name(heading: str = "Name") -> Column:
    return Column("item", pl.String, "name of the row", heading=heading, is_symbol=True, priority=9)


def _cell_column(side: str) -> Column:
    return Column(
        f"{side.lower()}_cell",
        pl.String,
        "the five values of a cell",
        heading=f"{side} Total / Avg / Max / Min / Ratio(%)",
        priority=9,
    )


def _decimals(value: pl.Expr) -> pl.Expr:
    hundredths = (value * 100).round().cast(pl.Int64)
    text = pl.concat_str(
        (hundredths // 100).cast(pl.String), pl.lit("."), (hundredths % 100).cast(pl.String).str.zfill(2)
    )
    return pl.coalesce(text, pl.lit("-"))


def _milliseconds(time_ns: str) -> pl.Expr:
    return _decimals(pl.col(time_ns) / NS_PER_MS)


def _percent(fraction: str) -> pl.Expr:
    return _decimals(100 * pl.col(fraction))


def _cell(total: str, mean: str, largest: str, smallest: str, fraction: str) -> pl.Expr:
    times = map(_milliseconds, (total, mean, largest, smallest))
    return pl.concat_str(*times, _percent(fraction), separator=" / ")


_CELL_COLUMNS = ("total_ns", "mean_ns", "max_ns", "min_ns", "fraction")
_TIMES_CELL = _cell(*_CELL_COLUMNS)
_SIDE_CELLS = {
    cell: _cell(*(f"{side}_{name}" for name in _CELL_COLUMNS))
    for cell, side in (("cpu_cell", "host"), ("gpu_cell", "gpu"))
}


def _lay_out(
    table: Table[[Summary, str]],
    title: str,
    columns: Sequence[Column | str],
    derive: Callable[[pl.DataFrame], pl.DataFrame],
    *,
    only: pl.Expr = ALL_ROWS,
) -> Table[[Summary, str]]:
    """Replace the title and the columns of a table in text formats by Paddle's.

    After the columns of groups.
    """
    return replace(
        table,
        title=title,
        caption=f"times in ms. {table.caption}",
        totals=(),
        view=View(
            columns=(*(column.name for column in GROUP_COLUMNS), *columns),
            derive=derive,
            only=only,
            hidden="left out: {} rows, which Paddle's table lacks",
        ),
    )


def _rename(column: str, names: Mapping[str, str]) -> pl.Expr:
    """Replace names by Paddle's, with their indentation; null where Paddle has none."""
    text = pl.col(column)
    indent = pl.when(text.str.starts_with("  ")).then(pl.lit("  ")).otherwise(pl.lit(""))
    return indent + text.str.strip_chars_start().replace_strict(names, default=None, return_dtype=pl.String)


def _derive_devices(frame: pl.DataFrame) -> pl.DataFrame:
    is_gpu = pl.col("label").str.contains("GPU")
    label = pl.when(is_gpu).then("label").otherwise(pl.lit("GPU of ") + pl.col("label"))
    rows = frame.with_row_index("row")
    host = rows.with_columns(
        item=pl.lit("CPU(Process) of ") + pl.col("label"), ratio=_percent("cpu_fraction")
    )
    gpu = rows.with_columns(item=label, ratio=_percent("kernel_fraction"))
    return pl.concat([host, gpu]).sort("row", maintain_order=True).drop("row")


def _cut(name: pl.Expr, width: int) -> pl.Expr:
    return (
        pl.when(name.str.len_chars() > width).then(name.str.head(width - 3) + pl.lit("...")).otherwise(name)
    )


_TIME = Column("time", pl.String, "time in ms", heading="Time", priority=9)
_SHARES = {"time": _milliseconds("time_ns"), "ratio": _percent("fraction")}
_BOTH = (_name(), _CALLS, _cell_column("CPU"), _cell_column("GPU"))
PADDLE_DEVICE_TABLE = _lay_out(
    DEVICE_TABLE,
    "Device Summary",
    (_name("Device"), replace(_RATIO, heading="Utilization (%)")),
    _derive_devices,
)
PADDLE_OVERVIEW_TABLE = _lay_out(
    OVERVIEW_TABLE,
    "Overview Summary",
    ("side", _name("Event Type"), _CALLS, _TIME, _RATIO),
    lambda rows: rows.with_columns(item=_rename("activity", _EVENT_TYPES), **_SHARES),
    only=pl.col("item").is_not_null(),
)
PADDLE_MODEL_TABLE = _lay_out(
    MODEL_TABLE,
    "Model Summary",
    _BOTH,
    lambda rows: rows.with_columns(item=_rename("phase", _PHASES), **_SIDE_CELLS),
    only=pl.col("item").is_not_null(),
)
PADDLE_DISTRIBUTION_LAYOUT = _lay_out(
    PADDLE_DISTRIBUTION_TABLE,
    "Distribution Summary",
    (_name(), replace(_TIME, heading="Total Time"), _RATIO),
    lambda rows: rows.with_columns(item="part", **_SHARES),
)
PADDLE_OPERATOR_TABLE = _lay_out(
    OPERATOR_TABLE,
    "Operator Summary",
    _BOTH,
    lambda rows: rows.with_columns(item=_cut(pl.col("name"), _OPERATOR_WIDTH), **_SIDE_CELLS),
)
PADDLE_KERNEL_TABLE = _lay_out(
    KERNEL_TABLE,
    "Kernel Summary",
    (_name(), _CALLS, _cell_column("GPU")),
    lambda rows: rows.with_columns(
        item=_cut(pl.col("name").str.replace(_PARAMETERS, ""), _KERNEL_WIDTH), gpu_cell=_TIMES_CELL
    ),
)
PADDLE_COPY_TABLE = _lay_out(
    COPY_TABLE,
    "Memory Manipulation Summary",
    _BOTH,
    lambda rows: rows.with_columns(item="name", cpu_cell=pl.lit(_NO_CELL), gpu_cell=_TIMES_CELL),
)
PADDLE_RANGE_TABLE = _lay_out(
    RANGE_TABLE,
    "UserDefined Summary",
    _BOTH,
    lambda rows: rows.with_columns(
        item="name",
        cpu_cell=_TIMES_CELL,
        gpu_cell=_milliseconds("gpu_total_ns") + pl.lit(_NO_CELL.removeprefix("-")),
    ),
)
PADDLE_MEMORY_TABLE = _lay_out(
    MEMORY_TABLE,
    "Memory Summary",
    (
        _name(),
        Column("type", pl.String, "type of memory", priority=9),
        "allocation_count",
        "free_count",
        "allocated_bytes",
        "freed_bytes",
        "increased_bytes",
    ),
    lambda rows: rows.with_columns(item="name", type=pl.lit("Reserved")),
)
