"""Evidence and fits of many lines between a domain and a timeline, in several threads: most of the work does not hold the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

import numpy as np

from nsys_pp.alignment import evidence
from nsys_pp.alignment.fitted_starts import fit_starts
from nsys_pp.alignment.near import Comparison
from nsys_pp.arrays.near_lines import LineStarts, LineWeights, StartFits, join_starts
from nsys_pp.arrays.records import join_rows
from nsys_pp.arrays.threads import ImmediateExecutor
from nsys_pp.arrays.types import Floats, Int64s

_Part = TypeVar("_Part")


class LineSearch:
    """Search of operations near events, by many lines at a time.

    Args:
        comparison: Events and operations.
        executor: Executes what threads do.
        threads: Their number.
    """

    def __init__(self, comparison: Comparison, executor: Executor, threads: int) -> None:
        self._executor = executor
        self._weights: dict[tuple[float, ...], tuple[float, ...]] = {}  # of a line by a scatter
        self._comparisons = comparison.share(1 if isinstance(executor, ImmediateExecutor) else threads)

    def list_starts(self, lines: Floats, *, within_ns: float = evidence.NEAR_NS) -> LineStarts:
        """Weigh lines roughly, and list the pairs that a fit of each begins with, as `evidence.list_starts`."""

        def list_part(comparison: Comparison, rows: Int64s) -> LineStarts:
            return evidence.list_starts(comparison, lines[rows], within_ns=within_ns)

        parts, order = self._map(list_part, len(lines))
        return parts[0] if len(parts) == 1 else join_starts(parts).select(order)

    def fit_starts(self, starts: LineStarts, scatter_ns: float) -> list[Floats]:
        """Fit lines to the operations near each first line, as `nsys_pp.alignment.fitted_starts`."""

        def fit_part(comparison: Comparison, rows: Int64s) -> StartFits:
            return fit_starts(comparison, starts.select(rows), scatter_ns)

        parts, order = self._map(fit_part, len(starts.lines))
        for part in parts:
            self._add_weights(part.weighed, part.weights, (scatter_ns,))
        fitted = [lines for part in parts for lines in part.lines]
        return [fitted[row] for row in order.tolist()]

    def weigh_lines(self, lines: Floats, scatters_ns: Sequence[float]) -> Floats:
        """Weigh lines with each of the scatters, as `evidence.weigh_lines`, each line once.

        Returns:
            Evidence, that of exchanges and least scatter, in columns; of each line by each scatter.
        """

        def weigh_part(comparison: Comparison, rows: Int64s) -> LineWeights:
            return evidence.weigh_lines(comparison, new[rows], scatters_ns)

        keys = [[(*line, scatter) for line in lines.tolist()] for scatter in scatters_ns]
        missing = [key[:3] for of_scatter in keys for key in of_scatter if key not in self._weights]
        new = np.array([*dict.fromkeys(missing)]).reshape(-1, 3)
        if len(new):
            parts, order = self._map(weigh_part, len(new))
            self._add_weights(new[np.argsort(order)], join_rows(*parts), scatters_ns)
        weights = [[self._weights[key] for key in of_scatter] for of_scatter in keys]
        return np.array(weights).reshape(len(scatters_ns), -1, 3)

    def _add_weights(self, lines: Floats, weights: LineWeights, scatters_ns: Sequence[float]) -> None:
        """Keep the weights of lines: fits from several starts often end in one line, or in one that they passed."""
        columns = (weights.evidence, weights.exchange_evidence, weights.sharpest)
        for number, scatter in enumerate(scatters_ns):
            keys = [(*line, scatter) for line in lines.tolist()]
            own = zip(*(values[:, number].tolist() for values in columns), strict=True)
            self._weights.update(zip(keys, own, strict=True))

    def _map(self, function: Callable[[Comparison, Int64s], _Part], count: int) -> tuple[list[_Part], Int64s]:
        """Call a function for some of the rows in each thread; return the results, and the row of each in all results."""
        comparisons = self._comparisons[: max(count, 1)]
        rows = [np.arange(number, count, len(comparisons)) for number in range(len(comparisons))]
        later = [
            self._executor.submit(function, comparison, own)
            for comparison, own in zip(comparisons[1:], rows[1:], strict=True)
        ]
        parts = [function(comparisons[0], rows[0]), *(task.result() for task in later)]
        return parts, np.argsort(np.concatenate(rows))
