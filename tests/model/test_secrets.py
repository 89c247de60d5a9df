"""What no event refers to never leaves the tables it lies in."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest
from msgspec import Struct

from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.read.tables import PROCESS, THREAD, Row, call, kernel, op, push_pop, write_export

SECRET = "hunter2-token"


def _planted() -> dict[str, list[Row]]:
    block = f"AWS_KEY={SECRET}1;RANK=3;LOCAL_RANK={SECRET}2 ;WORLD_SIZE=8 {SECRET}3"
    return {
        "StringIds": [
            {"id": 0, "value": "kernel"},
            {"id": 1, "value": "kernel(int)"},
            {"id": 2, "value": f"PATH=/bin\0TOKEN={SECRET}4\0"},
            {"id": 3, "value": f"{SECRET}5"},
        ],
        "META_DATA_CAPTURE": [
            {"name": "PROCESS_0:COMMAND", "value": f"{SECRET}6"},
            {"name": "PROCESS_0:ARGUMENT_0", "value": f"--password={SECRET}7"},
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'TOKEN="{SECRET}8"'},
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'RANK="3; {SECRET}9"'},
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": 'RANK="3"'},
        ],
        "META_DATA_EXPORT": [{"name": "EXPORT_USER", "value": f"{SECRET}10"}],
        "TARGET_INFO_SYSTEM_ENV": [
            {"name": "DeviceEnvironment", "nameEnum": 610, "value": block},
            {"name": "CpuInfo", "nameEnum": 14, "value": f"{SECRET}11"},
        ],
        "ProcessStreams": [{"globalPid": PROCESS, "filenameId": 3, "contentId": 2}],
        "PROCESSES": [
            {"globalPid": PROCESS, "pid": 4242, "name": "python"},
            {"globalPid": PROCESS + (1 << 24), "pid": 4243, "name": f"curl -H {SECRET}12"},
        ],
        "ThreadNames": [{"nameId": 3, "priority": 0, "globalTid": THREAD + 5}],
        "DIAGNOSTIC_EVENT": [{"timestamp": 1, "text": f"{SECRET}13", "globalPid": PROCESS}],
        "NVTX_EVENTS": [
            push_pop(0, 9, text="step"),
            push_pop(0, None, eventType=75, domainId=4, text=f"{SECRET}14"),
            push_pop(0, None, eventType=33, domainId=0, category=4, text=f"{SECRET}15"),
            push_pop(0, 9, eventType=39, text=f"{SECRET}16"),
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(1, 2, 1)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(3, 4, 1), kernel(0, 0, 2, shortName=3, demangledName=3)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [op(3, 4, 1, copyKind=1, bytes=4)],
    }


def _everything(value: object) -> str:
    if isinstance(value, pl.DataFrame):
        return str(value.rows())
    if isinstance(value, Struct):
        return " ".join(_everything(getattr(value, name)) for name in value.__struct_fields__)
    return repr(value)


@pytest.mark.filterwarnings("ignore:.*left out")
def test_no_secret_is_in_a_report(tmp_path: Path) -> None:
    raw = read_report(write_export(tmp_path / "a.sqlite", _planted()))
    report = build_report(raw)
    assert report.session.launcher == {"RANK": "3"}
    assert report.session.rank == 3
    text = _everything(report)
    assert "step" in text
    assert SECRET not in text
    assert SECRET not in repr(report)
    # names are stored once for all: written down, they bring nothing else along
    for frame in _frames(report):
        written = io.BytesIO()
        frame.write_ipc(written)
        assert SECRET.encode() not in written.getvalue()
    # of the environment even the raw report has nothing more
    assert SECRET not in str(raw["launcher"].rows()) + str(raw["facts"].rows())


def _frames(report: Report) -> list[pl.DataFrame]:
    values = [getattr(report, name) for name in report.__struct_fields__]
    return [value for value in values if isinstance(value, pl.DataFrame)]
