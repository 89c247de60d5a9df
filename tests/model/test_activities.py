"""Activities and sampled metrics, against their definitions in plain loops."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.raw import SHOW_GROUPS
from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.read.tables import PROCESS, THREAD, Row, strings, switch, write_export

SWITCHES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 2), st.integers(0, 1), st.sampled_from([0, 2, 3, 5])),
    max_size=25,
)


def build(folder: Path, **tables: list[Row]) -> Report:
    path = write_export(folder / "report.sqlite", {"StringIds": strings("x"), **tables})
    return build_report(read_report(path, need=SHOW_GROUPS | {"ops"}))


@settings(deadline=None, max_examples=60)
@given(SWITCHES)
def test_states_are_those_of_the_definition(switches: list[tuple[int, int, int, int]]) -> None:
    words = {0: "not running", 2: "interruptible", 3: "uninterruptible", 5: "terminated"}
    by_thread: dict[int, list[tuple[int, int, int]]] = {}
    for time, thread, is_in, state in switches:
        by_thread.setdefault(thread, []).append((time, is_in, state))
    expected = []
    for thread, events in by_thread.items():
        ordered = sorted(events, key=lambda event: event[:2])  # off before on
        for (time, is_in, state), (until, next_in, _) in pairwise(ordered):
            name = "running" if is_in else words[state]
            if is_in != next_in and name != "terminated":
                expected.append((THREAD + thread, time, until, name, 3 if is_in else None))
    rows = [
        switch(time, is_in, globalTid=THREAD + thread, threadState=state)
        for time, thread, is_in, state in switches
    ]
    with TemporaryDirectory() as folder:
        found = build(Path(folder), SCHED_EVENTS=rows).activities
    keys = ("thread_key", "start_ns", "end_ns", "name", "cpu")
    assert sorted(found.select(keys).rows(), key=str) == sorted(expected, key=str)


def test_a_sample_has_its_stack_from_the_innermost_function(tmp_path: Path) -> None:
    report = build(
        tmp_path,
        StringIds=strings("inner", "outer"),
        COMPOSITE_EVENTS=[
            {"id": at, "start": at, "cpu": 1, "globalTid": THREAD, "threadState": 1} for at in (1, 2)
        ],
        SAMPLING_CALLCHAINS=[
            {"id": 1, "symbol": 1, "module": 0, "stackDepth": 1},
            {"id": 1, "symbol": 0, "module": 0, "stackDepth": 0},
        ],
    )
    rows = report.activities.select("row", "start_ns", "end_ns", "name", "stack").rows()
    assert rows == [
        ("CPU samples", 1, None, "inner", "inner < outer"),
        ("CPU samples", 2, None, "(no name)", None),
    ]


def test_metrics_of_older_versions_are_objects_of_values(tmp_path: Path) -> None:
    values = [{"SM Active": "61", "Tensor Active": 5, "text": "none"}, {"SM Active": 7}]
    events: list[Row] = [
        {"rawTimestamp": 10 * at, "timestamp": 10 * at, "typeId": 257, "data": json.dumps(one)}
        for at, one in enumerate(values)
    ]
    other: Row = {"rawTimestamp": 1, "timestamp": 1, "typeId": 3, "data": '{"irq": 4}'}
    gpus: list[Row] = [
        {"vmId": 1, "id": at, "name": "GPU", "busLocation": f"0000:0{at}:00.0", "cuDevice": at}
        for at in (0, 1)
    ]
    tables: dict[str, list[Row]] = {
        "GENERIC_EVENTS": [*events, other],
        "TARGET_INFO_GPU": gpus,
        "GENERIC_EVENT_TYPES": [{"typeId": 3, "sourceId": 0, "data": '{"Name": "irq:entry"}'}],
    }
    path = write_export(tmp_path / "metrics.sqlite", {"StringIds": strings("x"), **tables})
    with pytest.warns(UserWarning, match="left out 1 generic events of other kinds than GPU metrics"):
        only_metrics = build_report(read_report(path, need=frozenset({"show_metrics"})))
    assert only_metrics.activities.is_empty()
    only_others = build_report(read_report(path, need=frozenset({"show_other"})))
    assert only_others.sampled_metrics == ()
    report = build(tmp_path, **tables)
    assert len(report.sampled_metrics) == len(only_metrics.sampled_metrics) == 2
    for drawn in (only_others, report):
        found = drawn.activities.select("row", "process_key", "start_ns", "end_ns", "name", "detail")
        assert found.rows() == [("generic events", None, 1, None, "irq:entry", '{"irq": 4}')]
    samples = [
        (metric.process_key, metric.name, metric.unit, *sample)
        for metric in report.sampled_metrics
        for sample in metric.samples.rows()
    ]
    assert samples == [
        (None, "GPU 1: SM Active", "", 0, 61.0),
        (None, "GPU 1: SM Active", "", 10, 7.0),
        (None, "GPU 1: Tensor Active", "", 0, 5.0),
    ]


@pytest.mark.parametrize(
    "data", ["{", "[1]", '{"Name": ""}', '{"Name": 4}', '{"name": "x"}', "[" * 100_000, None]
)
def test_types_of_generic_events_without_a_name_are_numbered(tmp_path: Path, data: str | None) -> None:
    events: list[Row] = [{"rawTimestamp": 5, "timestamp": 7, "typeId": 9, "data": "text"}]
    types: list[Row] = [{"typeId": 9, "sourceId": 0, "data": data}] if data else []
    gpu: Row = {"vmId": 1, "id": 0, "name": "GPU", "busLocation": "0000:01:00.0", "cuDevice": 0}
    tables = {"GENERIC_EVENT_TYPES": types} if types else {}
    report = build(tmp_path, GENERIC_EVENTS=events, TARGET_INFO_GPU=[gpu], **tables)
    assert report.activities.select("start_ns", "name", "detail").rows() == [(7, "type 9", "text")]


def test_metrics_without_names_and_gpus_are_numbered(tmp_path: Path) -> None:
    rows: list[Row] = [{"timestamp": 1, "typeId": 2, "metricId": 9, "value": 0.5}]
    nic: Row = {"start": 1, "end": 2, "globalId": 4, "metricsListId": 1, "metricsIdx": 3, "value": 8}
    report = build(tmp_path, GPU_METRICS=rows, NET_IB_SWITCH_METRIC=[nic])
    assert [(metric.name, metric.samples["value"].item()) for metric in report.sampled_metrics] == [
        ("GPU 2: metric 9", 0.5),
        ("IB switch 4: metric 3", 8.0),
    ]


def test_a_process_with_activities_alone_is_named(tmp_path: Path) -> None:
    report = build(
        tmp_path,
        PROCESSES=[{"globalPid": PROCESS, "pid": 4242, "name": "app"}],
        SCHED_EVENTS=[switch(1, 1), switch(2, 0)],
    )
    assert report.processes.is_empty()
    assert report.active_processes.rows() == [(PROCESS, 4242, "app")]
    assert report.active_threads["tid"].to_list() == [4243]
