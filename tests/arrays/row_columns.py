"""Random columns of rows and of planes, written by the compiled functions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from nsys_pp.arrays.byte_planes import PlaneCode
from nsys_pp.arrays.core import Core
from nsys_pp.arrays.plane_packets import PlaneColumn, PlaneGroup, write_planes
from nsys_pp.arrays.row_packets import Layout, RowColumn, RowPackets, number_columns

DTYPES = (np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64)


def write_random_rows(core: Core, seed: int) -> None:
    """Write rows with fields of all kinds, of which many are absent, in blocks of any size."""
    random = np.random.Generator(np.random.PCG64(seed))
    count, height = int(random.integers(1, 40)), int(random.integers(1, 9))
    begin = np.cumsum(random.integers(1, 3, count)) - 1
    deltas = random.integers(0, 1 << 40, int(begin[-1]) + 1 + int(random.integers(0, 3)), dtype=np.uint64)
    rows = random.integers(0, height, count)
    columns = [_draw_column(random, rows, height) for _ in range(int(random.integers(0, 7)))]
    packets = RowPackets(core, begin, deltas, columns)
    size = int(random.integers(1, count + 1))
    for first in range(0, count, size):
        block = packets.find_shapes(first, min(first + size, count))
        if block is None:
            continue
        layouts = [_lay_out(shape.widths) for shape in block.shapes]
        opened = np.unique(random.integers(first, min(first + size, count), 3))
        values = np.arange(len(opened), dtype=np.uint64)
        packets.write(block, layouts, _lay_out((block.end_width,)), _lay_out((1,)), (opened, values))
    codes = [random.integers(0, 5, height).astype(np.uint32) for _ in range(3)]
    number_columns(core, codes, rows, [0, 1, 1], 4)
    with suppress(ValueError):
        number_columns(core, codes, rows, [0, 1, 1], 2)


def write_random_planes(core: Core, seed: int) -> None:
    """Write planes with random content; most contradict each other where one column has the places of another's values."""
    random = np.random.Generator(np.random.PCG64(seed))
    counts = random.integers(0, 12, int(random.integers(1, 4)))
    groups, at = [], 0
    for count in counts.tolist():
        columns: list[PlaneColumn] = []
        for number in range(int(random.integers(0, 5))):
            method = ("plain", "signed", "delta", "minus", "map")[int(random.integers(0, 5 if number else 3))]
            length = int(random.integers(0, 300)) if method == "map" else count
            planes, other = int(random.integers(0, 9 if method != "map" else 3)), -1
            if method in ("minus", "map"):
                other = int(random.integers(0, number))
            code = PlaneCode(method, planes, length, other)  # type: ignore[arg-type]
            columns.append(PlaneColumn(code, at, 10 * number, int(random.integers(1, 11)), is_raw=False))
            at += planes * length
        groups.append(PlaneGroup(count, bytes(10 * len(columns) + 1), columns))
    order = random.permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.uint8)
    with suppress(ValueError):
        write_planes(core, memoryview(random.bytes(at)), groups, order, head=b"head", stop=at)


def _draw_column(random: np.random.Generator, rows: Any, height: int) -> RowColumn:
    kind = int(random.integers(0, 4))
    is_gathered = kind < 3 and random.random() < 0.5
    size = height if is_gathered else len(rows)
    dtype = np.uint32 if kind == 3 else np.float64 if kind == 2 else DTYPES[int(random.integers(len(DTYPES)))]
    values = random.integers(0, 1 << 63, size).astype(dtype) if kind < 3 else random.integers(0, 3, size)
    return RowColumn(
        values=values.astype(dtype),
        rows=rows if is_gathered else None,
        present=random.random(size) < 0.5 if kind == 1 else None,
        is_raw=kind == 2,
        is_number=kind == 3,
    )


def _lay_out(widths: tuple[int, ...]) -> Layout:
    """Lay out a packet of columns alone, of exact size."""
    ends = np.cumsum(widths).tolist()
    return Layout(
        bytes(ends[-1]), tuple(end - width for end, width in zip(ends, widths, strict=True)), widths
    )
