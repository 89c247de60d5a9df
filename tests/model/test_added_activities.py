"""Activities that are read after the other tables of a report, and those of one reading."""

from __future__ import annotations

from pathlib import Path

from nsys_pp.frames.raw import Group
from nsys_pp.model import add_activities, build_report
from nsys_pp.read import read_report
from tests.read.tables import THREAD, call, op, os_call, strings, write_export

_OF_REPORT: frozenset[Group] = frozenset({"ranges", "ops", "communication"})
_OF_THREADS: frozenset[Group] = frozenset({"copy_kinds", "show_os", "show_states", "show_samples"})


def test_activities_of_a_later_reading_are_equal(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "report.sqlite",
        {
            "StringIds": strings("read", "write"),
            "CUPTI_ACTIVITY_KIND_RUNTIME": [call(0, 9, 1)],
            "CUPTI_ACTIVITY_KIND_KERNEL": [op(10, 19, 1, shortName=0, demangledName=0)],
            "CUPTI_ACTIVITY_KIND_MEMCPY": [op(20, 21, 2, copyKind=1, bytes=8, srcKind=0, dstKind=2)],
            "OSRT_API": [os_call(0, 5, nameId=1), os_call(6, 8, nameId=0)],
            "SCHED_EVENTS": [
                {"start": time, "cpu": 0, "isSchedIn": time % 2, "globalTid": THREAD} for time in range(1, 9)
            ],
        },
    )
    whole = build_report(read_report(path, need=_OF_REPORT | _OF_THREADS))
    first = build_report(read_report(path, need=_OF_REPORT))
    found = add_activities(first, read_report(path, need=_OF_THREADS))
    assert {"OS calls", "states"} == {*whole.activities["row"].to_list()}
    for name in ("activities", "active_threads", "pageable_copies", "ranges", "api_calls", "gpu_ops"):
        assert getattr(found, name).equals(getattr(whole, name))
    assert first.activities.is_empty()
