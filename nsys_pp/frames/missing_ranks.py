"""Ranks of a run that no report has."""

from __future__ import annotations

import polars as pl


def list_missing_ranks(lanes: pl.DataFrame) -> list[int]:
    """List the ranks of the run without a lane; empty if lanes of unknown rank may have these ranks.

    Where the size of the run is unknown, these are the ranks below the last one.

    Args:
        lanes: `LANES`, or its columns rank and run_size.
    """
    ranks = set(lanes["rank"].drop_nulls())
    size = int(lanes["run_size"].fill_null(0).to_numpy().max(initial=0))
    missing = sorted(set(range(max([size, *(rank + 1 for rank in ranks)]))) - ranks)
    return missing if len(missing) > lanes["rank"].null_count() else []
