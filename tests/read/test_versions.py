"""What an export is called and what it lacks depends on the nsys that made it; the frames do not."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from nsys_pp.frames.raw import SHOW_GROUPS, Group, RawReport
from nsys_pp.frames.report import GPU_OPS
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.read.on_request import write_everything
from tests.read.tables import (
    PROCESS,
    THREAD,
    Row,
    call,
    kernel,
    memory,
    op,
    os_call,
    push_pop,
    strings,
    switch,
    write_export,
)
from tests.sql import edit

_STREAM = {"streamId": 7, "hwId": 0, "vmId": 1, "processId": 4242, "contextId": 1}

_COMMON = {
    "StringIds": strings("gemm", "gemm(float*)", "cudaLaunchKernel_v7000", "step"),
    "NVTX_EVENTS": [push_pop(0, 100, textId=3)],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [call(10, 20, 1, nameId=2), call(30, 40, 2, nameId=2)],
    "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(50, 60, 1)],
}


def _without(rows: list[Row], *columns: str) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in columns} for row in rows]


def _meta(version: str) -> list[Row]:
    product = {"name": "EXPORT_PRODUCT_VERSION", "value": "x"}
    return [product, {"name": "EXPORT_SCHEMA_VERSION", "value": version}]


_GPU = {"name": "H100", "busLocation": "0000:15:00.0", "isDiscrete": 1}
_GPU_NOW = {"vmId": 1, "id": 0, **_GPU, "uuid": "aa-bb", "cuDevice": 0}
_GRAPH = {"graphId": 4, "graphExecId": 5}

VERSIONS: dict[str, dict[str, list[Row]]] = {
    # no version table, no session, no processes, no textId, no payloads
    "2019": {
        "StringIds": _COMMON["StringIds"],
        "NVTX_EVENTS": _without([push_pop(0, 100, text="step")], "textId"),
        "CUPTI_ACTIVITY_KIND_RUNTIME": _without(_COMMON["CUPTI_ACTIVITY_KIND_RUNTIME"], "eventClass"),
        "CUPTI_ACTIVITY_KIND_KERNEL": _COMMON["CUPTI_ACTIVITY_KIND_KERNEL"],
        "TARGET_INFO_GPU": [{"vmId": 1, "deviceId": 1, **_GPU}],
        "TARGET_INFO_CUDA_GPU": [{"deviceId": 0, "name": "H100", "pciBusId": "0000:15:00.0"}],
        "TARGET_INFO_CUDA_NULL_STREAM": [{**_STREAM, "deviceId": 0}],
    },
    "2.9.1": {
        **_COMMON,
        "EXPORT_META_DATA": _meta("2.9.1"),
        "TARGET_INFO_GPU": [_GPU_NOW],
        "TARGET_INFO_CUDA_NULL_STREAM": [{**_STREAM, "deviceId": 0}],
        "CUDA_GRAPH_EVENTS": [{"start": 1, "end": 2, "graphNodeId": 9, "originalGraphNodeId": None}],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [op(55, 58, 2, bytes=8, copyKind=2, graphNodeId=9)],
    },
    "3.7.2": {
        **_COMMON,
        "META_DATA_EXPORT": _meta("3.7.2"),
        "TARGET_INFO_GPU": [_GPU_NOW],
        "TARGET_INFO_CUDA_CONTEXT_INFO": [{**_STREAM, "nullStreamId": 7, "deviceId": 0}],
        "CUPTI_ACTIVITY_KIND_MEMSET": [op(55, 58, 2, bytes=8, value=0, greenContextId=None)],
    },
    "3.16.1": {
        **_COMMON,
        "META_DATA_EXPORT": _meta("3.16.1"),
        "TARGET_INFO_GPU": [_GPU_NOW],
        "TARGET_INFO_CUDA_CONTEXT_INFO": [{**_STREAM, "nullStreamId": 7, "deviceId": 0}],
        "CUDA_GRAPH_NODE_EVENTS": [{"start": 1, "end": 2, "graphNodeId": 9, "originalGraphNodeId": None}],
        "CUDA_GRAPH_EVENTS": [
            {"start": 1, "end": 2, "graphId": 4, "originalGraphId": None, "graphExecId": 5}
        ],
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [op(55, 58, 2, **_GRAPH)],
    },
    "3.28.1": {
        **_COMMON,
        "NVTX_EVENTS": [{"eventId": 1, **push_pop(0, 100, textId=3, binaryData=None)}],
        "META_DATA_EXPORT": _meta("3.28.1"),
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            kernel(50, 60, 1, graphId=0, graphNodeId=0, clusterX=1, tensorSizeMinusOneElements=0)
        ],
        "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS": [op(55, 58, 2, eventClass=0, ChannelID=1, sourceBytes=8)],
        "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 0, "cudaId": 0, "pid": 4242, "uuid": "aa-bb"}],
        "TARGET_INFO_GPU": [_GPU_NOW],
        "TARGET_INFO_CUDA_CONTEXT_INFO": [{**_STREAM, "nullStreamId": 7, "deviceId": 0, "numTpcs": 0}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1, "systemClockNs": 2, "sessionStartCntVctNs": 3}],
        "OSRT_API": [os_call(5, 6)],
        "SCHED_EVENTS": [switch(5, 1), switch(7, 0)],
        "CUDA_GPU_MEMORY_USAGE_EVENTS": [memory(8, 0, 4096, 16)],
    },
}

_HOST = ("OSRT_API", "SCHED_EVENTS", "CUDA_GPU_MEMORY_USAGE_EVENTS")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_report_of_any_version_gives_the_same_frames(tmp_path: Path, version: str) -> None:
    report = build_report(read_report(write_export(tmp_path / f"{version}.sqlite", VERSIONS[version])))
    assert report.session.schema_version == (None if version == "2019" else version)
    assert report.ranges.select("range_id", "start_ns", "end_ns", pl.col("name").cast(pl.String)).rows() == [
        (1, 0, 100, "step")
    ]
    assert report.api_calls.select("correlation_id", pl.col("name").cast(pl.String)).rows() == [
        (1, "cudaLaunchKernel"),
        (2, "cudaLaunchKernel"),
    ]
    kernels = report.gpu_ops.filter(pl.col("kind") == "kernel")
    assert kernels.select(
        "op_id", "process_key", "start_ns", pl.col("name").cast(pl.String), "graph_id"
    ).rows() == [(0, PROCESS, 50, "gemm", None)]
    assert report.devices.select("process_key", "device_id", "gpu", "name", "bus_location").rows() == [
        (PROCESS, 0, "GPU 0", "H100", "0000:15:00.0")
    ]
    assert report.streams.select("stream_id", "is_default").rows() == [(7, True)]


@pytest.mark.parametrize(
    ("version", "kind", "name", "graph"),
    [
        ("2.9.1", "memcpy", "Memcpy DtoH", 9),
        ("3.7.2", "memset", "Memset", None),
        ("3.16.1", "graph", "CUDA graph 4", 4),
        ("3.28.1", "memcpy", "Decompress", None),
    ],
)
def test_operations_that_are_no_kernels(
    tmp_path: Path, version: str, kind: str, name: str, graph: int | None
) -> None:
    report = build_report(read_report(write_export(tmp_path / "a.sqlite", VERSIONS[version])))
    other = report.gpu_ops.filter(pl.col("kind") != "kernel")
    assert other.select(
        "op_id", "correlation_id", pl.col("kind", "name").cast(pl.String), "graph_id"
    ).rows() == [(1, 2, kind, name, graph)]
    size = None if kind == "graph" else 8
    assert report.op_details.gather("size_bytes", report.gpu_ops["op_id"]).to_list() == [None, size]


@pytest.mark.filterwarnings("ignore:.*no table of names")
@pytest.mark.parametrize("table", sorted({name for tables in VERSIONS.values() for name in tables}))
def test_every_table_is_optional(tmp_path: Path, table: str) -> None:
    tables = {name: rows for tables in VERSIONS.values() for name, rows in tables.items() if name != table}
    report = build_report(read_report(write_export(tmp_path / "a.sqlite", tables)))
    assert report.gpu_ops.schema == GPU_OPS


@pytest.mark.few(3)
@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize(
    "table", ["NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", *_HOST]
)
def test_every_column_is_optional(tmp_path: Path, table: str) -> None:
    tables = VERSIONS["3.28.1"]
    for column in tables[table][0]:
        path = tmp_path / f"{column}.sqlite"
        report = build_report(
            read_report(write_export(path, {**tables, table: _without(tables[table], column)}))
        )
        assert report.gpu_ops.schema == GPU_OPS


def read_shown(path: Path) -> RawReport:
    return read_report(path, need=frozenset(SHOW_GROUPS))


def test_each_group_reads_its_own_tables(tmp_path: Path) -> None:
    path = write_everything(tmp_path / "report.sqlite")
    rows = {
        group: set(read_report(path, need=frozenset([group]))["activities"]["source"])
        for group in SHOW_GROUPS
    }
    expected: dict[Group, set[str]] = {
        "show_os": {"OS calls"},
        "show_mpi": {"MPI"},
        "show_libraries": {"cuBLAS", "cuDNN", "OpenACC", "OpenMP"},
        "show_profiler": {"profiler overhead", "CUDA overhead", "messages of nsys"},
        "show_other": {"SOMETHING_NEW", "SYSTEM_THING"},
        "show_memory": {"memory operations", "memory pools", "page faults on CPUs", "page faults on GPUs"},
        "show_states": set(),
        "show_metrics": set(),
        "show_counters": set(),
    }
    assert {group: rows[group] for group in expected} == expected


def test_an_unknown_table_is_read_by_its_columns(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "report.sqlite",
        {
            "StringIds": strings("named"),
            "PROCESSES": [{"globalPid": 0, "pid": 0}],
            "ROW_BY_ID": [{"start": 1, "end": 4, "globalTid": THREAD, "nameId": 0, "bytes": 8}],
            "ROW_BY_TEXT": [{"startedAt": 2, "endedAt": 3, "text": "texted"}],
            "NUMBERS_AS_TEXT": [{"start": "soon", "end": 9}, {"start": 5, "end": "late"}],
            "NO_TIMES": [{"value": 7}],
        },
    )
    edit(
        path,
        'CREATE TABLE "WITHOUT" (start, name TEXT, PRIMARY KEY (start)) WITHOUT ROWID',
        "INSERT INTO \"WITHOUT\" VALUES (7, 'keyed')",
        'CREATE VIEW "A_VIEW" AS SELECT 1 AS start',
    )
    with pytest.warns(
        UserWarning, match="1 row of `NUMBERS_AS_TEXT` with no whole number in `(start|end)` left"
    ):
        report = build_report(read_shown(path))
    rows = report.activities.select("row", "thread_key", "start_ns", "end_ns", "name", "size_bytes")
    assert sorted(rows.rows()) == [
        ("ROW_BY_ID", THREAD, 1, 4, "named", 8),
        ("ROW_BY_TEXT", None, 2, 3, "texted", None),
        ("WITHOUT", None, 7, None, "keyed", None),
    ]


def test_rows_of_tables_without_an_entry_have_their_arguments(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "report.sqlite", {"StringIds": strings("x"), "PROCESSES": [{"globalPid": 0, "pid": 0}]}
    )
    # as the DDL of nsys 2023.4 has them
    edit(
        path,
        """CREATE TABLE ETW_EVENTS (timestamp INTEGER NOT NULL, processId INTEGER, threadId INTEGER,
          providerId INTEGER NOT NULL, taskId INTEGER NOT NULL, eventId INTEGER NOT NULL, version INTEGER NOT NULL,
          opcode INTEGER, data TEXT NOT NULL)""",
        """INSERT INTO ETW_EVENTS VALUES (5, 1, 2, 3, 4, 5, 6, 7, '{"irq": 4}')""",
        "CREATE TABLE GPU_MEMORY_BUDGET_EVENTS (timestamp INTEGER, globalPid INTEGER, value INTEGER)",
        "INSERT INTO GPU_MEMORY_BUDGET_EVENTS VALUES (9, 16777216, 77)",
    )
    rows = build_report(read_shown(path)).activities
    assert sorted(
        rows.select("row", "process_key", "start_ns", "end_ns", "cpu", "count", "detail").rows()
    ) == [
        ("ETW_EVENTS", None, 5, None, None, None, '{"irq": 4}'),
        ("GPU_MEMORY_BUDGET_EVENTS", 16777216, 9, None, None, 77, None),
    ]
