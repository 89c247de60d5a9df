"""Captures of one nsys session: reports that follow each other in time, whose processes are the same lanes.

`nsys profile --capture-range-end=repeat` writes a report per capture. Rows of later captures get the report of the
first one, so that a process has one lane, one stage, and one list of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import index_rows, whole_numbers
from nsys_pp.arrays.series import build_column
from nsys_pp.compose.inputs import Input
from nsys_pp.frames.report import Session
from nsys_pp.frames.sessions import share_origin, share_session

_Step: TypeAlias = "tuple[int, int, int]"  # process, device and step
_EVER = 1 << 62  # no time is as large
_RANGE_IDS = 1 << 40  # more than a report has rows
_GAP = 2  # between the numbers of counted steps of two captures, so that they are not consecutive


class Captures(Struct, frozen=True, kw_only=True):
    """Captures of the reports of a run.

    Attributes:
        first: Report of the first capture of the session of each report; of most reports, the report itself.
        order: Place of each report: captures of a session follow each other, in order of time.
        step_offset: Added to the steps of each report, which counts them from 0 in each capture.
    """

    first: list[int]
    order: list[int]
    step_offset: list[int]

    @property
    def has_later(self) -> bool:
        """Whether a report is a later capture of the session of another one."""
        return self.first != list(range(len(self.first)))

    def list_reports(self, first: int) -> list[int]:
        """List the captures of a session, by the report of the first one, in order of time."""
        own = [report for report, of in enumerate(self.first) if of == first]
        return sorted(own, key=self.order.__getitem__)

    def join(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Replace the report of each row by the first capture of its session, with steps and ids that are unique there.

        Args:
            frame: Rows with `report`, in any order.

        Returns:
            The rows by report and capture, in their order otherwise.
        """
        if not self.has_later:
            return frame
        report = whole_numbers(frame["report"])
        by_capture = np.argsort(np.array(self.order)[report], kind="stable")
        report, frame = report[by_capture], index_rows(frame, by_capture)
        ids = np.array(self.order)[report] * _RANGE_IDS
        added = {"step": np.array(self.step_offset)[report], "range_id": ids, "outer_id": ids}
        return frame.with_columns(
            build_column("report", np.array(self.first, dtype=np.uint32)[report]),
            *(frame[name] + build_column("", added[name]) for name in added if name in frame.columns),
        )

    def list_windows(self, starts_ns: Sequence[int]) -> list[tuple[int, int]]:
        """List the time of each report among the captures of its session: from its start to the start of the next capture.

        Args:
            starts_ns: Start of each report on the trace's clock.

        Returns:
            Start and end of each; the first capture also has all time before it, the last one all time after it.
        """
        windows = [(-_EVER, _EVER)] * len(self.first)
        for report, first in enumerate(self.first):
            own = self.list_reports(first) if self.has_later else [report]
            at = own.index(report)
            since = starts_ns[report] if at else -_EVER
            windows[report] = (since, starts_ns[own[at + 1]] if at + 1 < len(own) else _EVER)
        return windows

    def restore_ids(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Replace `range_id` after `join` by the ids of the reports; null stays null."""
        return jobs.with_columns(pl.col("range_id") % _RANGE_IDS) if self.has_later else jobs


def find_captures(inputs: Sequence[Input], machines: Sequence[str]) -> Captures:
    """Find the reports that are captures of one nsys session.

    A later capture belongs to the first one of its session that has all of its GPU processes, unless the two overlap in time, or
    have steps of one number: then its rows keep their report.

    Args:
        inputs: Parts with steps.
        machines: Machine of each.
    """
    first, offset = list(range(len(inputs))), [0] * len(inputs)
    time = [recorded.identity.session.utc_epoch_ns or 0 for recorded in inputs]
    for session in _list_sessions(inputs, machines):
        # of the captures that are joined, by the first one
        steps: dict[int, set[_Step]] = {}
        joined: dict[int, list[Session]] = {}
        for report in sorted(session, key=lambda report: (time[report], report)):
            keys, facts = _list_processes(inputs[report]), inputs[report].identity.session
            own, is_numbered = _list_steps(inputs[report])
            for earlier in steps:
                last = max((step for *_, step in steps[earlier]), default=-_GAP)
                added = 0 if is_numbered else last + _GAP
                moved = {(process, device, step + added) for process, device, step in own}
                has_all = keys and keys <= _list_processes(inputs[earlier])
                follows = all(share_session(other, facts) for other in joined[earlier])
                if has_all and follows and moved.isdisjoint(steps[earlier]):
                    first[report], offset[report] = earlier, added
                    steps[earlier] |= moved
                    joined[earlier].append(facts)
                    break
            else:
                steps[report], joined[report] = own, [facts]
    placed = sorted(range(len(inputs)), key=lambda report: (first[report], time[report], report))
    place = dict(zip(placed, range(len(inputs)), strict=True))
    return Captures(first=first, order=[place[report] for report in range(len(inputs))], step_offset=offset)


def _list_sessions(inputs: Sequence[Input], machines: Sequence[str]) -> list[list[int]]:
    """List the nsys sessions with several reports, each by its reports."""
    recorded = [report for report, one in enumerate(inputs) if one.identity.session.origin_ns is not None]
    recorded.sort(key=lambda report: (machines[report], inputs[report].identity.session.origin_ns))
    groups: list[list[int]] = []
    for report in recorded:
        before = groups[-1][-1] if groups else None
        if (
            before is not None
            and machines[before] == machines[report]
            and share_origin(inputs[before].identity.session, inputs[report].identity.session)
        ):
            groups[-1].append(report)
        else:
            groups.append([report])
    return [group for group in groups if len(group) > 1]


def _list_processes(recorded: Input) -> set[tuple[int, int]]:
    """List the GPU processes of a report: process and device."""
    devices = recorded.identity.devices
    return set(devices.select("process_key", "device_id").drop_nulls().iter_rows())


def _list_steps(recorded: Input) -> tuple[set[_Step], bool]:
    """List the steps of a report, and whether any number is from a name."""
    steps = recorded.part.frames["steps"]
    listed = steps.select("process_key", "device_id", "step").drop_nulls()
    return set(listed.iter_rows()), bool(steps["is_numbered"].any())
