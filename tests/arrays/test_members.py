"""Members of sets of integers, against numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays.members import list_members, mark_members

numbers = st.lists(st.one_of(st.integers(-5, 20), st.integers(-(2**40), 2**40)), max_size=20)


@given(numbers, numbers)
def test_members_are_those_of_numpy(values: list[int], members: list[int]) -> None:
    own, others = np.array(values, dtype=np.int64), np.array(members, dtype=np.int64)
    assert mark_members(own, others).tolist() == np.isin(own, others).tolist()
    assert list_members(own).tolist() == np.unique(own).tolist()
