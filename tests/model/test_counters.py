"""Counters of processors and memory pools, contexts of GPUs, and structured generic events, against their definitions in plain loops."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.raw import SHOW_GROUPS
from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.read.tables import PROCESS, THREAD, Row, strings, write_export


def build(folder: Path, **tables: list[Row]) -> Report:
    process: Row = {"globalPid": PROCESS, "pid": 4242, "name": "app"}
    tables = {"StringIds": strings("x", "temperature"), "PROCESSES": [process], **tables}
    path = write_export(folder / "report.sqlite", tables)
    return build_report(read_report(path, need=SHOW_GROUPS | {"ops"}))


def list_counters(report: Report) -> list[tuple[object, ...]]:
    return report.counters.select("name", "unit", "process_key", "device_id", "time_ns", "value").rows()


COUNTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2), st.integers(0, 6)), max_size=12)
VALUES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 99)), max_size=15)


@settings(deadline=None, max_examples=60)
@given(COUNTS, VALUES)
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
        report = build(
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
    report = build(
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
    report = build(
        tmp_path,
        UNCORE_PMU_EVENTS=[{"start": 5, "end": 6, "globalVm": 1, "clusterId": 2, "counterId": 1}],
        UNCORE_PMU_EVENT_VALUES=[{"id": 1, "type": 3, "value": 44, "rawId": 17, "clusterId": 2}],
    )
    assert list_counters(report) == [("cluster 2: event 17", "count", None, None, 5, 44.0)]


POOLS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 2), st.integers(1, 3), st.none() | st.integers(0, 9)),
    max_size=20,
)


@settings(deadline=None, max_examples=60)
@given(POOLS)
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
        report = build(Path(folder), CUDA_GPU_MEMORY_POOL_EVENTS=rows)
    assert sorted(list_counters(report)) == sorted(expected)


def test_allocations_from_a_pool_have_its_sizes(tmp_path: Path) -> None:
    own = {"globalPid": PROCESS, "deviceId": 1, "contextId": 1, "pc": 0, "memKind": 2, "name": None}
    report = build(
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
        found = build(Path(folder), GPU_CONTEXT_SWITCH_EVENTS=rows).activities
    assert sorted(found.select("row", "start_ns", "end_ns", "name").rows()) == sorted(expected)
    assert found["process_key"].null_count() == len(found)


def test_events_whose_values_are_rows_have_them_as_text(tmp_path: Path) -> None:
    report = build(
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
    )
    rows = report.activities.filter(pl.col("row") == "generic events")
    assert rows.select("thread_key", "start_ns", "name", "detail").sort("start_ns").rows() == [
        (THREAD, 1, "temperature", '{"temperature": 71, "field 1": 4}'),
        (None, 2, "temperature", '{"own": 1}'),
        (None, 3, "temperature", None),
    ]
