"""Random rows of a group and a value each."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

NEAR = st.integers(-3, 6)
FAR = st.integers(-(1 << 62), (1 << 62) - 1)  # span too much for one number of group and value
ROWS = st.one_of(
    st.lists(st.tuples(st.integers(0, 3), NEAR), max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.one_of(NEAR, FAR)), max_size=12),
)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(rows, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
