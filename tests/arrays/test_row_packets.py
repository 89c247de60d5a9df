"""Packets of rows by the compiled functions: the bytes of numpy, and no wrong array reaches them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays.core import Core, load_core
from nsys_pp.arrays.row_packets import Layout, RowColumn, RowPackets, number_columns
from nsys_pp.output.perfetto import subtracks as perfetto_subtracks
from nsys_pp.output.trace import strings, subtrack_columns
from tests.arrays.ways import use_numpy
from tests.output.drawings import PlacedDrawings, encode, random_drawing

ONES = np.ones(3, dtype=np.uint8)


def encoded_bytes(drawn: PlacedDrawings) -> list[bytes]:
    return [placed.open_blocks().__enter__().read(1 << 30) for placed in encode(drawn)]


@given(seed=st.integers(0, 2**32), block_rows=st.integers(1, 30), is_large=st.booleans())
def test_blocks_equal_those_of_numpy(seed: int, block_rows: int, is_large: bool) -> None:
    """Blocks of any size, of columns that are prepared one by one or together, and of few or many distinct strings."""
    drawn = random_drawing(seed, subtracks=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perfetto_subtracks, "BLOCK_ROWS", block_rows)
        compiled = encoded_bytes(drawn)
        if is_large:
            patch.setattr(subtrack_columns, "_FEW_ROWS", -1)
            patch.setattr(strings, "_FEW_WORDS", 0)
            assert encoded_bytes(drawn) == compiled
        use_numpy(patch)
        assert encoded_bytes(drawn) == compiled


@given(
    codes=st.lists(st.lists(st.integers(0, 4), min_size=5, max_size=5), min_size=1, max_size=4),
    rows=st.lists(st.integers(0, 4), max_size=12),
    groups=st.lists(st.integers(0, 1), min_size=4, max_size=4),
)
def test_numbers_are_in_order_of_appearance(
    codes: list[list[int]], rows: list[int], groups: list[int]
) -> None:
    core = load_core()
    if core is None:
        return
    columns = [np.array(column, dtype=np.uint32) for column in codes]
    numbers, used = number_columns(core, columns, np.array(rows, dtype=np.int64), groups[: len(codes)], 4)
    before = {0: 0, 1: 0}
    for column, group, own, own_used in zip(codes, groups, numbers, used, strict=False):
        in_order = list(dict.fromkeys(column[row] for row in rows if column[row]))
        assert own_used.tolist() == in_order
        expected = [before[group] + in_order.index(column[row]) + 1 if column[row] else 0 for row in rows]
        assert own.tolist() == expected
        before[group] += len(in_order)


@pytest.mark.parametrize(("rows", "most"), [([3], 9), ([-1], 9), ([0, 1, 2], 1)])
def test_codes_beyond_a_table_are_refused(core: Core, rows: list[int], most: int) -> None:
    with pytest.raises(ValueError, match="beyond"):
        number_columns(core, [np.array([0, 1, 2], dtype=np.uint32)], np.array(rows), [0], most)


WRONG: dict[str, dict[str, Any]] = {
    "too few values": {"values": ONES[:2]},
    "floats": {"values": np.ones(3)},
    "raw bytes of another size": {"values": np.ones(3, dtype=np.float32), "is_raw": True},
    "a matrix": {"values": np.ones((3, 2), dtype=np.uint8)},
    "a value that is not there": {"values": ONES, "rows": np.array([0, 3, 1])},
    "a negative row": {"values": ONES, "rows": np.array([0, -1, 1])},
    "too few rows": {"values": ONES, "rows": np.array([0, 1])},
    "too short a mask": {"values": ONES, "present": np.ones(2, dtype=bool)},
    "another byte order": {"values": ONES.astype(">u4")},
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_wrong_columns_do_not_reach_it(core: Core, case: str) -> None:
    with pytest.raises(ValueError, match=r"column|rows"):
        RowPackets(core, np.arange(3), np.ones(3, dtype=np.uint64), [RowColumn(**WRONG[case])])


def test_wrong_packets_do_not_reach_it(core: Core) -> None:
    rows = RowPackets(core, np.arange(3), np.ones(3, dtype=np.uint64), [RowColumn(values=ONES)])
    block = rows.find_shapes(0, 3)
    assert block is not None
    end = Layout(b"\0", (0,), (1,))
    assert rows.write(block, [Layout(b"\7\0\0", (1, 2), (1, 1))], end).tobytes() == b"\7\1\1" * 3
    for wrong in (Layout(b"\7\0\0", (1,), (1,)), Layout(b"\7\0\0\0", (1, 2), (1, 2))):
        with pytest.raises(ValueError, match="other columns"):
            rows.write(block, [wrong], end)
    with pytest.raises(ValueError, match="beyond its packet"):
        Layout(b"\7\0", (1,), (2,))
    with pytest.raises(ValueError, match="rows beyond"):
        rows.find_shapes(0, 4)
    unordered = np.array([2, 0]), np.ones(2, dtype=np.uint64)
    with pytest.raises(ValueError, match="not in order"):
        rows.write(block, [Layout(b"\7\0\0", (1, 2), (1, 1))], end, end, unordered)


def test_more_shapes_than_the_library_has_are_left_to_numpy(core: Core) -> None:
    columns = [
        RowColumn(values=(np.arange(512) >> bit & 1).astype(np.uint8), is_number=True) for bit in range(9)
    ]
    rows = RowPackets(core, np.arange(512), np.ones(512, dtype=np.uint64), columns)
    assert rows.find_shapes(0, 512) is None
    few = rows.find_shapes(0, 4)
    assert few is not None
    assert [shape.columns for shape in few.shapes] == [(), (0,), (1,), (0, 1)]
