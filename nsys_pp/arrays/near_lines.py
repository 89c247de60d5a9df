"""Evidence of many lines between points and others, and fits of lines to pairs of these: one compiled call (`core.c`) for all lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.core_arguments import find_address
from nsys_pp.arrays.near_arguments import AgainstArgument, FitsArgument, LinesArgument
from nsys_pp.arrays.near_finder import NearFinder
from nsys_pp.arrays.types import Floats, Int64s

_ROOM = 8  # pairs of starts of each point, before there is more


class ContradictingPoints(Struct, frozen=True, kw_only=True):
    """Points that are evidence against a line unless their channel is paired.

    Attributes:
        point: Number of each, by key.
        bounds: First one of each key that the others have, ascending, and their number.
        most: Most evidence against a line by the points of a key.
    """

    point: Int64s
    bounds: Int64s
    most: float


class LineWeights(Struct, frozen=True, kw_only=True):
    """Evidence of lines, a row of each, by expected scatter; values as of `Weighed`.

    Attributes:
        evidence: Evidence, less that against the line by tested points.
        exchange_evidence: The same, of exchanges.
        sharpest: Least scatter.
    """

    evidence: Floats
    exchange_evidence: Floats
    sharpest: Floats


class LineStarts(Struct, frozen=True, kw_only=True):
    """First lines, and the pairs that fits begin with.

    Attributes:
        lines: Offset, rate and center of each, in columns.
        evidence: Evidence of each.
        bounds: First pair of each list of each line, the best list first, and the end of the last: a row of each line.
        point: Point of each pair.
        residual: Its residual.
    """

    lines: Floats
    evidence: Floats
    bounds: Int64s
    point: Int64s
    residual: Floats

    def select(self, rows: Int64s) -> LineStarts:
        """Return some of the lines."""
        return LineStarts(
            lines=self.lines[rows],
            evidence=self.evidence[rows],
            bounds=self.bounds[rows],
            point=self.point,
            residual=self.residual,
        )


class StartFits(Struct, frozen=True, kw_only=True):
    """Lines fitted to starts; lines as of `LineStarts`.

    Attributes:
        lines: Lines of each first line.
        weighed: Lines that were weighed on the way.
        weights: Their evidence, by the one scatter.
    """

    lines: list[Floats]
    weighed: Floats
    weights: LineWeights


def join_starts(parts: Sequence[LineStarts]) -> LineStarts:
    """Return the lines of several, one after the other."""
    before = np.cumsum([0, *(len(part.point) for part in parts[:-1])])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in LineStarts.__struct_fields__
    }
    bounds = [part.bounds + first for part, first in zip(parts, before.tolist(), strict=True)]
    return LineStarts(**columns | {"bounds": np.concatenate(bounds)})


def weigh_lines(
    finder: NearFinder,
    lines: Floats,
    tolerance: float,
    margin: float,
    scatters: Floats,
    *,
    tested: ContradictingPoints | None = None,
) -> LineWeights:
    """Weigh the pairs near each line, as `NearFinder.weigh`.

    Args:
        finder: The search.
        lines: Offset, rate and center of each, in columns.
        tolerance: As for `NearFinder.find`.
        margin: As for `NearFinder.find`.
        scatters: Expected scatters.
        tested: Points that are evidence against lines.

    Raises:
        ValueError: Tested points are not there.
    """
    weights, argument, _held = _describe(finder, lines, scatters, tested)
    finder.run(finder.core.weigh_lines, argument, tolerance, margin)
    return weights


def list_starts(
    finder: NearFinder,
    lines: Floats,
    tolerance: float,
    margin: float,
    scatter: float,
    starts: int,
    *,
    tested: ContradictingPoints | None = None,
) -> LineStarts:
    """Weigh the pairs near each line, and list the starts of its fit, as `NearFinder.weigh`.

    Args:
        finder: The search.
        lines: As for `weigh_lines`.
        tolerance: As for `NearFinder.find`.
        margin: As for `NearFinder.find`.
        scatter: Expected scatter.
        starts: Number of pairs of channels of each line; at most 8.
        tested: As for `weigh_lines`.

    Raises:
        ValueError: Too many pairs of channels are to be listed, or tested points are not there.
    """
    weights, argument, _held = _describe(finder, lines, np.array([scatter]), tested)
    bounds = np.zeros(len(lines) * starts + 1, dtype=np.int64)
    point, residual = np.empty(0, dtype=np.int32), np.empty(0)
    argument.start_bounds = find_address(bounds)
    result = 2
    while result == 2:  # more room
        used, size = int(bounds[argument.done * starts]), 2 * len(point) or _ROOM * len(finder.channel) + 1
        point, residual = (
            np.concatenate([column[:used], np.empty(size - used, dtype=column.dtype)])
            for column in (point, residual)
        )
        argument.start_capacity = size
        argument.start_point, argument.start_residual = find_address(point), find_address(residual)
        result = finder.run(finder.core.weigh_lines, argument, tolerance, margin, starts=starts)
    if result:
        raise ValueError("too many pairs of channels are to be listed")
    return LineStarts(
        lines=lines,
        evidence=weights.evidence[:, 0],
        bounds=bounds[np.arange(len(lines))[:, None] * starts + np.arange(starts + 1)],
        point=point[: bounds[-1]].astype(np.int64),
        residual=residual[: bounds[-1]],
    )


def _describe(
    finder: NearFinder, lines: Floats, scatters: Floats, tested: ContradictingPoints | None
) -> tuple[LineWeights, LinesArgument, list[Any]]:
    """Describe the lines to the library, and the arrays that receive their weights; and the arrays to hold during the call."""
    columns = [np.ascontiguousarray(values, dtype=np.float64) for values in (lines, scatters)]
    evidence, exchange, sharpest = (np.empty((len(lines), len(scatters))) for _ in range(3))
    against, held = _describe_tested(finder, tested)
    argument = LinesArgument(
        count=len(lines),
        lines=find_address(columns[0]),
        against=against,
        scatter_count=len(scatters),
        scatters=find_address(columns[1]),
        evidence=find_address(evidence),
        exchange=find_address(exchange),
        sharpest=find_address(sharpest),
    )
    weights = LineWeights(evidence=evidence, exchange_evidence=exchange, sharpest=sharpest)
    return weights, argument, [*columns, *held]


def _describe_tested(
    finder: NearFinder, tested: ContradictingPoints | None
) -> tuple[AgainstArgument, list[Any]]:
    """Describe tested points to the library, and the arrays to hold during the call."""
    if tested is None or not len(tested.point):
        return AgainstArgument(), []
    point, bounds = (np.ascontiguousarray(values, dtype=np.int64) for values in (tested.point, tested.bounds))
    is_point = point.min() >= 0 and point.max() < len(finder.channel)
    is_listed = len(bounds) == finder.section_count + 1 and bounds[0] == 0 and bounds[-1] == len(point)
    if not (is_point and is_listed and (bounds[1:] >= bounds[:-1]).all()):
        raise ValueError("tested points that are not there")
    held: list[Any] = [point, bounds, np.empty(len(finder.is_message), dtype=np.bool_)]
    return AgainstArgument(*map(find_address, held), tested.most), held


def fit_starts(
    finder: NearFinder,
    starts: LineStarts,
    tolerance: float,
    margin: float,
    *,
    scatter: float,
    floor: float,
    drift: float,
    rounds: int,
    tested: ContradictingPoints | None = None,
) -> StartFits | None:
    """Fit lines to starts, then to the pairs near each fitted line, as `line_finder.fit_line`.

    Args:
        finder: The search.
        starts: Starts of lines.
        tolerance: As for `NearFinder.find`.
        margin: As for `NearFinder.find`.
        scatter: Expected scatter of pairs.
        floor: Lower limit of the scale of residuals; lines closer than this to one of the same first line are left out.
        drift: Standard deviation of rates.
        rounds: As for `line_finder.fit_line`.
        tested: As for `weigh_lines`.

    Returns:
        The fits; None where a number is infinite, or none.

    Raises:
        ValueError: A list of pairs is not there, or one of their points is not, or of tested points.
        MemoryError: Memory is short.
    """
    count, lists = len(starts.bounds), starts.bounds.shape[1] - 1
    floats = [np.ascontiguousarray(values, dtype=np.float64) for values in (starts.lines, starts.residual)]
    bounds = np.ascontiguousarray(starts.bounds, dtype=np.int64)
    point = starts.point.astype(np.int32)
    is_listed = bounds.min(initial=0) >= 0 and bounds.max(initial=0) <= len(point) == len(floats[1])
    is_point = starts.point.min(initial=0) >= 0 and starts.point.max(initial=-1) < len(finder.channel)
    if not (
        is_listed and is_point and (np.diff(bounds, axis=1) >= 0).all() and floats[0].shape == (count, 3)
    ):
        raise ValueError("pairs that are not there")
    fitted, fitted_count = np.zeros((count, lists, 3)), np.zeros(count, dtype=np.int64)
    weighed, (against, _held) = np.empty((count * lists, 9)), _describe_tested(finder, tested)
    argument = FitsArgument(
        count=count,
        lines=find_address(floats[0]),
        starts=lists,
        bounds=find_address(bounds),
        point=find_address(point),
        residual=find_address(floats[1]),
        scatter=scatter,
        floor=floor,
        drift=drift,
        rounds=rounds,
        fitted=find_address(fitted),
        fitted_count=find_address(fitted_count),
        tested=find_address(weighed),
        against=against,
    )
    result = finder.run(finder.core.fit_starts, argument, tolerance, margin)
    if result < 0:
        raise MemoryError
    if result:
        return None
    weighed = weighed[: argument.tested_count]
    weights = (weighed[:, column : column + 1] for column in (6, 7, 8))
    return StartFits(
        lines=[lines[:own] for lines, own in zip(fitted, fitted_count.tolist(), strict=True)],
        weighed=weighed[:, :3],
        weights=LineWeights(**dict(zip(LineWeights.__struct_fields__, weights, strict=True))),
    )
