"""Packets of planes: no wrong column reaches the compiled functions; `test_packed_blocks.py` compares them with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nsys_pp.arrays.byte_planes import PlaneCode
from nsys_pp.arrays.core import Core
from nsys_pp.arrays.plane_packets import PlaneColumn, PlaneGroup, write_planes

PLAIN = PlaneCode("plain", 1, 3)
USUAL: dict[str, Any] = {"code": PLAIN, "at": 0, "offset": 1, "width": 1, "is_raw": False}
WRONG: dict[str, dict[str, Any]] = {
    "planes beyond the data": {"at": 1},
    "planes before the data": {"at": -1},
    "another length": {"code": PlaneCode("plain", 1, 2)},
    "a later column": {"code": PlaneCode("map", 1, 3, 0)},
    "no other column": {"code": PlaneCode("minus", 1, 3)},
    "beyond the packet": {"offset": 2},
    "before the packet": {"offset": -1},
    "raw bytes of another size": {"is_raw": True},
    "nine planes": {"code": PlaneCode("plain", 9, 0)},
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_wrong_columns_do_not_reach_it(core: Core, case: str) -> None:
    data = memoryview(b"\1\2\3")
    usual = PlaneGroup(3, b"\7\0", [PlaneColumn(**USUAL)])
    assert write_planes(core, data, [usual], None, head=b"x", stop=3).tobytes() == b"x\7\1\7\2\7\3"
    wrong = PlaneGroup(3, b"\7\0", [PlaneColumn(**{**USUAL, **WRONG[case]})])
    with pytest.raises(ValueError, match=r"column|planes|encoding"):
        write_planes(core, data, [wrong], None, head=b"", stop=3)


def test_groups_have_their_packets_and_tables_their_values(core: Core) -> None:
    data, groups = memoryview(b""), [PlaneGroup(1, b"a", []), PlaneGroup(2, b"bc", [])]
    order = np.array([1, 0, 1], dtype=np.uint8)
    assert write_planes(core, data, groups, order, head=b"", stop=0).tobytes() == b"bcabc"
    for wrong in ([1, 1, 1], [1, 0, 2], [0]):
        with pytest.raises(ValueError, match="groups"):
            write_planes(core, data, groups, np.array(wrong, dtype=np.uint8), head=b"", stop=0)
    key, table = PLAIN, PlaneCode("map", 1, 2, 0)
    columns = [PlaneColumn(key, 0, 0, 1, False), PlaneColumn(table, 3, 1, 1, False)]
    with pytest.raises(ValueError, match="not in the table"):
        write_planes(
            core, memoryview(b"\0\1\2\5\6"), [PlaneGroup(3, b"\0\0", columns)], None, head=b"", stop=5
        )
