"""Fixtures of the tests of projection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nsys_pp.arrays.core import load_core
from tests.arrays.ways import use_numpy


@pytest.fixture(scope="module", params=["compiled", "numpy"])
def each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the tests of a module with the compiled functions, and again in numpy."""
    if request.param == "compiled" and load_core() is None:
        pytest.skip("no compiled functions: there was no compiler, or `NSYS_PP_CORE=0`")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            use_numpy(patch)
        yield
