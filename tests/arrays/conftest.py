"""The compiled functions, for tests that compare them with those of numpy."""

from __future__ import annotations

import pytest

from nsys_pp.arrays.core import Core, load_core


@pytest.fixture
def core() -> Core:
    found = load_core()
    if found is None:
        pytest.skip("no compiled functions: there was no compiler, or `NSYS_PP_CORE=0`")
    return found
