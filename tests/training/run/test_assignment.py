"""Assignment of lanes, against true assignments with random evidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.training.run.assignment import choose_pairs
from nsys_pp.training.run.end_evidence import CLEAR

COUNT = 40  # messages of each pair


def lanes_of(size: int, *, ranks: bool = True) -> pl.DataFrame:
    """Build the lanes of two stages."""
    rank = np.arange(2 * size) if ranks else [None] * (2 * size)
    return pl.DataFrame(
        {"lane": np.arange(2 * size, dtype=np.uint32), "stage": np.repeat([0, 1], size), "rank": rank},
        schema_overrides={"rank": pl.Int64},
    )


def candidates_of(score: Sequence[Sequence[float]], **columns: pl.Expr | pl.Series) -> pl.DataFrame:
    """Build the candidates of a matrix: evidence by lane of the first and of the second stage."""
    size = len(score)
    near, far = np.repeat(np.arange(size), size), np.tile(np.arange(size), size) + size
    flat = np.array(score, dtype=np.float64).ravel()
    return pl.DataFrame(
        {
            "near": near, "far": far, "near_lane": near, "far_lane": far, "score": flat, "contrast": flat,
            "count": np.full(size * size, COUNT), "together": np.full(size * size, COUNT), "wild_score": flat - 5,
            "wild_count": np.full(size * size, COUNT),
        }
    ).with_columns(kind=pl.lit(0), **columns)  # fmt: skip


def pairs_of(found: pl.DataFrame, *, doubtful: bool | None = None) -> set[tuple[int, int]]:
    kept = found if doubtful is None else found.filter(is_doubtful=doubtful)
    return set(kept.select("near", "far").rows())


@given(st.permutations(range(5)), st.lists(st.floats(0, 60), min_size=25, max_size=25))
@settings(deadline=None, max_examples=50)
def test_clear_pairs_are_chosen_whatever_the_others(order: list[int], noise: list[float]) -> None:
    score = [[noise[5 * row + column] for column in range(5)] for row in range(5)]
    for row, column in enumerate(order):
        score[row][column] = 75
    found = choose_pairs(candidates_of(score), lanes_of(5, ranks=False))
    assert pairs_of(found, doubtful=False) == {(row, 5 + column) for row, column in enumerate(order)}


@given(st.lists(st.floats(0, 60), min_size=16, max_size=16))
@settings(deadline=None, max_examples=100)
def test_each_lane_has_one_partner_and_certain_pairs_have_no_rival(values: list[float]) -> None:
    score = [values[4 * row : 4 * row + 4] for row in range(4)]
    found = choose_pairs(candidates_of(score), lanes_of(4))
    assert found["near"].is_unique().all()
    assert found["far"].is_unique().all()
    partner = {near: far - 4 for near, far in pairs_of(found)}
    for near, far in pairs_of(found, doubtful=False):
        row, column = near, far - 4
        least = score[row][column] - CLEAR
        assert least >= 0
        for other in range(4):
            if other != column and other not in partner.values():
                assert score[row][other] <= least
            if other != row and other not in partner:
                assert score[other][column] <= least


def test_the_order_of_ranks_decides_between_pairs_that_fit_as_well_but_not_against_others() -> None:
    alike = [[50, 48, 0], [49, 50, 0], [0, 0, 60]]
    found = choose_pairs(candidates_of(alike), lanes_of(3))
    assert pairs_of(found, doubtful=False) == {(2, 5)}
    assert pairs_of(found, doubtful=True) == {(0, 3), (1, 4)}
    crossed = [[20, 60, 0], [60, 20, 0], [0, 0, 60]]
    assert pairs_of(choose_pairs(candidates_of(crossed), lanes_of(3)), doubtful=False) == {
        (0, 4),
        (1, 3),
        (2, 5),
    }
    assert pairs_of(
        choose_pairs(candidates_of(alike), lanes_of(3).with_columns(rank=pl.Series([0, 1, 5, 2, 9, 3])))
    ) == {(2, 5)}


def test_without_evidence_the_order_of_ranks_is_doubtful() -> None:
    nothing = candidates_of([[0, 0], [0, 0]], count=pl.lit(0), together=pl.lit(0), wild_count=pl.lit(0))
    assert pairs_of(choose_pairs(nothing, lanes_of(2)), doubtful=True) == {(0, 2), (1, 3)}
    assert pairs_of(choose_pairs(nothing, lanes_of(2, ranks=False)), doubtful=True) == {(0, 2), (1, 3)}


def test_a_rival_that_fits_better_if_clocks_are_wrong_leaves_nothing_clear() -> None:
    score = [[40, 0], [0, 40]]
    wild = pl.Series([35.0, 90.0, 0.0, 35.0])
    found = choose_pairs(candidates_of(score, wild_score=wild), lanes_of(2, ranks=False))
    assert pairs_of(found, doubtful=False) == set()


def test_pairs_that_end_together_less_closely_than_others_are_none() -> None:
    """Lanes without a partner in the capture work in step with lanes of other partners."""
    score = [[300, 0, 0], [0, 310, 0], [0, 0, 150]]
    found = choose_pairs(
        candidates_of(score), lanes_of(3, ranks=False).with_columns(stage=pl.Series([0, 0, 0, 1, 1, 2]))
    )
    assert pairs_of(found) == {(0, 3), (1, 4)}


@pytest.mark.parametrize(("together", "expected"), [(40, {(0, 2), (1, 3)}), (20, set())])
def test_where_stages_are_unknown_most_messages_of_a_pair_end_together(
    together: int, expected: set[tuple[int, int]]
) -> None:
    lanes = lanes_of(2).with_columns(stage=pl.lit(None, pl.Int64))
    found = choose_pairs(candidates_of([[90, 0], [0, 90]], together=pl.lit(together)), lanes)
    assert pairs_of(found) == expected
