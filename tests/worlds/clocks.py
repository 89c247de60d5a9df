"""Errors of clocks against the truth, compared with their bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.worlds.findings import Findings
from tests.worlds.truth import TrueClock, Truth

_MOMENTS = 15  # of a run, at which clocks are compared
_WELL_KNOWN = 3.0  # times the smallest bound
_ROUNDING_NS = 3
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockScore:
    """The clocks of a world."""

    errors_ns: list[float]  # of each report, relative to the well-known clocks of its group
    bounds_ns: list[float]  # infinite: unknown
    rates_ppm: list[float]  # error of each report's rate relative to its group
    groups: int
    true_groups: int  # of clocks that share operations or a machine

    @property
    def factors(self) -> list[float]:
        """Error over bound, of each report."""
        return [
            max(error - _ROUNDING_NS, 0.0) / max(bound, 1.0)
            for error, bound in zip(self.errors_ns, self.bounds_ns, strict=True)
        ]

    @property
    def holds(self) -> bool:
        """Whether all bounds hold."""
        return max(self.factors) <= 1

    @property
    def is_right(self) -> bool:
        """Whether no group is torn, all bounds are known, and they hold."""
        is_bounded = len(self.bounds_ns) == 1 or all(np.isfinite(self.bounds_ns))
        return self.holds and self.groups <= self.true_groups and is_bounded


def score_clocks(findings: Findings, truth: Truth) -> ClockScore:
    """Score the clocks of a world; definition of errors in `tests/alignment/score.py`."""
    table = findings.clock_table
    names = table["report"].to_list()
    bounds = table["bound_ns"].cast(float).fill_null(np.inf).to_numpy()
    bounds = np.where(bounds >= 2.0**61, np.inf, bounds)
    group = table["group"].to_numpy()
    clocks = [truth.clocks[name] for name in names]
    maps = [findings.clocks[name] for name in names]
    moments = np.linspace(0.05, 0.95, _MOMENTS)
    start, end = min(clock.first_ns for clock in clocks), max(clock.last_ns for clock in clocks)
    times = start + np.round(moments * (end - start)).astype(np.int64)
    errors = np.full((_MOMENTS, len(names)), np.nan)
    for row, (clock, to_trace) in enumerate(zip(clocks, maps, strict=True)):
        inside = (times >= clock.first_ns) & (times <= clock.last_ns)
        errors[inside, row] = to_trace.to_trace(clock.to_report(times[inside])) - times[inside]
    for number in np.unique(group):
        _center(errors, group == number, bounds)
    rates = np.array(
        [
            _rate_ppm(clock, to_trace.to_trace(clock.report_ns))
            for clock, to_trace in zip(clocks, maps, strict=True)
        ]
    )
    for number in np.unique(group):
        rates[group == number] -= np.median(rates[group == number])
    with np.errstate(all="ignore"):
        largest = np.where(
            np.isnan(errors).all(axis=0), 0.0, np.nanmax(np.abs(np.nan_to_num(errors)), axis=0)
        )
    return ClockScore(
        errors_ns=largest.tolist(),
        bounds_ns=bounds.tolist(),
        rates_ppm=rates.tolist(),
        groups=len(np.unique(group)),
        true_groups=truth.count_groups(),
    )


def _center(errors: _Floats, is_member: npt.NDArray[np.bool_], bounds: _Floats) -> None:
    """Subtract the median error of the well-known clocks of a group, moment by moment."""
    for row in errors:
        best = is_member & (bounds <= _WELL_KNOWN * bounds[is_member].min()) & ~np.isnan(row)
        row[is_member] -= np.median(row[best]) if best.any() else np.nan


def _rate_ppm(clock: TrueClock, trace_ns: npt.NDArray[np.int64]) -> float:
    elapsed = clock.true_ns[-1] - clock.true_ns[0]
    return float((trace_ns[-1] - trace_ns[0] - elapsed) / max(elapsed, 1) * 1e6)
