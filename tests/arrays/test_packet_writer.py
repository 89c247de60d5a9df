"""Records written by the compiled functions: their bytes are those of the numpy functions of `output/perfetto`."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.packet_writer import RecordColumn, RecordGroup, join_tails, write_records
from nsys_pp.output.perfetto.packets import compress_block
from nsys_pp.output.perfetto.wire import Column, encode_rows, encode_strings, join_records
from tests.arrays.packet_blocks import draw_block
from tests.arrays.ways import use_numpy


@given(st.integers(0, 2**32 - 1))
def test_blocks_equal_those_of_numpy(seed: int) -> None:
    block = draw_block(seed)
    compiled = compress_block(block)
    with pytest.MonkeyPatch.context() as patch:
        use_numpy(patch)
        assert compress_block(block) == compiled


@given(st.lists(st.text(max_size=300), min_size=1, max_size=40), st.integers(1, 4))
def test_strings_equal_those_of_numpy(texts: list[str], repeats: int) -> None:
    strings = pl.Series(texts * repeats * 4)
    compiled = encode_strings(1, 1, 2, strings)
    with pytest.MonkeyPatch.context() as patch:
        use_numpy(patch)
        assert encode_strings(1, 1, 2, strings) == compiled


def test_records_are_in_order_of_their_positions(core: Core) -> None:
    columns = [RecordColumn(np.array([1, 300], dtype=np.uint16), 1, 2)]
    groups = [
        RecordGroup(np.array([2, 0]), b"\x08\0\0", columns),
        RecordGroup(np.array([1]), b"\x07", []),
    ]
    records = write_records(core, groups)
    assert records.tobytes().hex() == "08ac0207088100"
    numbers = np.array([1, 300], dtype=np.uint16)
    parts = (b"\x08", Column(numbers, 2))
    seven = np.array([[7]], dtype=np.uint8)
    defined = join_records([(np.array([2, 0]), encode_rows(parts, 2)), (np.array([1]), seven)])
    assert defined.tobytes() == records.tobytes()
    assert write_records(core, []).tobytes() == b""


ONES = np.ones(2, dtype=np.uint8)
WRONG: dict[str, tuple[Any, bytes, list[RecordColumn]]] = {
    "repeated": (np.array([1, 1]), b"a", []),
    "beyond": (np.array([0, 2]), b"a", []),
    "negative": (np.array([-1, 0]), b"a", []),
    "too few values": (np.arange(2), b"abc", [RecordColumn(ONES[:1], 0, 1)]),
    "too wide": (np.arange(2), b"abc", [RecordColumn(ONES, 1, 3)]),
    "before the record": (np.arange(2), b"abc", [RecordColumn(ONES, -1, 1)]),
    "without width": (np.arange(2), b"abc", [RecordColumn(ONES, 0, 0)]),
    "signed": (np.arange(2), b"abc", [RecordColumn(ONES.astype(np.int64), 0, 1)]),
    "floats": (np.arange(2), b"abc", [RecordColumn(np.ones(2), 0, 1)]),
    "another matrix": (np.arange(2), b"abc", [RecordColumn(np.ones((2, 2), dtype=np.uint8), 0, 3)]),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_wrong_records_do_not_reach_it(core: Core, case: str) -> None:
    with pytest.raises(ValueError, match=r"position|column"):
        write_records(core, [RecordGroup(*WRONG[case])])


@pytest.mark.parametrize("lengths", [[1], [1, 3], [3, -1], [2, 1]])
def test_tails_have_the_lengths_of_the_records(core: Core, lengths: list[int]) -> None:
    records = np.array([[1, 2], [3, 4]], dtype=np.uint8)
    assert join_tails(core, records, np.array([0, 2]), b"ab") == b"\1\2\3\4ab"
    with pytest.raises(ValueError, match="tails"):
        join_tails(core, records, np.array(lengths), b"ab")
