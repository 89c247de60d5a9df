"""Errors of an alignment against the truth.

Only differences of clocks are observable, so moments of the run are compared on all clocks: the error of a
report at a moment is its distance from the median of the reports with the smallest bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsys_pp.alignment.clocks import Alignment
from nsys_pp.arrays.types import Floats
from nsys_pp.frames.clock import Clock

_WELL_KNOWN = 3.0  # times the smallest bound


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueClock:
    """The true clock of a report: `true = origin_ns + report / rate`."""

    origin_ns: int
    rate: float  # report seconds per true second
    first_ns: int  # of the capture, on the report's clock
    last_ns: int

    def report_ns(self, true_ns: int) -> int:
        """Return the report's time at a true time."""
        return round((true_ns - self.origin_ns) * self.rate)


def to_trace_ns(clock_map: Clock, report_ns: int) -> int:
    """Map a time of a report onto the trace's clock."""
    at = int(np.searchsorted(clock_map.from_ns, report_ns, side="right")) - 1
    return report_ns + int(clock_map.offset_ns[max(at, 0)])


def errors_ns(alignment: Alignment, clocks: Sequence[TrueClock], moments: int = 7) -> Floats:
    """Return each report's largest error at some moments of its capture, in ns; NaN without any."""
    bounds = report_bounds_ns(alignment)
    component = alignment.clocks["group"].to_numpy()[alignment.clock_of]
    starts = [clock.origin_ns + round(clock.first_ns / clock.rate) for clock in clocks]
    ends = [clock.origin_ns + round(clock.last_ns / clock.rate) for clock in clocks]
    errors = np.full((moments, len(clocks)), np.nan)
    for row, moment in enumerate(np.linspace(0.05, 0.95, moments)):
        true_ns = min(starts) + round(moment * (max(ends) - min(starts)))
        for at, clock in enumerate(clocks):
            report_ns = clock.report_ns(true_ns)
            if clock.first_ns <= report_ns <= clock.last_ns:
                errors[row, at] = to_trace_ns(alignment.report_clocks[at], report_ns) - true_ns
        for number in np.unique(component):
            is_member = component == number
            best = is_member & (bounds <= _WELL_KNOWN * bounds[is_member].min()) & ~np.isnan(errors[row])
            errors[row, is_member] -= np.median(errors[row, best]) if best.any() else np.nan
    return np.asarray(np.nanmax(np.abs(np.where(np.isnan(errors).all(axis=0), 0.0, errors)), axis=0))


def report_bounds_ns(alignment: Alignment) -> Floats:
    """Return the stated bound of each report; infinite where none is stated."""
    bounds = alignment.clocks["bound_ns"].fill_null(2**62).to_numpy().astype(np.float64)
    bounds[bounds >= 2.0**61] = np.inf
    return np.asarray(bounds[alignment.clock_of])
