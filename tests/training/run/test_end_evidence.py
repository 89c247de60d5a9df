"""Evidence of pairs, against the definition in plain loops."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.clock import SKEW_NS
from nsys_pp.training.run import end_evidence
from nsys_pp.training.run.end_evidence import (
    CLEAR,
    SOON,
    WINDOW_NS,
    Times,
    describe_sends,
    score_ends,
    score_pairs,
)

SIZE = 3
TIGHT = [1_000 * 2**power for power in range(7)]
WIDE = [64_000 * 2**power for power in range(1, 6)]
DISTANCES = st.lists(
    st.tuples(st.integers(0, SIZE - 1), st.integers(-400_000, 4_000_000) | st.integers(-9_000, 9_000)),
    max_size=40,
)


def center_of(values: list[int]) -> float:
    """Return the center of the shortest interval with more than half of the values."""
    ordered, reach = sorted(values), len(values) // 2
    widths = [(ordered[at + reach] - ordered[at], at) for at in range(len(ordered) - reach)]
    _, at = min(widths)
    return (ordered[at] + ordered[at + reach]) / 2


def likelihood(off: list[float], scale: float) -> float:
    return max(
        sum(math.log(share * WINDOW_NS / (2 * scale) * math.exp(-apart / scale) + 1 - share) for apart in off)
        for share in (0.5, 0.95)
    )


@given(DISTANCES, st.integers(0, 300_000), st.integers(0, 3_000_000))
@settings(deadline=None, max_examples=100)
def test_evidence_is_a_ratio_of_likelihoods(rows: list[tuple[int, int]], least: int, most: int) -> None:
    hypothesis, apart = (np.array([row[column] for row in rows], dtype=np.int64) for column in (0, 1))
    anywhere = (np.full(SIZE, -np.inf), np.full(SIZE, np.inf))
    limits = (np.full(SIZE, -float(least)), np.full(SIZE, float(most)))
    (found,) = score_ends(hypothesis, apart, [limits])
    for other in (
        score_ends(hypothesis, apart, [anywhere, limits])[1],
        score_ends(hypothesis, apart, [limits], with_contrast=False)[0],
    ):
        for name in ("score", "center_ns", "count", "together"):
            assert getattr(other, name).tolist() == getattr(found, name).tolist()
        assert not other.contrast.any()
    for number in range(SIZE):
        values = [distance for at, distance in rows if at == number]
        assert found.count[number] == len(values)
        if not values:
            assert (found.score[number], found.contrast[number]) == (0, 0)
            continue
        center = min(max(center_of(values), -least), most)
        off = [abs(value - center) for value in values]
        near, wide = (max(likelihood(off, scale) for scale in scales) for scales in (TIGHT, WIDE))
        assert found.center_ns[number] == center
        assert found.together[number] == sum(apart <= SKEW_NS for apart in off)
        assert found.score[number] == pytest.approx(near - math.log1p((least + most) / 1_000))
        assert found.contrast[number] == pytest.approx(near - max(wide, 0))


@given(DISTANCES, st.integers(1, 5))
@settings(deadline=None, max_examples=50)
def test_the_number_of_likelihoods_in_a_product_changes_nothing(
    rows: list[tuple[int, int]], factors: int
) -> None:
    hypothesis, apart = (np.array([row[column] for row in rows], dtype=np.int64) for column in (0, 1))
    anywhere = (np.full(SIZE, -np.inf), np.full(SIZE, np.inf))
    (whole,) = score_ends(hypothesis, apart, [anywhere])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(end_evidence, "_FACTORS", factors)
        (divided,) = score_ends(hypothesis, apart, [anywhere])
    for name in ("score", "contrast"):
        assert getattr(divided, name) == pytest.approx(getattr(whole, name), abs=1e-9)


def test_many_messages_have_a_finite_score() -> None:
    count = 10_000
    (found,) = score_ends(np.zeros(count, np.int64), np.zeros(count, np.int64), [(np.zeros(1), np.zeros(1))])
    assert found.score[0] == pytest.approx(count * likelihood([0.0], TIGHT[0]))


def test_pairs_in_step_are_less_likely_than_pairs_that_end_together() -> None:
    random = np.random.default_rng(1)
    together, in_step = random.laplace(0, 8_000, 100), random.laplace(0, 12_000, 100)
    apart = np.concatenate([together, in_step, random.uniform(-5e6, 5e6, 100)]).astype(np.int64)
    (found,) = score_ends(np.repeat([0, 1, 2], 100), apart, [(np.full(3, -1e5), np.full(3, 1e5))])
    assert found.score[0] > found.score[1] + CLEAR > 2 * CLEAR > found.score[2]


def test_the_receive_of_a_buffered_message_ends_soon_after_the_start_of_its_send() -> None:
    """The kernel of the send also receives, and ends at any time."""
    random = np.random.default_rng(2)
    start = np.arange(50) * 10_000_000
    received = start + 300_000 + random.integers(0, 9_000, 50)
    times = Times(
        send_start=start,
        send_end=start + random.integers(0, 8_000_000, 50),
        receive_start=start - 1_000_000,
        receive_end=received,
    )
    (found,) = score_pairs(
        np.zeros(50, np.int64),
        times,
        waits=np.array([True]),
        reaches_ns=[np.array([60e3])],
        transfer_ns=np.array([1e6]),
    )
    assert found.score[0] > 100
    assert 300_000 < found.center_ns[0] < 309_000
    late = Times(
        send_start=start, send_end=start + 5_000, receive_start=start + 10_000, receive_end=start + 20_000
    )
    assert (
        score_pairs(
            np.zeros(50, np.int64),
            late,
            waits=np.array([False]),
            reaches_ns=[np.array([6e4])],
            transfer_ns=np.array([1e6]),
        )[0].count[0]
        == 0
    )


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10_000_000), st.integers(1, 500_000)), max_size=30)
)
@settings(deadline=None, max_examples=100)
def test_sends_are_described_by_their_durations_and_intervals(rows: list[tuple[int, int, int]]) -> None:
    group, start, length = (np.array([row[column] for row in rows], dtype=np.int64) for column in range(3))
    waits, transfer = describe_sends(group, start, start + length, 3)
    for number in range(3):
        own = sorted((begin, last) for at, begin, last in rows if at == number)
        lengths = sorted(last for _, last in own)
        if not own:
            assert (bool(waits[number]), transfer[number]) == (False, 0)
            continue
        longest = lengths[int(0.9 * (len(lengths) - 1))]
        assert waits[number] == (longest > 2 * lengths[0] + SKEW_NS)
        intervals = sorted(after[0] - before[0] for before, after in pairwise(own))
        short = intervals[int(0.1 * (len(intervals) - 1))] if intervals else 0
        assert transfer[number] == SOON * short
