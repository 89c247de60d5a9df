"""Frames that are built, gathered or joined block by block equal those of all rows at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays import scratch, scratch_frames
from nsys_pp.arrays.columns import gather, gather_rows, index_rows, keep_rows, numbers, pack, subtract
from nsys_pp.arrays.scratch import open_scratch, page_arrays
from nsys_pp.arrays.scratch_frames import build_blocks, join_frames, map_blocks, map_column, move_frame
from nsys_pp.arrays.search import number_rows
from nsys_pp.frames.ids import process_key
from nsys_pp.model.names import resolve

pytestmark = pytest.mark.skipif(not scratch._HAS_PAGES, reason="the system has no pages to drop")
WORDS = ["gemm", "adam", "forward"]
KIND = pl.Enum(WORDS)
optional = st.one_of(st.none(), st.integers(-9, 9))


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    """Columns of all types that frames have, each without null, with some, or with nulls alone."""
    count = draw(st.integers(0, 12))

    def column(values: st.SearchStrategy[object]) -> list[object]:
        chosen = draw(st.sampled_from([values, st.one_of(st.none(), values), st.none()]))
        return draw(st.lists(chosen, min_size=count, max_size=count))

    return pl.DataFrame(
        {
            "time": pl.Series(column(st.integers(-(2**62), 2**62)), dtype=pl.Int64),
            "small": pl.Series(column(st.integers(0, 9)), dtype=pl.UInt32),
            "share": pl.Series(column(st.floats(allow_nan=False)), dtype=pl.Float64),
            "is": pl.Series(column(st.booleans()), dtype=pl.Boolean),
            "name": pl.Series(column(st.sampled_from(WORDS)), dtype=pl.Categorical()),
            "kind": pl.Series(column(st.sampled_from(WORDS)), dtype=KIND),
            "text": pl.Series(column(st.sampled_from(WORDS)), dtype=pl.String),
        }
    )


def in_blocks(compute: Callable[[], object], block_rows: int) -> object:
    """Compute something with blocks of so few rows, and all of its arrays in files."""
    limits = ((scratch, "_LARGE_BYTES", 1), (scratch_frames, "_BLOCK_ROWS", block_rows))
    with ExitStack() as stack:
        for module, name, limit in (*limits, (scratch_frames, "_FEWEST_MOVED", 0)):
            stack.enter_context(mock.patch.object(module, name, limit))
        stack.enter_context(open_scratch(None))
        page_arrays(least_bytes=1)
        return compute()


def check(compute: Callable[[], object], block_rows: int) -> None:
    whole, pieces = compute(), in_blocks(compute, block_rows)
    if isinstance(whole, pl.DataFrame):
        assert isinstance(pieces, pl.DataFrame)
        assert pieces.schema == whole.schema
        assert pieces.equals(whole)
    elif isinstance(whole, pl.Series):
        assert isinstance(pieces, pl.Series)
        assert (pieces.dtype, pieces.name) == (whole.dtype, whole.name)
        assert pieces.equals(whole, null_equal=True)
    else:
        assert np.array_equal(pieces, whole)  # type: ignore[arg-type]
        assert np.asarray(pieces).dtype == np.asarray(whole).dtype


@given(frame=frames(), block_rows=st.integers(1, 5))
def test_frames_are_built_moved_and_joined(frame: pl.DataFrame, block_rows: int) -> None:
    check(lambda: build_blocks(len(frame), lambda first, stop: frame[first:stop]), block_rows)
    check(lambda: move_frame(frame), block_rows)
    check(lambda: join_frames([frame, frame[1:], frame[:0]]), block_rows)


@given(frame=frames(), block_rows=st.integers(1, 5), data=st.data())
def test_rows_are_kept_and_gathered(frame: pl.DataFrame, block_rows: int, data: st.DataObject) -> None:
    count = len(frame)
    with mock.patch("nsys_pp.arrays.columns._FEW_ROWS", 0):
        is_kept = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=bool)
        check(lambda: keep_rows(frame, is_kept), block_rows)
    rows = np.array(data.draw(st.lists(st.integers(-1, count - 1), max_size=9)), dtype=np.int64)
    if not count:
        rows[:] = -1
    check(lambda: gather_rows(frame, frame.columns, rows), block_rows)
    for name in frame.columns if count else []:
        check(lambda name=name: gather(frame[name], rows), block_rows)  # type: ignore[misc]
    check(lambda: index_rows(frame, rows[rows >= 0]), block_rows)


@given(
    rows=st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 3), optional), min_size=1, max_size=12),
    block_rows=st.integers(1, 5),
)
def test_rows_are_numbered(rows: list[tuple[int, int, int | None]], block_rows: int) -> None:
    frame = pl.DataFrame(rows, schema={"a": pl.Int64, "b": pl.Int32, "c": pl.Int64}, orient="row")
    columns = [frame["a"].to_numpy(), frame["b"].to_numpy().astype(np.int64)]
    check(lambda: pack(*columns), block_rows)
    check(lambda: number_rows([*frame])[0], block_rows)
    check(lambda: number_rows([*frame])[1], block_rows)


@given(
    ids=st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=12),
    listed=st.lists(st.integers(0, 9), unique=True),
    block_rows=st.integers(1, 5),
)
def test_names_are_resolved(ids: list[int | None], listed: list[int], block_rows: int) -> None:
    strings = pl.DataFrame(
        {
            "id": pl.Series(listed, dtype=pl.Int32),
            "text": pl.Series([f"n{key // 2}_v1" for key in listed], dtype=pl.String),
        }
    )
    wanted = pl.Series("name_id", ids, dtype=pl.Int32)
    check(lambda: resolve(wanted, strings), block_rows)
    check(lambda: resolve(wanted, strings, strip=r"_v\d+$"), block_rows)


@given(keys=st.lists(st.integers(-(2**62), 2**62), max_size=12), block_rows=st.integers(1, 5))
def test_values_are_computed(keys: list[int], block_rows: int) -> None:
    column = pl.Series("thread", keys, dtype=pl.Int64)
    check(lambda: map_column(column, process_key), block_rows)
    values = column.to_numpy()
    check(lambda: map_blocks(len(values), np.int64, lambda first, stop: values[first:stop] // 2), block_rows)


@given(rows=st.lists(st.tuples(optional, optional), max_size=12), block_rows=st.integers(1, 5))
def test_columns_are_subtracted(rows: list[tuple[int | None, int | None]], block_rows: int) -> None:
    frame = pl.DataFrame(rows, schema={"end": pl.Int64, "start": pl.Int64}, orient="row")
    lengths = [None if None in row else row[0] - row[1] for row in rows]  # type: ignore[operator]
    assert subtract(frame["end"], frame["start"]).to_list() == lengths
    check(lambda: subtract(frame["end"], frame["start"]), block_rows)
    parts = pl.concat([frame[:3], frame[3:]], rechunk=False)  # not one array
    for column in (frame["end"], frame["end"].fill_null(0), parts["end"].fill_null(0)):
        check(lambda column=column: numbers(column), block_rows)  # type: ignore[misc]


@pytest.mark.parametrize("is_open", [True, False])
def test_blocks_are_of_all_rows_unless_working_arrays_are_in_files(is_open: bool) -> None:
    sizes: list[int] = []

    def build(first: int, stop: int) -> pl.DataFrame:
        sizes.append(stop - first)
        return pl.DataFrame({"row": np.arange(first, stop)})

    with mock.patch.object(scratch_frames, "_BLOCK_ROWS", 4), open_scratch(None):
        if is_open:
            page_arrays(least_bytes=1)
        frame = build_blocks(10, build)
        paged = scratch.is_paged()
    assert sizes == ([4, 4, 2] if paged else [10])
    assert frame["row"].to_list() == [*range(10)]
