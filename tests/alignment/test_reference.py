"""Operations of a timeline: insertion of others, and their order by gap, against the functions of NumPy that define them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment.candidates import _order_by_gap
from nsys_pp.alignment.near import Reference


def _draw(random: np.random.Generator, first_instance: int) -> Reference:
    """Draw operations of some keys; many have equal times, and gaps are equal or none."""
    count = int(random.integers(0, 30))
    key, times = np.sort(random.integers(0, 4, count)), random.integers(0, 9, count).astype(np.float64)
    return Reference(
        key=key,
        times=times[np.lexsort((times, key))],
        gap_before=random.choice([1.0, 2.0, np.nan], count),
        kind=random.integers(0, 4, count),
        channels=random.integers(0, 5, count),
        instances=first_instance + np.arange(count),
    )


@given(st.integers(0, 2**32 - 1))
def test_operations_are_inserted_after_their_key_and_before_equal_times(seed: int) -> None:
    random = np.random.default_rng(seed)
    own, other = _draw(random, 0), _draw(random, 100)
    joined = own.insert(other)
    order = np.lexsort(
        (
            np.concatenate([np.ones(len(own)), np.zeros(len(other))]),  # new ones first
            np.concatenate([own.times, other.times]),
            np.concatenate([own.key, other.key]),
        )
    )
    for name in Reference.__struct_fields__:
        expected = np.concatenate([getattr(own, name), getattr(other, name)])[order]
        assert np.array_equal(getattr(joined, name), expected, equal_nan=name == "gap_before"), name


@given(st.integers(0, 2**32 - 1))
def test_gaps_are_ordered_by_key(seed: int) -> None:
    reference = _draw(np.random.default_rng(seed), 0)
    order = np.lexsort((reference.gap_before, reference.key))
    assert _order_by_gap(reference).tolist() == order[~np.isnan(reference.gap_before[order])].tolist()
