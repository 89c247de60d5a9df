"""Columns as arrays, against their definition."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.report import NAME
from nsys_pp.training.report.columns import find_rows, gather_rows, is_named, list_devices, number_devices

names = st.lists(st.one_of(st.none(), st.sampled_from(["gemm", "SendRecv", "ncclSend_Recv", "adam"])))


@settings(deadline=None, max_examples=50)
@given(names)
def test_a_name_is_one_in_which_the_pattern_is_found(some: list[str | None]) -> None:
    found = is_named(pl.Series(some, dtype=pl.Categorical()), "(?i)send_?recv").tolist()
    assert found == [name is not None and re.search("(?i)send_?recv", name) is not None for name in some]


@given(st.lists(st.integers(0, 9), unique=True), st.lists(st.integers(0, 9)))
def test_rows_are_where_the_ids_stand(ids: list[int], wanted: list[int]) -> None:
    found = find_rows(np.array(ids, dtype=np.int64), np.array(wanted, dtype=np.int64)).tolist()
    assert found == [ids.index(one) if one in ids else -1 for one in wanted]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 1)), min_size=1))
def test_devices_are_numbered_in_order(rows: list[tuple[int, int]]) -> None:
    schema = {"process_key": pl.Int64, "device_id": pl.Int32}
    devices = list_devices(pl.DataFrame(rows, schema=schema, orient="row"))
    assert devices.rows() == sorted(set(rows))
    asked = pl.DataFrame([*rows, (1, None), (3, 0)], schema=schema, orient="row")
    assert number_devices(asked, devices).tolist() == [devices.rows().index(row) for row in rows] + [-1, -1]


@given(st.lists(st.one_of(st.none(), st.integers(0, 9))), st.data())
def test_what_no_row_says_is_null(some: list[int | None], data: st.DataObject) -> None:
    frame = pl.DataFrame(
        {"rank": some, "name": [str(one) for one in some]}, schema={"rank": pl.Int64, "name": NAME}
    )
    row = data.draw(st.lists(st.integers(-1, len(some) - 1)))
    taken = gather_rows(frame, ("name", "rank"), np.array(row, dtype=np.int64))
    assert taken.rows() == [(None, None) if one < 0 else (str(some[one]), some[one]) for one in row]
    assert taken.schema == build_schema({"name": NAME, "rank": pl.Int64})
