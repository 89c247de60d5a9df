"""The real versions of nsys that are asked."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def nsys(each_nsys: str) -> str:
    """Every real version is asked."""
    return each_nsys
