"""The registry of aggregates."""

from __future__ import annotations

from nsys_pp.aggregates.registry import AGGREGATES
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES


def test_each_schema_has_a_function() -> None:
    assert [*AGGREGATES] == [*AGGREGATE_FRAMES]
