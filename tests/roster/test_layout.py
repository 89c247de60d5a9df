"""Places of ranks in a layout."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.roster.ranks import AXES, Layout, count_ranks, locate_ranks, parse_layout

_sizes = st.fixed_dictionaries({axis: st.integers(1, 4) for axis in AXES})


@given(_sizes, st.permutations(AXES))
def test_every_place_is_one_ranks(sizes: dict[str, int], order: list[str]) -> None:
    layout = Layout(**sizes, order=tuple(order))
    ranks = pl.Series(range(count_ranks(layout)))
    places = locate_ranks(ranks, layout)
    assert places.unique().height == len(ranks)
    assert {axis: (places[axis].max() or 0) + 1 for axis in AXES} == sizes  # type: ignore[operator]
    # neighbours differ in the first of the order that has several parts
    first = next((axis for axis in order if sizes[axis] > 1), None)
    if first is not None:
        assert places[0].drop(first).equals(places[1].drop(first))


def test_megatron_counts_tensors_first_and_the_pipeline_last() -> None:
    layout = parse_layout("pp=2,tp=2,dp=2")
    places = locate_ranks(pl.Series([0, 1, 2, 3, 4, 7]), layout)
    assert places.select("tp", "dp", "pp").rows() == [
        *((0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1))
    ]
    assert parse_layout("TP=2, pp=2 ,order=pp-tp") == Layout(pp=2, tp=2, order=("pp", "tp"))


def test_a_rank_beyond_the_layout_has_no_place() -> None:
    places = locate_ranks(pl.Series([None, -1, 0, 1, 2]), Layout(pp=2))
    assert places["pp"].to_list() == [None, None, 0, 1, None]
    assert places.schema == pl.Schema(dict.fromkeys(AXES, pl.Int64))
    assert locate_ranks(pl.Series([], dtype=pl.Int64), Layout()).is_empty()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "invalid part of a layout"),
        ("4", "invalid part of a layout"),
        ("pp=4,xp=2", "invalid part of a layout `xp=2`"),
        ("pp=4,pp=2", "`pp` occurs twice"),
        ("pp=four", "invalid number of parts `pp=four`"),
        ("pp=-1", "invalid number of parts `pp=-1`"),
        ("pp=0", "invalid number of parts `pp=0`"),
        ("pp=2,order=pp-xp", "invalid axis `xp`"),
        ("pp=2,order=pp-pp", "`pp` twice"),
        ("pp=2,tp=2,order=pp", "lacks `tp`, which has 2 parts"),
    ],
)
def test_a_layout_that_cannot_be_is_explained(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_layout(text)
