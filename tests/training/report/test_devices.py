from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.training.launched import list_devices, number_devices


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 1)), min_size=1))
def test_devices_are_numbered_in_order(rows: list[tuple[int, int]]) -> None:
    schema = {"process_key": pl.Int64, "device_id": pl.Int32}
    devices = list_devices(pl.DataFrame(rows, schema=schema, orient="row"))
    assert devices.rows() == sorted(set(rows))
    asked = pl.DataFrame([*rows, (1, None), (3, 0)], schema=schema, orient="row")
    assert number_devices(asked, devices).tolist() == [devices.rows().index(row) for row in rows] + [-1, -1]
