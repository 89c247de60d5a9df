"""Two real reports of different hosts with one shared collective."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys_pp.alignment.clocks import align_clocks
from tests.alignment.score import to_trace_ns
from tests.alignment.test_anchors import anchors_of, open_report


def test_the_collective_that_two_hosts_share_ends_at_one_time(shared_reports: list[Path]) -> None:
    pair = [path for path in shared_reports if path.name.startswith("argonne")]
    if len(pair) != 2:
        pytest.skip("the two reports of two hosts are not there")
    reports = [open_report(path) for path in pair]
    anchors = [anchors_of(report) for report in reports]
    sessions = [report.session for report in reports]
    ends = [int(frame["end_ns"][0]) for frame in anchors]
    as_recorded = [end + (one.utc_epoch_ns or 0) for end, one in zip(ends, sessions, strict=True)]
    assert abs(as_recorded[0] - as_recorded[1]) == 112_972
    alignment = align_clocks(sessions, anchors)
    assert alignment.clocks["collective_count"].to_list() == [1, 1]
    assert (
        abs(
            to_trace_ns(alignment.report_clocks[0], ends[0])
            - to_trace_ns(alignment.report_clocks[1], ends[1])
        )
        <= 1
    )
    assert alignment.clocks["bound_ns"].min() >= 100_000  # type: ignore[operator]  # one operation is weak evidence
