"""Packed frames: every frame comes back, with its types, nulls and bits."""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from polars.testing import assert_frame_equal

from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.arrays.packed_frames import (
    PlaneCode,
    as_words,
    choose_planes,
    pack_frame,
    restore_planes,
    size_of,
    unpack_frame,
)
from nsys_pp.frames.aggregates import DISTRIBUTION, MOST_VALUES
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


def measure(data: bytes) -> int:
    return len(zlib.compress(data, 1))


def there_and_back(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    return unpack_frame(pack_frame(frame, schema, measure=measure), schema)


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
@given(
    groups=st.lists(
        st.lists(st.integers(0, 50) | st.integers(0, 10**15), min_size=1, max_size=30), max_size=8
    )
)
def test_moments_of_distributions_follow_from_their_values(groups: list[list[int]]) -> None:
    schema = build_schema({"key": pl.Int64, **DISTRIBUTION})
    pairs = [(key, value) for key, group in enumerate(groups) for value in group]
    rows = pl.DataFrame(pairs, schema={"key": pl.Int64, "value": pl.Int64}, orient="row")
    frame = build_distributions(rows, ["key"], "value")
    packed = pack_frame(frame, schema, measure=measure)
    assert_frame_equal(unpack_frame(packed, schema), frame, check_exact=True)
    moments = pack_frame(
        frame.select("squares", "values", "value_counts"), schema_of("squares"), measure=measure
    )
    lists = pack_frame(frame.select("values", "value_counts"), schema_of(), measure=measure)
    assert len(moments) - len(lists) < 16  # no bytes per row


def schema_of(*names: str) -> pl.Schema:
    return build_schema({name: DISTRIBUTION[name] for name in (*names, "values", "value_counts")})


def test_rounded_distributions_come_back() -> None:
    schema = build_schema({"key": pl.Int64, **DISTRIBUTION})
    values = np.random.default_rng(1).integers(0, 10**12, 2 * MOST_VALUES)
    frame = build_distributions(pl.DataFrame({"key": values * 0, "value": values}), ["key"], "value")
    assert frame["values"].list.len().to_list() != [len(set(values.tolist()))]
    assert_frame_equal(there_and_back(frame, schema), frame, check_exact=True)


def test_many_rows_of_nothing_come_back() -> None:
    """A small file must not make large frames, so they have bytes that compress to nearly nothing."""
    schema = build_schema({"a": pl.Int64, "b": pl.String, "values": pl.List(pl.Int64)})
    frame = pl.DataFrame({"a": [0] * 10, "b": None, "values": [[0] * 50_000] * 10}, schema=schema)
    packed = pack_frame(frame, schema, measure=measure)
    assert len(packed) >= 500_000
    assert_frame_equal(unpack_frame(packed, schema), frame)
    with pytest.raises(ValueError, match="more rows than bytes"):
        unpack_frame(packed[:9_000], schema)


def test_lists_with_nulls_are_refused() -> None:
    schema = build_schema({"values": pl.List(pl.Int64)})
    with pytest.raises(ValueError, match="contains null"):
        pack_frame(pl.DataFrame({"values": [[1, None]]}), schema, measure=measure)


@checked
@given(at=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.integers(0, 10**6))
def test_damaged_bytes_are_a_frame_or_an_error(at: int, value: int, cut: int) -> None:
    rows = [(i, f"t{i % 3}", "x", "a", i, i + 9, None, i, 0.5, True, [i, i + 1], [1, 1]) for i in range(40)]
    packed = bytearray(pack_frame(pl.DataFrame(rows, schema=SCHEMA, orient="row"), SCHEMA, measure=measure))
    packed[at % len(packed)] = value
    for data in (bytes(packed), bytes(packed[: cut % len(packed)])):
        try:
            frame = unpack_frame(data, SCHEMA)
        except (ValueError, pl.exceptions.PolarsError):
            continue
        assert frame.schema == SCHEMA
        assert len(frame) < 2**17


def test_columns_that_refer_to_none_are_refused() -> None:
    schema = build_schema({"start_ns": pl.Int64, "end_ns": pl.Int64})
    times = [10**12 + i * i for i in range(60)]
    packed = pack_frame(pl.DataFrame({"start_ns": times, "end_ns": times}), schema, measure=measure)
    assert packed.count(b"minus") == 1
    at = packed.index(b"minus")
    other = packed.index(bytes([60, 0]), at) + 1  # length 60, column 0
    assert packed[other] == 0
    for value in (1, 2, 3, 4, 77, 0xFF):
        with pytest.raises(ValueError, match="lacks its other column"):
            unpack_frame(packed[:other] + bytes([value]) + packed[other + 1 :], schema)


def test_a_frame_of_another_schema_is_refused() -> None:
    packed = pack_frame(pl.DataFrame({"a": [1]}), build_schema({"a": pl.Int64}), measure=measure)
    for other in (SCHEMA, build_schema({"b": pl.Int64}), build_schema({"a": pl.Float64})):
        with pytest.raises(ValueError, match="another schema"):
            unpack_frame(packed, other)
    with pytest.raises(ValueError, match="more bytes"):
        unpack_frame(packed + b"x", build_schema({"a": pl.Int64}))


LEAST, MOST = -(2**63), 2**63 - 1


def test_encodings_that_contradict_the_columns_are_refused() -> None:
    code, planes = choose_planes(as_words(np.arange(9) ** 3), measure=measure)
    for wrong in (
        replace(code, method="minus"),
        replace(code, method="map"),
        replace(code, length=10**6),
        replace(code, width=code.width + 1),
    ):
        with pytest.raises(ValueError, match=r"column|short"):
            restore_planes(wrong, memoryview(planes))
    table = replace(code, method="map")
    with pytest.raises(ValueError, match="not in the table"):
        restore_planes(table, memoryview(planes), as_words(np.array([9])))
    with pytest.raises(ValueError, match="differ in length"):
        restore_planes(replace(code, method="minus"), memoryview(planes), as_words(np.array([9])))
    for width, length in ((9, 1), (-1, 1), (1, -1)):
        with pytest.raises(ValueError, match="invalid"):
            size_of(PlaneCode("plain", width, length))
