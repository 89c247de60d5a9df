"""Random points in channels that are near others, for the compiled search, and its definition in plain loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.near_finder import NearFinder, Weighing
from nsys_pp.arrays.types import Floats, Int64s


@dataclass(frozen=True, kw_only=True)
class NearPoints:
    """Points and others, each with a key, a channel, a kind and a time; and a tolerance."""

    key: Int64s
    channel: Int64s
    kind: Int64s
    predicted: Floats
    other_key: Int64s
    other_channel: Int64s
    other_kind: Int64s
    other_time: Floats
    tolerance: float


def draw_near_points(seed: int) -> NearPoints:
    """Draw points of two keys, whose times are apart; many have equal distances."""
    random = np.random.default_rng(seed)
    count, others = random.integers(0, 60, 2)
    channels = random.integers(1, 9, 2)
    span = int(random.choice([8, 100, 1_000]))
    key, other_key = random.integers(0, 3, count), np.sort(random.integers(0, 3, others))
    other_time = random.integers(0, span, others).astype(np.float64)
    other_time = other_time[np.lexsort((other_time, other_key))]
    return NearPoints(
        key=key,
        channel=5 + 2 * random.integers(0, channels[0], count),
        kind=random.integers(0, 4, count),
        predicted=random.integers(-20, span + 20, count).astype(np.float64),
        other_key=other_key,
        other_channel=3 * random.integers(0, channels[1], others),
        other_kind=random.integers(0, 4, others),
        other_time=other_time,
        tolerance=float(random.integers(0, 12)),
    )


TOGETHER = 2.0
WEIGHING = Weighing(
    prior_count=2.0,
    lockstep=9.2,
    missing=2.0,
    missing_message=0.2,
    measurable=6,
    measurable_whole=3,
    min_sharp=3,
    wide=8.0,
    first_scatter=2.0,
)


def build_finder(core: Core, points: NearPoints) -> NearFinder:
    """Build the compiled search; kinds 1 and 2 are sends and receives."""
    return NearFinder(
        core,
        key=points.key,
        channel=points.channel,
        kind=points.kind,
        end=points.predicted + 3.0,
        other_key=points.other_key,
        other_channel=points.other_channel,
        other_kind=points.other_kind,
        other_time=points.other_time,
        send=1,
        receive=2,
        exchange=3,
        beyond=1.0,
        together=TOGETHER,
        weighing=WEIGHING,
    )


def find_near_points(core: Core, points: NearPoints) -> list[tuple[int, int, int, int]]:
    """Find point, other and both channels of all pairs, with the compiled search."""
    finder = build_finder(core, points)
    found = finder.find((-3.0, 0.0, 0.0), points.tolerance, 2.0)
    channel, other_channel = np.divmod(found.numbers[found.link], max(finder.other_channel_count, 1))
    channel, other_channel = (
        np.unique(points.channel)[channel],
        np.unique(points.other_channel)[other_channel],
    )
    assert (np.diff(found.numbers) > 0).all()
    assert found.predicted.tolist() == points.predicted.tolist()
    assert (
        found.residual.tolist() == (points.other_time[found.other] - points.predicted[found.point]).tolist()
    )
    columns = (found.point, found.other, channel, other_channel)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def define_near_points(points: NearPoints) -> list[tuple[int, int, int, int]]:
    """List the same in plain loops: of pairs of channels, the nearest other of each point, then the nearest point of each other."""
    nearest: dict[tuple[int, int], tuple[float, int]] = {}
    for point, time in enumerate(points.predicted.tolist()):
        for other, other_time in enumerate(points.other_time.tolist()):
            apart = abs(other_time - time)
            is_one_key = points.key[point] == points.other_key[other]
            is_one_side = points.kind[point] == points.other_kind[other] in (1, 2)
            if is_one_key and not is_one_side and apart <= points.tolerance:
                key = (point, int(points.other_channel[other]))
                nearest[key] = min(nearest.get(key, (apart, other)), (apart, other))
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for (point, _), (apart, other) in nearest.items():
        own = (int(points.channel[point]), other)
        best[own] = min(best.get(own, (apart, point)), (apart, point))
    return sorted(
        (point, other, channel, int(points.other_channel[other]))
        for (channel, other), (_, point) in best.items()
    )
