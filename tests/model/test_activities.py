"""Activities of threads, processors and GPUs, counters and metrics, against their definitions in plain loops."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import SHOW_GROUPS, Group
from nsys_pp.frames.report import API_CALLS, MEMORY_EVENTS, OS_CALLS, STREAM_CALLS, THREAD_RUNS, Report
from nsys_pp.model import build_report
from nsys_pp.model.gpu_ops import find_event_calls
from nsys_pp.read import read_report
from tests.read.tables import PROCESS, THREAD, Row, call, memory, os_call, strings, switch, write_export
from tests.sql import select


def build(folder: Path, need: frozenset[Group] = SHOW_GROUPS | {"ops"}, /, **tables: list[Row]) -> Report:
    export = folder / "report.sqlite"
    export.unlink(missing_ok=True)
    return build_report(read_report(write_export(export, {"StringIds": strings("x"), **tables}), need=need))


def build_counters(folder: Path, **tables: list[Row]) -> Report:
    process: Row = {"globalPid": PROCESS, "pid": 4242, "name": "app"}
    return build(folder, **{"StringIds": strings("x", "temperature"), "PROCESSES": [process], **tables})


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 2), st.integers(0, 1), st.sampled_from([0, 2, 3, 5])),
        max_size=25,
    )
)
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
    assert report.activities.select("row", "start_ns", "end_ns", "name", "stack").rows() == [
        ("CPU samples", 1, None, "inner", "inner < outer"),
        ("CPU samples", 2, None, "(no name)", None),
    ]


def test_metrics_of_older_versions_are_objects_of_values(tmp_path: Path) -> None:
    events: list[Row] = [
        {"rawTimestamp": 10 * at, "timestamp": 10 * at, "typeId": 257, "data": json.dumps(one)}
        for at, one in enumerate([{"SM Active": "61", "Tensor Active": 5, "text": "none"}, {"SM Active": 7}])
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
    assert [
        (metric.process_key, metric.name, metric.unit, *sample)
        for metric in report.sampled_metrics
        for sample in metric.samples.rows()
    ] == [
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


def test_a_process_with_activities_alone_is_named(tmp_path: Path) -> None:
    report = build(
        tmp_path,
        PROCESSES=[{"globalPid": PROCESS, "pid": 4242, "name": "app"}],
        SCHED_EVENTS=[switch(1, 1), switch(2, 0)],
    )
    assert report.processes.is_empty()
    assert report.active_processes.rows() == [(PROCESS, 4242, "app")]
    assert report.active_threads["tid"].to_list() == [4243]


def list_counters(report: Report) -> list[tuple[object, ...]]:
    return report.counters.select("name", "unit", "process_key", "device_id", "time_ns", "value").rows()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2), st.integers(0, 6)), max_size=12),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 99)), max_size=15),
)
def test_values_of_cores_are_those_that_their_intervals_refer_to(
    counts: list[tuple[int, int, int]], values: list[tuple[int, int, int]]
) -> None:
    names = {0: "cycles", 1: "instructions"}
    expected = sorted(
        (f"CPU {cpu}: {names.get(event, f'event {event}')}", "count", None, None, start, float(value))
        for start, cpu, counter in counts
        for own, event, value in values
        if own == counter
    )
    with TemporaryDirectory() as folder:
        report = build_counters(
            Path(folder),
            PMU_EVENTS=[
                {"start": start, "end": start + 9, "globalVm": 1, "cpu": cpu, "counter_id": counter}
                for start, cpu, counter in counts
            ],
            PMU_EVENT_COUNTERS=[{"id": own, "idx": event, "value": value} for own, event, value in values],
            PMU_EVENT_REQUESTS=[{"id": event, "event_name": name} for event, name in names.items()],
        )
    assert sorted(list_counters(report), key=str) == sorted(expected, key=str)


def test_counters_of_perf_have_the_names_and_units_of_their_metrics(tmp_path: Path) -> None:
    metric = {"description": "", "unit": "%"}
    report = build_counters(
        tmp_path,
        PERF_EVENT_SOC_OR_CPU_METRIC_EVENT=[
            {"start": at, "end": at + 1, "vmId": 1, "componentId": component, "metricId": 7, "value": 12.5}
            for at, component in ((0, 4), (1, 5), (2, 9))
        ],
        PERF_EVENT_CPU_RAW_EVENT=[
            {"start": 3, "end": 4, "vmId": 1, "componentId": 4, "eventId": 8, "count": 3}
        ],
        TARGET_INFO_PERF_METRIC=[
            {"id": 7, "name": "cpu_frontend_bound", "displayName": "Frontend Bound", **metric},
            {"id": 8, "name": "inst_retired", "displayName": None, **metric, "unit": "instructions"},
        ],
        TARGET_INFO_COMPONENT=[
            {"componentId": component, "name": "core", "instance": component, "parentId": 0}
            for component in (4, 5)
        ],
    )
    assert sorted(row[:2] + row[4:] for row in list_counters(report)) == [
        ("component 9: Frontend Bound", "%", 2, 12.5),
        ("core 4: Frontend Bound", "%", 0, 12.5),
        ("core 4: inst_retired", "instructions", 3, 3.0),
        ("core 5: Frontend Bound", "%", 1, 12.5),
    ]


def test_counters_around_the_cores_are_named_by_their_numbers(tmp_path: Path) -> None:
    report = build_counters(
        tmp_path,
        UNCORE_PMU_EVENTS=[{"start": 5, "end": 6, "globalVm": 1, "clusterId": 2, "counterId": 1}],
        UNCORE_PMU_EVENT_VALUES=[{"id": 1, "type": 3, "value": 44, "rawId": 17, "clusterId": 2}],
    )
    assert list_counters(report) == [("cluster 2: event 17", "count", None, None, 5, 44.0)]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 2), st.integers(1, 3), st.none() | st.integers(0, 9)),
        max_size=20,
    )
)
def test_pools_have_the_sizes_after_their_last_operation(
    pools: list[tuple[int, int, int, int | None]],
) -> None:
    ordered = sorted(pools, key=lambda row: row[0])
    addresses = list(dict.fromkeys(address for _, address, _, _ in ordered if address))
    last: dict[tuple[int, int], int | None] = {}
    for time, address, operation, size in ordered:
        value = 0 if operation == 2 else size
        if address and value is not None:
            last[address, time] = value
    name = {
        address: "memory pool" if len(addresses) == 1 else f"memory pool {number}"
        for number, address in enumerate(addresses, start=1)
    }
    expected = [
        (f"{name[address]} {noun}", "bytes", PROCESS, 0, time, float(value or 0))
        for (address, time), value in last.items()
        for noun in ("size", "in use")
    ]
    rows: list[Row] = [
        {"start": time, "globalPid": PROCESS, "deviceId": 0, "address": address, "operationType": operation}
        | {"poolType": 1, "localMemoryPoolSize": size, "localMemoryPoolUtilizedSize": size}
        for time, address, operation, size in pools
    ]
    with TemporaryDirectory() as folder:
        report = build_counters(Path(folder), CUDA_GPU_MEMORY_POOL_EVENTS=rows)
    assert sorted(list_counters(report)) == sorted(expected)


def test_allocations_from_a_pool_have_its_sizes(tmp_path: Path) -> None:
    own = {"globalPid": PROCESS, "deviceId": 1, "contextId": 1, "pc": 0, "memKind": 2, "name": None}
    report = build_counters(
        tmp_path,
        CUDA_GPU_MEMORY_USAGE_EVENTS=[
            {"start": at, "address": 64 * at, "bytes": 64, "memoryOperationType": 0, **own}
            | {
                "localMemoryPoolAddress": pool,
                "localMemoryPoolSize": 1 << 20,
                "localMemoryPoolUtilizedSize": 64 * at,
            }
            for at, pool in ((1, 512), (2, 512), (3, 0))
        ],
    )
    assert list_counters(report) == [
        ("memory pool in use", "bytes", PROCESS, 1, 1, 64.0),
        ("memory pool in use", "bytes", PROCESS, 1, 2, 128.0),
        ("memory pool size", "bytes", PROCESS, 1, 1, float(1 << 20)),
        ("memory pool size", "bytes", PROCESS, 1, 2, float(1 << 20)),
    ]


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(0, 1), st.integers(1, 2), st.sampled_from([1, 2, 7, 8, 8, 9, 7])
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=80)
@given(CHANGES)
def test_a_context_has_its_gpu_from_its_restoration_until_it_is_saved(
    changes: list[tuple[int, int, int, int]],
) -> None:
    expected = []
    restored: dict[tuple[int, int], int] = {}
    for time, gpu, context, tag in sorted(changes, key=lambda row: row[0]):
        if tag == 8:
            restored[gpu, context] = time
        elif tag == 7 and (gpu, context) in restored:
            begin = restored.pop((gpu, context))
            expected.append((f"contexts of GPU {gpu}", begin, time, f"app 4242, context {context}"))
    rows: list[Row] = [
        {"tag": tag, "vmId": 1, "seqNo": order, "contextId": context, "timestamp": time, "globalPid": PROCESS}
        | {"gpuId": gpu}
        for order, (time, gpu, context, tag) in enumerate(changes)
    ]
    with TemporaryDirectory() as folder:
        found = build_counters(Path(folder), GPU_CONTEXT_SWITCH_EVENTS=rows).activities
    assert sorted(found.select("row", "start_ns", "end_ns", "name").rows()) == sorted(expected)
    assert found["process_key"].null_count() == len(found)


def test_events_whose_values_are_rows_have_them_as_text(tmp_path: Path) -> None:
    rows = build_counters(
        tmp_path,
        GENERIC_EVENTS=[
            {
                "genericEventId": at,
                "rawTimestamp": 0,
                "timestamp": at,
                "typeId": 5,
                "globalTid": thread,
                "data": data,
            }
            for at, thread, data in ((1, THREAD, None), (2, None, '{"own": 1}'), (3, None, None))
        ],
        GENERIC_EVENT_TYPES=[{"typeId": 5, "sourceId": 1, "nameId": 1, "data": None}],
        GENERIC_EVENT_TYPE_FIELDS=[{"typeId": 5, "fieldIdx": 0, "fieldNameId": 1}],
        GENERIC_EVENT_DATA=[
            {"genericEventId": 1, "fieldIdx": 0, "intVal": 71, "uintVal": None},
            {"genericEventId": 1, "fieldIdx": 1, "intVal": None, "uintVal": 4},
        ],
    ).activities.filter(pl.col("row") == "generic events")
    assert rows.select("thread_key", "start_ns", "name", "detail").sort("start_ns").rows() == [
        (THREAD, 1, "temperature", '{"temperature": 71, "field 1": 4}'),
        (None, 2, "temperature", '{"own": 1}'),
        (None, 3, "temperature", None),
    ]


CALLS = st.lists(
    st.tuples(
        st.booleans(),  # a record
        st.integers(1, 2),  # process
        st.integers(1, 3),  # event
        st.integers(1, 2),  # context
        st.integers(0, 20),  # start
        st.integers(0, 6),  # length
        st.one_of(st.none(), st.integers(1, 5)),  # number of the record
    ),
    max_size=14,
)

Call = tuple[bool, int, int, int, int, int, int | None]


def find(calls: list[Call]) -> dict[int, int | None]:
    """Return the position of the record of each call that waits."""
    columns = ("is_record", "process_key", "event_id", "context_id", "start_ns", "length", "record_id")
    frame = pl.DataFrame(calls, schema=columns, orient="row").with_columns(
        correlation_id=pl.int_range(pl.len()), end_ns=pl.col("start_ns") + pl.col("length")
    )
    api_calls = frame.with_columns(thread_key=pl.lit(1), name=pl.lit("call")).pipe(conform, API_CALLS)
    stream_calls = frame.with_columns(stream_id=pl.lit(7), record_id=pl.col("record_id").cast(pl.Int64))
    found = find_event_calls(stream_calls.pipe(conform, STREAM_CALLS), api_calls)
    records = found.filter("is_record")
    assert records["record"].to_list() == list(range(len(records)))
    call_of = dict(zip(records["record"], records["correlation_id"], strict=True))
    waits = found.filter(~pl.col("is_record")).select("correlation_id", "record").iter_rows()
    return {correlation: call_of.get(record) for correlation, record in waits}


def define(calls: list[Call]) -> dict[int, int | None]:
    records = [(at, one) for at, one in enumerate(calls) if one[0]]
    numbered = [(one[1], one[6]) for _, one in records if one[6] is not None]
    counts = bool(numbered) and len(set(numbered)) == len(numbered)
    expected: dict[int, int | None] = {}
    for at, (is_record, process, event, _, start, _, number) in enumerate(calls):
        if is_record:
            continue
        own = [(one, row) for row, one in records if one[1:3] == (process, event)]
        if counts and number is not None:
            expected[at] = next((row for one, row in own if one[6] == number), None)
            continue
        before = [(one[4], row, one) for one, row in own if one[4] <= start]
        last = max(before, key=lambda item: item[:2], default=None)
        is_one_event = len({one[3] for one, _ in own}) == 1
        is_before = last is not None and last[0] + last[2][5] <= start
        expected[at] = last[1] if last is not None and is_before and is_one_event else None
    return expected


@settings(deadline=None, max_examples=200)
@given(CALLS)
@example([(True, 1, 1, 1, 0, 2, None), (True, 1, 1, 1, 5, 2, None), (False, 1, 1, 1, 8, 1, None)])
@example([(True, 1, 1, 1, 0, 9, None), (False, 1, 1, 1, 8, 1, None)])
@example([(True, 1, 1, 1, 0, 2, 4), (False, 1, 1, 1, 8, 1, 4), (False, 1, 1, 1, 8, 1, 5)])
def test_records_are_those_of_the_definition(calls: list[Call]) -> None:
    assert find(calls) == define(calls)


_HOST: frozenset[Group] = frozenset({"host"})
_SECRET = "hunter2-token"


def test_calls_are_named_and_what_tells_of_tracing_is_none(tmp_path: Path) -> None:
    report = build(
        tmp_path,
        _HOST,
        StringIds=strings("read", "OS runtime libraries profiling started", _SECRET),
        OSRT_API=[
            os_call(0, 0, eventClass=31, nameId=1),
            os_call(5, 9, nameId=0),
            os_call(6, 7, nameId=0, nestingLevel=1),
            os_call(8, 9, nameId=77),
            os_call(8, 9, globalTid=None),
            os_call(9, 9, eventClass=99, nameId=2),
        ],
    )
    assert report.os_calls.schema == OS_CALLS
    assert report.os_calls.with_columns(pl.col("name").cast(pl.String)).rows() == [
        (PROCESS, THREAD, 5, 9, "read"),
        (PROCESS, THREAD, 6, 7, "read"),
        (PROCESS, THREAD, 8, 9, None),
    ]
    assert report.recorded["os_calls"] == 6
    written = io.BytesIO()
    report.os_calls.write_ipc(written)  # with all names that it knows
    assert b"read" in written.getvalue()
    assert _SECRET.encode() not in written.getvalue()


@pytest.mark.parametrize(
    ("switches", "runs"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([(1, 1), (4, 0), (6, 1), (9, 0)], [(1, 4), (6, 9)], id="in order"),
        pytest.param([(6, 1), (9, 0), (4, 0), (1, 1)], [(1, 4), (6, 9)], id="in any order"),
        pytest.param([(1, 0), (4, 1), (6, 0)], [(4, 6)], id="first seen leaving"),
        pytest.param([(1, 1), (4, 0), (6, 1)], [(1, 4)], id="still running at the end"),
        pytest.param([(1, 1), (4, 1), (6, 0)], [(4, 6)], id="came twice"),
        pytest.param([(1, 1), (4, 0), (6, 0)], [(1, 4)], id="left twice"),
        pytest.param([(1, 1), (4, 1), (4, 0), (6, 0)], [(1, 4), (4, 6)], id="left and came at once"),
        pytest.param([(1, 7), (4, 0)], [(1, 4)], id="any number but 0 is in"),
        pytest.param([(None, 1), (4, 0), (5, 1), (6, None), (7, 0)], [(5, 7)], id="without a time"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*left out 1 of 5 switches of threads without a time")
def test_a_run_is_what_lies_between_coming_and_leaving(
    tmp_path: Path, switches: list[tuple[int, int]], runs: list[tuple[int, int]]
) -> None:
    found = build(tmp_path, _HOST, SCHED_EVENTS=[switch(time, is_in) for time, is_in in switches]).thread_runs
    assert found.schema == THREAD_RUNS
    assert found.rows() == [(PROCESS, THREAD, start, end) for start, end in runs]


@pytest.mark.filterwarnings("ignore:.*left out 1 of 6 allocations of GPU memory without a time")
def test_allocations_are_in_order_and_keep_what_is_unknown(tmp_path: Path) -> None:
    high = 0xFFFF_0000_0000_0000
    report = build(
        tmp_path,
        _HOST,
        StringIds=strings("x"),
        CUDA_GPU_MEMORY_USAGE_EVENTS=[
            memory(9, 1, high - (1 << 64), 0, correlationId=7),
            memory(3, 0, high - (1 << 64), 64, memKind=4, correlationId=5),
            memory(4, 0, 16, 8, memKind=7, deviceId=1),
            memory(5, 2, 16, 8),
            memory(5, 0, 16, 8, globalPid=None),
            {**memory(5, 0, 16, 8), "start": None},
        ],
    )
    assert report.memory_events.schema == MEMORY_EVENTS
    assert report.memory_events.rows() == [
        (PROCESS, 0, 5, 3, "managed", False, high, 64),
        (PROCESS, 1, None, 4, None, False, 16, 8),
        (PROCESS, 0, 7, 9, "device", True, high, 0),
    ]


def test_who_a_report_is_does_not_hang_on_reading_the_host(tmp_path: Path) -> None:
    other = PROCESS + (1 << 24)
    tables: dict[str, list[Row]] = {
        "StringIds": strings("read", _SECRET),
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(1, 2, 1)],
        "OSRT_API": [os_call(5, 9), os_call(5, 9, globalTid=other | 5)],
        "SCHED_EVENTS": [switch(1, 1, globalTid=other | 5), switch(2, 0, globalTid=other | 5)],
        "CUDA_GPU_MEMORY_USAGE_EVENTS": [memory(1, 0, 16, 8, globalPid=other)],
        "PROCESSES": [{"globalPid": other, "pid": 4243, "name": f"curl -H {_SECRET}"}],
        "ThreadNames": [{"nameId": 1, "priority": 0, "globalTid": other | 5}],
    }
    little = build(tmp_path, frozenset({"ops"}), **tables)
    much = build(tmp_path, frozenset({"ops", "host"}), **tables)
    assert much.os_calls["process_key"].to_list() == [PROCESS, other]
    assert much.thread_runs["process_key"].to_list() == [other]
    assert much.memory_events["process_key"].to_list() == [other]
    assert little.processes["process_key"].to_list() == [PROCESS]
    assert_frame_equal(little.processes, much.processes)
    assert_frame_equal(little.threads, much.threads)
    assert _SECRET not in str(much)


@pytest.mark.parametrize("prefix", ["Ihor", "argonne", "caoye310", "quasiben__multi", "zx3xyy"])
def test_calls_of_real_reports_are_those_that_nsys_stats_counts(
    shared_reports: list[Path], prefix: str
) -> None:
    path = next((path for path in shared_reports if path.name.startswith(prefix)), None)
    if path is None:
        pytest.skip(f"no report {prefix}*")
    expected = select(  # what its report `osrt_sum` counts
        path,
        "SELECT value, count(*), sum(end - start) FROM OSRT_API JOIN StringIds ON id = nameId"
        " WHERE eventClass = 27 GROUP BY value",
    )
    calls = build_report(read_report(path, need=_HOST)).os_calls
    found = calls.group_by(pl.col("name").cast(pl.String)).agg(
        pl.len(), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("total")
    )
    assert sorted(found.rows()) == sorted(expected)
    assert len(expected) > 4
