"""Counts of names and groups of launches, against plain loops."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.training.report import name_counts
from nsys_pp.training.report.name_counts import NameCounts
from nsys_pp.training.report.repetition import group_grams

NAMES = st.lists(st.integers(0, 5), min_size=1, max_size=120)


@pytest.mark.parametrize("block", [1, 7, 4096])
@given(names=NAMES, data=st.data())
def test_segments_have_the_counts_of_a_plain_loop(block: int, names: list[int], data: st.DataObject) -> None:
    positions = st.lists(st.integers(0, len(names)), min_size=1, max_size=6).map(sorted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_counts, "_LEAST_BLOCK", block)
        counts = NameCounts(np.array(names), 6)
        for begin in (data.draw(positions), data.draw(positions)):
            expected = [[names[a:b].count(name) for name in range(6)] for a, b in pairwise(begin)]
            assert counts.count(np.array(begin)).tolist() == expected


def test_few_segments_of_many_launches_are_counted_by_blocks() -> None:
    names = np.random.Generator(np.random.PCG64(3)).integers(0, 4, 50_000)
    begin = np.array([3, 4_096, 20_000, 49_999])
    expected = [Counter(names[a:b].tolist()) for a, b in pairwise(begin.tolist())]
    counted = NameCounts(names, 4).count(begin)
    assert counted.tolist() == [[count[name] for name in range(4)] for count in expected]


@given(st.one_of(NAMES, st.lists(st.integers(0, 500), min_size=1, max_size=20)))
def test_names_and_pairs_have_the_positions_of_a_plain_loop(names: list[int]) -> None:
    singles: dict[int, list[int]] = {}
    pairs: dict[tuple[int, int], list[int]] = {}
    for at, name in enumerate(names):
        singles.setdefault(name, []).append(at)
        pairs.setdefault((names[at - 1], name) if at else (-1, -1), []).append(at)
    first, size, positions = group_grams(np.array(names))
    groups = [positions[begin : begin + count].tolist() for begin, count in zip(first, size, strict=True)]
    assert groups == [rows for _, rows in sorted(singles.items())] + [
        rows for _, rows in sorted(pairs.items())
    ]
