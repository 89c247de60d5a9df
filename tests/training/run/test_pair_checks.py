"""Checks of pairs by the times of their kernels."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from nsys_pp.training.run.pair_checks import check_pairs

COUNT, PERIOD_NS, TRANSFER_NS = 20, 5_000_000, 120_000


def pairs_of(
    forward_ns: int, backward_ns: int, *, scatter_ns: int = 0, seed: int = 1, bound_ns: int = 1_000
) -> pl.DataFrame:
    """Build the pairs of two lanes in both directions: receives end some time after sends, which wait at random."""
    random = np.random.default_rng(seed)
    parts = []
    for channel, (lane, late) in enumerate([(0, forward_ns), (1, backward_ns)]):
        start = np.arange(COUNT) * PERIOD_NS + random.integers(0, 500_000, COUNT)
        end = start + TRANSFER_NS + random.integers(0, 400_000, COUNT)
        received = end + late + random.integers(-scatter_ns, scatter_ns + 1, COUNT)
        sides = {"start_ns": start, "end_ns": end}, {"start_ns": received - TRANSFER_NS, "end_ns": received}
        frame = {"channel": np.full(COUNT, channel)}
        for side, suffix, own in zip(sides, ("", "_of_receive"), (lane, 1 - lane), strict=True):
            frame |= {f"{name}{suffix}": values for name, values in side.items()}
            frame |= {f"{name}{suffix}": np.full(COUNT, own) for name in ("lane", "clock")}
            frame |= {f"bound_ns{suffix}": np.full(COUNT, bound_ns), f"clock_group{suffix}": np.zeros(COUNT)}
        parts.append(pl.DataFrame(frame))
    return pl.concat(parts).with_columns(is_guess=pl.lit(True), peer_source=pl.lit("stages and order"))


def check(pairs: pl.DataFrame) -> tuple[int, int]:
    """Return the numbers of refuted and of displaced pairs."""
    checked = check_pairs(pairs)
    assert checked.drop("is_refuted", "is_displaced").equals(pairs)
    return checked.filter("is_refuted").height, checked.filter("is_displaced").height


CASES = {
    "ends together": ((0, 0, 9_000), (0, 0)),
    "clocks are wrong": ((3_000_000, -3_000_000, 9_000), (0, 2 * COUNT)),
    "another lane lies between": ((3_000_000, 3_000_000, 9_000), (2 * COUNT, 0)),
    "ends anywhere": ((0, 0, 4_000_000), (2 * COUNT, 0)),
}


@pytest.mark.parametrize(("times", "expected"), CASES.values(), ids=CASES)
def test_pairs_are_refuted_by_their_times(times: tuple[int, int, int], expected: tuple[int, int]) -> None:
    forward, backward, scatter = times
    assert check(pairs_of(forward, backward, scatter_ns=scatter)) == expected


def test_a_lane_between_two_others_shows_however_poorly_clocks_are_known() -> None:
    """An error of the clocks delays one direction by as much as it advances the other: the sum is that of two jobs."""
    wide = {"scatter_ns": 9_000, "bound_ns": 20_000_000}
    assert check(pairs_of(3_000_000, 3_000_000, **wide)) == (2 * COUNT, 0)
    assert check(pairs_of(9_000_000, -3_000_000, **wide)) == (2 * COUNT, 0)
    assert check(pairs_of(3_000_000, -3_000_000, **wide)) == (0, 0)


def test_messages_that_end_apart_among_others_that_end_together_are_refuted() -> None:
    """Some messages of a step may be missing on one side: its others are then paired with the next ones."""
    pairs = pairs_of(0, 0, scatter_ns=9_000)
    is_shifted = pl.int_range(pl.len()) % COUNT < COUNT // 3
    late = pl.when(is_shifted).then(4_000_000).otherwise(0)
    shifted = pairs.with_columns(pl.col(name) + late for name in ("start_ns_of_receive", "end_ns_of_receive"))
    assert check(shifted) == (2 * (COUNT // 3), 0)
    assert check(shifted.with_columns(is_guess=pl.lit(False))) == (2 * (COUNT // 3), 0)
    buffered = shifted.with_columns(end_ns=pl.col("start_ns") + 5_000)
    assert check(buffered.with_columns(is_guess=pl.lit(False))) == (0, 0)


def test_single_messages_that_arrive_too_early_are_refuted() -> None:
    pairs = pairs_of(0, 0)
    early = pl.int_range(pl.len()) == 7
    times = [
        pl.col(name) - pl.when(early).then(2_000_000).otherwise(0)
        for name in ("start_ns_of_receive", "end_ns_of_receive")
    ]
    assert check(pairs.with_columns(times)) == (1, 0)


def test_peers_that_the_communicator_names_and_clocks_that_cannot_be_compared_are_not_refuted() -> None:
    wrong = pairs_of(3_000_000, 3_000_000, scatter_ns=9_000)
    assert check(wrong.with_columns(is_guess=pl.lit(False))) == (0, 0)
    assert check(wrong.with_columns(clock_group=pl.lit(1.0))) == (0, 0)
    assert check(wrong.with_columns(bound_ns=pl.lit(None, pl.Int64))) == (0, 0)
    assert check(wrong.with_columns(bound_ns=pl.lit(None, pl.Int64), clock=pl.col("clock_of_receive"))) == (
        2 * COUNT,
        0,
    )


def test_one_clock_is_never_wrong_and_ends_that_are_apart_suggest_no_peers() -> None:
    displaced = pairs_of(3_000_000, -3_000_000, scatter_ns=9_000)
    assert check(displaced) == (0, 2 * COUNT)
    assert check(displaced.with_columns(clock=pl.col("clock_of_receive"))) == (2 * COUNT, 0)
    assert check(displaced.with_columns(peer_source=pl.lit("ends"))) == (2 * COUNT, 0)
