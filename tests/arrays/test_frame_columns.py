"""Packed frames decoded as one: the same as each by itself, joined."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.frame_columns import join_packed
from nsys_pp.arrays.packed_frames import decode_frame, join_frames, pack_frame, unpack_frame
from nsys_pp.frames.conform import build_schema
from tests.arrays.test_packed_frames import ROW, SCHEMA, checked, measure

LISTS = ("values", "value_counts")
FLAT = build_schema({name: dtype for name, dtype in SCHEMA.items() if name not in LISTS})
FRAMES = st.lists(st.lists(ROW, max_size=12), max_size=4)


def frame_of(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").drop(LISTS)


@checked
@given(FRAMES)
def test_frames_decoded_as_one_are_those_decoded_each(frames: list[list[tuple[Any, ...]]]) -> None:
    packed = [pack_frame(frame_of(rows), FLAT, measure=measure) for rows in frames]
    found = join_packed(packed, FLAT)
    if load_core() is None:
        assert found is None
        return
    assert found is not None
    frame, sizes = found
    assert sizes == [len(rows) for rows in frames]
    assert_frame_equal(frame, join_frames([decode_frame(one, FLAT) for one in packed], FLAT))
    assert_frame_equal(frame, frame_of([row for rows in frames for row in rows]), check_exact=True)


@checked
@given(st.lists(ROW, min_size=1, max_size=12), st.integers(4, 10**4), st.integers(0, 255), st.integers(0, 5))
def test_damaged_frames_are_left_to_the_definition(
    rows: list[tuple[Any, ...]], at: int, value: int, cut: int
) -> None:
    """Damaged bytes have the same contents both ways; refused ones are refused both ways."""
    whole = pack_frame(frame_of(rows), FLAT, measure=measure)
    damaged = bytearray(whole[: len(whole) - cut])
    damaged[at % len(damaged)] = value
    found = join_packed([whole, bytes(damaged)], FLAT)
    try:
        expected = unpack_frame(bytes(damaged), FLAT)
    except Exception:  # whatever the definition raises
        assert found is None
        return
    if found is not None:
        assert_frame_equal(found[0][len(rows) :], expected)


def test_frames_with_lists_are_left_to_the_definition() -> None:
    rows = pl.DataFrame([(None,) * len(SCHEMA)], schema=SCHEMA, orient="row")
    assert join_packed([pack_frame(rows, SCHEMA, measure=measure)], SCHEMA) is None
    if load_core() is not None:
        joined = join_packed([pack_frame(SCHEMA.to_frame(), SCHEMA, measure=measure)] * 2, SCHEMA)
        assert joined is not None
        assert joined[1] == [0, 0]
        assert_frame_equal(joined[0], SCHEMA.to_frame())
