"""Packed frames: every frame comes back, with its types, nulls and bits."""

from __future__ import annotations

import math
import struct
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from nsys_pp.arrays.packed_frames import pack_frame, unpack_frames
from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.part import PART_FRAMES

SCHEMA = build_schema(
    {
        "id": pl.UInt32,
        "text": pl.String,
        "name": pl.Categorical(),
        "kind": pl.Enum(["a", "b", "c"]),
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "device": pl.Int32,
        "big": pl.UInt64,
        "share": pl.Float64,
        "flag": pl.Boolean,
        "values": pl.List(pl.Int64),
        "value_counts": pl.List(pl.Int64),
    }
)


TIMES = st.integers(-5, 10**6) | st.sampled_from([-(2**63), 2**63 - 1, 0])


LISTS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3)


ROW = st.tuples(
    *(
        st.none() | column
        for column in (
            st.integers(0, 2**32 - 1),
            st.text(max_size=4) | st.sampled_from(["a\0b", "", "\U0001f600"]),
            st.sampled_from(["x", "y", ""]),
            st.sampled_from(["a", "b", "c"]),
            TIMES,
            TIMES,
            st.integers(-(2**31), 2**31 - 1),
            st.integers(0, 2**64 - 1),
            st.floats(width=64),
            st.booleans(),
            LISTS,
            LISTS,
        )
    )
)


checked = settings(deadline=None, max_examples=150)


def there_and_back(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    half = len(frame) // 2
    back, sizes = unpack_frames([pack_frame(part, schema) for part in (frame[:half], frame[half:])], schema)
    assert sizes == [half, len(frame) - half]
    return back


@checked
@given(rows=st.lists(ROW, max_size=25))
@example(rows=[])
@example(rows=[(None,) * 12] * 3)
@example(rows=[(0, "", "", "a", 0, 0, 0, 0, -0.0, False, [], [])])
@example(rows=[(0, "", "", "a", 0, 0, 0, 0, -0.0, False, None, [])])
def test_a_frame_comes_back(rows: list[tuple[Any, ...]]) -> None:
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    back = there_and_back(frame, SCHEMA)
    assert back.schema == SCHEMA
    assert_frame_equal(back, frame, check_exact=True)
    for found, expected in zip(back["share"], frame["share"], strict=True):
        assert (
            found is expected is None
            or math.isnan(found)
            or struct.pack("d", found) == struct.pack("d", expected)
        )


@pytest.mark.parametrize("name", PART_FRAMES)
def test_empty_frames_of_parts(name: str) -> None:
    empty = PART_FRAMES[name].to_frame()
    assert_frame_equal(there_and_back(empty, PART_FRAMES[name]), empty)


@checked
@given(at=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.integers(0, 10**6))
def test_damaged_bytes_are_a_frame_or_an_error(at: int, value: int, cut: int) -> None:
    rows = [(i, f"t{i % 3}", "x", "a", i, i + 9, None, i, 0.5, True, [i, i + 1], [1, 1]) for i in range(40)]
    packed = bytearray(pack_frame(pl.DataFrame(rows, schema=SCHEMA, orient="row"), SCHEMA))
    packed[at % len(packed)] = value
    for data in (bytes(packed), bytes(packed[: cut % len(packed)])):
        try:
            frame, _ = unpack_frames([data], SCHEMA)
        except (ValueError, pl.exceptions.PolarsError):
            continue
        assert frame.schema == SCHEMA
        assert len(frame) < 2**17


def test_a_frame_of_another_schema_is_refused() -> None:
    packed = pack_frame(pl.DataFrame({"a": [1]}), build_schema({"a": pl.Int64}))
    for other in (SCHEMA, build_schema({"b": pl.Int64}), build_schema({"a": pl.Float64})):
        with pytest.raises(ValueError, match="another schema"):
            unpack_frames([packed], other)
    with pytest.raises(ValueError, match="is damaged"):
        unpack_frames([packed + b"x"], build_schema({"a": pl.Int64}))
