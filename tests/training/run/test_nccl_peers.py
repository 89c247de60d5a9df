"""Lanes of NCCL's ranks."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.training.run.nccl_peers import PEERS, find_nccl_peers


def find(
    rows: Sequence[tuple[int, int | None, int]], *, stages: list[int | None], ranks: list[int | None]
) -> dict[int, tuple[int | None, bool]]:
    """Return the peer lane of each message, and whether it is a guess, by (lane, rank, peer)."""
    lane_count = len(stages)
    lanes = pl.DataFrame(
        {"lane": range(lane_count), "stage": stages, "rank": ranks},
        schema={"lane": pl.UInt32, "stage": pl.Int64, "rank": pl.Int64},
    )
    messages = pl.DataFrame(
        rows, schema={"lane": pl.UInt32, "rank": pl.Int64, "peer": pl.Int64}, orient="row"
    )
    messages = messages.with_columns(communicator=pl.lit(7, pl.UInt64)).with_row_index("row")
    found = find_nccl_peers(messages.join(lanes.select("lane", "stage"), on="lane"), lanes)
    assert found.schema == PEERS
    return {row: (peer, guess) for row, peer, guess in found.sort("row").rows()}


def test_recorded_ranks_name_lanes_and_peers_without_a_report() -> None:
    found = find([(0, 0, 1), (1, 1, 0), (1, 1, 2)], stages=[None, None], ranks=[None, None])
    assert found == {0: (1, False), 1: (0, False), 2: (None, False)}


def test_other_ranks_are_guessed_if_all_peers_are_mutual() -> None:
    rows = [(0, None, 1), (1, None, 0), (1, None, 2), (2, None, 1)]
    assert find([(0, None, 2), (1, None, 0), (2, None, 1)], stages=[0, 1, 2], ranks=[None, None, None]) == {}
    assert find(rows, stages=[0, 1, 2], ranks=[None, None, None]) == {
        0: (1, True), 1: (0, True), 2: (2, True), 3: (1, True),
    }  # fmt: skip


def test_no_lane_is_its_own_peer() -> None:
    assert find([(0, None, 0)], stages=[None], ranks=[1]) == {}
