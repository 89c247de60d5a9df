"""Quantiles of residuals, against NumPy's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment.lines import find_quantile


@given(
    st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=40), st.sampled_from([0.0, 0.25, 0.5, 0.95, 1.0])
)
def test_a_quantile_is_that_of_numpy_to_the_last_bit(values: list[float], share: float) -> None:
    assert find_quantile(np.array(values), share) == float(np.quantile(values, share))
