"""Stages of a run with missing ranks, by the grids in which ranks are laid out."""

from __future__ import annotations

import numpy as np
import polars as pl


def find_rank_grid(staged: pl.DataFrame, missing_count: int) -> pl.DataFrame | None:
    """Find the stages of a run with missing ranks: the one grid of ranks that agrees with the groups found.

    In a layout of any order, stage s has the ranks with `rank // stride % count == s`, for one stride and one count.

    Args:
        staged: Lanes with rank and stage, the number of their group in the order of first forwards.
        missing_count: Ranks of the run without a lane.

    Returns:
        The lanes with their stage and the number of stages; None if ranks are unknown, no grid agrees, or several with
        different stages do.
    """
    if staged["rank"].null_count() or not staged["rank"].is_unique().all():
        return None
    rank, group = staged["rank"].to_numpy(), staged["stage"].to_numpy()
    size = len(rank) + missing_count
    grids: set[tuple[int, ...]] = set()  # number of stages, and stage of each lane
    for count in range(int(group.max()) + 1, size + 1):
        for stride in range(1, size // count + 1):
            if size % (stride * count):
                continue
            stage = rank // stride % count
            if (np.unique(stage, return_inverse=True)[1] == group).all():
                grids.add((count, *stage.tolist()))
    if len(grids) != 1:
        return None
    count, *stages = next(iter(grids))
    return staged.with_columns(stage=pl.Series(stages, dtype=pl.Int64), stage_count=pl.lit(count, pl.Int64))
