from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.training.lanes import _find_rank_grid as find_rank_grid


@given(
    stride=st.integers(1, 4),
    count=st.integers(1, 6),
    outer=st.integers(1, 4),
    data=st.data(),
)
def test_a_grid_of_ranks_has_the_true_stages_or_none(
    stride: int, count: int, outer: int, data: st.DataObject
) -> None:
    size = stride * count * outer
    gone = data.draw(st.sets(st.integers(0, size - 1), max_size=size - 1))
    ranks = [rank for rank in range(size) if rank not in gone]
    true = [rank // stride % count for rank in ranks]
    groups = [sorted(set(true)).index(stage) for stage in true]
    grid = find_rank_grid(pl.DataFrame({"rank": ranks, "stage": groups}), len(gone))
    if grid is not None:
        assert grid["stage"].to_list() == true
        assert grid["stage_count"].unique().to_list() == [count]
    else:
        assert len(gone) > 1 or size < 3  # one missing rank leaves no doubt
