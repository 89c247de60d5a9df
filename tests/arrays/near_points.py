"""Random points in channels that are near others, for the compiled search, and its definition in plain loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.near_finder import NearFinder, Weighing
from nsys_pp.arrays.types import Floats, Int64s


@dataclass(frozen=True, kw_only=True)
class NearPoints:
    """Points and others, each with a channel, a kind and a time; and a tolerance."""

    channel: Int64s
    kind: Int64s
    base: Floats
    predicted: Floats
    other_channel: Int64s
    other_kind: Int64s
    other_time: Floats
    other_base: Floats
    tolerance: float

    @property
    def limits(self) -> tuple[float, float]:
        """First and last time of the others."""
        return float(self.other_time.min(initial=0.0)), float(self.other_time.max(initial=0.0))


def draw_near_points(seed: int) -> NearPoints:
    """Draw points of two keys, whose times are apart; many have equal distances."""
    random = np.random.default_rng(seed)
    count, others = random.integers(0, 60, 2)
    channels = random.integers(1, 9, 2)
    span = int(random.choice([8, 100, 1_000]))
    key, other_key = random.integers(0, 2, count), np.sort(random.integers(0, 2, others))
    other_time = random.integers(0, span, others).astype(np.float64)
    other_time = other_time[np.lexsort((other_time, other_key))]
    return NearPoints(
        channel=random.integers(0, channels[0], count),
        kind=random.choice([-1, 1, 2], count),
        base=key * 10_000.0,
        predicted=random.integers(-20, span + 20, count).astype(np.float64),
        other_channel=random.integers(0, channels[1], others),
        other_kind=random.integers(0, 3, others),
        other_time=other_time,
        other_base=other_key * 10_000.0,
        tolerance=float(random.integers(0, 12)),
    )


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
    """Build the compiled search; every other channel of the points has messages."""
    channels = np.arange(int(points.channel.max(initial=-1)) + 1)
    section = np.diff(points.other_base, prepend=-1.0) != 0
    return NearFinder(
        core,
        channel=points.channel,
        kind=points.kind,
        end=points.predicted + 3.0,
        base=points.base,
        share=np.ones(len(points.channel)),
        is_message=channels % 2 == 0,
        is_exchange=channels % 4 == 0,
        times=points.other_time + points.other_base,
        other_time=points.other_time,
        sections=np.unique([0, *np.flatnonzero(section), len(section)]),
        other_channel=points.other_channel,
        other_kind=points.other_kind,
        limits=points.limits,
        beyond=1.0,
        weighing=WEIGHING,
    )


def find_near_points(core: Core, points: NearPoints) -> list[tuple[int, int, int, int]]:
    """Find point, other and both channels of all pairs, with the compiled search."""
    finder = build_finder(core, points)
    found = finder.find((-3.0, 0.0, 0.0), points.tolerance, 2.0)
    channel, other_channel = np.divmod(found.numbers[found.link], max(finder.other_channel_count, 1))
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
            is_one_key = points.base[point] == points.other_base[other]
            is_one_side = points.kind[point] == points.other_kind[other] >= 0
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
