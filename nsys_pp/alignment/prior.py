"""Probability of a correction of a clock before any operation is compared: recorded UTC and the drift of crystals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from nsys_pp.alignment.lines import Line, find_median, stack_lines
from nsys_pp.alignment.timeline import Timeline

MAX_UTC_ERROR_NS = 10e9
"""Largest error of recorded UTC."""

MAX_SESSION_DIFFERENCE_NS = 1.2e6
"""Largest difference of UTC between two sessions of one machine: about 0.1 ms, with a margin for corrections."""

SESSION_SCALE_NS = 150e3
"""Half of all sessions are closer to the others of their machine than this."""

AT_UTC_NS = 20e3
"""Sessions of a machine that are this close by recorded UTC agree with it."""

_UTC_SCALE_NS = 3e6  # half of all machines are closer to UTC than this
_STEPPED_SHARE = 1e-4  # sessions of a machine between which UTC was stepped
# of the drift of two clocks relative to each other; crystals are specified to 50 ppm or better
_DRIFT_SIGMA = 35e-6
_RESOLUTION_NS = 5e3  # offsets this close explain the same operations


class Prior(Struct, frozen=True, kw_only=True):
    """The expected corrections of units (domains that were tied to each other before).

    Attributes:
        is_utc: Whether the first guess of each domain is a recorded UTC.
        session_width_ns: Largest distance of the sessions of one machine.
    """

    is_utc: list[bool]
    session_width_ns: float = MAX_UTC_ERROR_NS

    def expect(self, timeline: Timeline, unit: Timeline) -> tuple[Line, float]:
        """Return the expected correction of a unit, and the largest distance from it."""
        shared = sorted(timeline.find_shared(unit))
        if not shared:
            return Line(), MAX_UTC_ERROR_NS
        ours, theirs = (one.find_machine_line(shared[0]) for one in (timeline, unit))
        assert ours is not None
        assert theirs is not None
        at_zero = float(ours.at(np.zeros(1))[0] - theirs.at(np.zeros(1))[0])
        return Line(offset_ns=at_zero, rate=ours.rate - theirs.rate), self.session_width_ns

    def weigh(self, timeline: Timeline, unit: Timeline, lines: Sequence[Line], center: Line) -> list[float]:
        """Return the log probability of each correction before any operation is compared."""
        distances_ns = self.measure_offsets(timeline, unit, lines, center)
        if not timeline.find_shared(unit):
            unknown = float(np.log(_RESOLUTION_NS / (2 * MAX_UTC_ERROR_NS)))
            return [
                unknown if np.isinf(distance_ns) else _weigh_offset(distance_ns, _UTC_SCALE_NS)
                for distance_ns in distances_ns
            ]
        stepped = float(np.log(_STEPPED_SHARE))
        return [
            _weigh_offset(distance_ns, SESSION_SCALE_NS) + (distance_ns > MAX_SESSION_DIFFERENCE_NS) * stepped
            for distance_ns in distances_ns
        ]

    def measure_offsets(
        self, timeline: Timeline, unit: Timeline, lines: Sequence[Line], center: Line
    ) -> list[float]:
        """Return the distance of each correction from the recorded UTC of the nearest clock; infinite without UTC."""
        if timeline.find_shared(unit):
            return [line.distance_ns(center) for line in lines]
        ours, theirs = (
            [own for domain, own in part.lines.items() if self.is_utc[domain]] for part in (timeline, unit)
        )
        if not ours or not theirs:
            return [np.inf] * len(lines)
        offset_ns, rate, center_ns = stack_lines(ours).T
        ours_ns = offset_ns + rate * (theirs[0].center_ns - center_ns)
        return [float(np.abs(ours_ns - theirs[0].compose(line).offset_ns).min()) for line in lines]

    def list_torn(self, timeline: Timeline) -> dict[int, float]:
        """Return the sessions that are too far from half of the others of their machine to have one UTC, each with this distance, ns."""
        known = [domain for domain in timeline.lines if self.is_utc[domain]]
        offsets_ns = np.array([timeline.lines[domain].at(np.zeros(1))[0] for domain in known])
        machines = timeline.machine[known]
        torn: dict[int, float] = {}
        for domain, offset_ns, machine in zip(known, offsets_ns, machines, strict=True):
            apart_ns = find_median(np.abs(offsets_ns[machines == machine] - offset_ns))
            if apart_ns > MAX_SESSION_DIFFERENCE_NS:
                torn[domain] = apart_ns
        return torn


def weigh_drift(line: Line) -> float:
    """Return the log probability of a drift, relative to no drift, with a normal distribution."""
    return -0.5 * (line.rate / _DRIFT_SIGMA) ** 2


def _weigh_offset(distance_ns: float, scale_ns: float) -> float:
    """Return the log probability of an offset, with a Cauchy distribution of this scale."""
    return float(np.log(_RESOLUTION_NS / (np.pi * scale_ns * (1 + (distance_ns / scale_ns) ** 2))))
