"""Reports with all sources of aggregates."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from nsys_pp.frames.aggregates import AGGREGATE_FRAMES
from nsys_pp.frames.part import PartOptions
from nsys_pp.run.report import survey_report


def aggregate(path: Path) -> dict[str, pl.DataFrame]:
    """Build all aggregates of a report."""
    frames = survey_report(
        path, PartOptions(), nsys=None, with_training=True, with_aggregates=True
    ).part.frames
    return {name: frames[name] for name in AGGREGATE_FRAMES}
