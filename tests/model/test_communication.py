"""What ranks say to each other: structures of NCCL's ranges, calls of MPI."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest

from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import MPI_CALLS, NCCL_CALLS, Report
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.read.tables import PROCESS, THREAD, Row, kernel, push_pop, strings, write_export

SECOND = (1 << 48) | (5000 << 24)
COMMUNICATION: frozenset[Group] = frozenset({"communication"})

_INIT, _REDUCE, _SEND, _OTHER = 1, 2, 3, 4
_U64, _U32, _SIZE = 18, 5, 22
_LAYOUTS = {
    _INIT: [("NCCL communicator ID", _U64), ("No. of ranks", _U32), ("Rank", _U32), ("CUDA device", _U32)],
    _REDUCE: [("NCCL communicator ID", _U64), ("Message size [bytes]", _SIZE)],
    _SEND: [("NCCL communicator ID", _U64), ("Message size [bytes]", _SIZE), ("Peer rank", _U32)],
    _OTHER: [("Rank", _U32), ("Message size [bytes]", _SIZE)],
}
_FORMATS = {_INIT: "<Qiii", _REDUCE: "<QQ", _SEND: "<QQi", _OTHER: "<ixxxxQ"}
COMMUNICATOR = (1 << 64) - 5


def layouts() -> list[Row]:
    rows: list[Row] = []
    for schema, fields in _LAYOUTS.items():
        offset = 0
        for index, (name, kind) in enumerate(fields):
            width = 4 if kind == _U32 else 8
            offset += -offset % width
            row = {"domainId": 1, "schemaId": schema, "idx": index, "type": kind, "name": name}
            rows.append({**row, "arrayOrUnionDetail": None, "offset": offset or None})
            offset += width
    return rows * 2  # as of two processes


def nccl(start: int, schema: int, *values: int, **more: object) -> Row:
    data = struct.pack(_FORMATS[schema], *values)
    header = struct.pack("<IIIIQQ", 1, 0, schema, 0, len(data), 32 + len(data))
    return push_pop(start, start + 1, domainId=1, binaryData=header + data, **more)


def _read(path: Path, need: frozenset[Group] = frozenset({"ranges", "communication"})) -> Report:
    return build_report(read_report(path, need=need))


def _nccl_export(tmp_path: Path, events: Sequence[Row], **tables: Sequence[Row]) -> Path:
    common = {"StringIds": strings("ncclAllReduce"), "NVTX_PAYLOAD_SCHEMA_ENTRIES": layouts()}
    return write_export(tmp_path / "nccl.sqlite", {**common, "NVTX_EVENTS": events, **tables})


def test_nccl_calls(tmp_path: Path) -> None:
    path = _nccl_export(
        tmp_path,
        [
            push_pop(0, 90, text="step", binaryData=None),
            nccl(1, _INIT, COMMUNICATOR, 8, 3, 1),
            nccl(3, _REDUCE, COMMUNICATOR, 1 << 40),
            nccl(5, _SEND, 7, 64, 2),
            nccl(7, _OTHER, 5, 5),  # another program's fields of one name
            nccl(9, _REDUCE, 7, 1, eventType=34),  # a mark
        ],
    )
    expected = [
        (2, COMMUNICATOR, 3, 8, None, None),
        (3, COMMUNICATOR, None, None, None, 1 << 40),
        (4, 7, None, None, 2, 64),
    ]
    report = _read(path)
    assert (report.nccl_calls.schema, report.nccl_calls.rows()) == (NCCL_CALLS, expected)
    assert report.ranges["payload"].is_null().all()  # nobody asked for it
    alone = _read(path, COMMUNICATION)
    assert alone.nccl_calls.rows() == [*expected, (6, 7, None, None, None, 1)]
    assert alone.ranges.is_empty()
    with_text = _read(path, frozenset({"ranges", "cpu"}))
    assert with_text.nccl_calls.is_empty()
    assert with_text.ranges["payload"].null_count() == 1
    everything = _read(path, frozenset({"ranges", "cpu", "communication"}))
    assert everything.ranges.equals(with_text.ranges)
    assert everything.nccl_calls.rows() == expected


@pytest.mark.parametrize("layout", [[], layouts()[:4]])
def test_nccl_calls_without_a_layout_or_payload(tmp_path: Path, layout: list[Row]) -> None:
    tables: dict[str, list[Row]] = {"NVTX_PAYLOAD_SCHEMA_ENTRIES": layout} if layout else {}
    events = [push_pop(0, 1, text="ncclAllReduce")] if layout else [nccl(0, _REDUCE, 1, 2)]
    path = write_export(tmp_path / "a.sqlite", {"StringIds": strings("x"), "NVTX_EVENTS": events, **tables})
    report = _read(path)
    assert report.nccl_calls.is_empty()
    assert (report.nccl_calls.schema, len(report.ranges)) == (NCCL_CALLS, 1)


def _thread(process: int) -> int:
    return process | 9


def _call(start: int, name: int, handle: int, process: int = PROCESS, **more: object) -> Row:
    times = {"start": start, "end": start + 5, "globalTid": _thread(process)}
    return {**times, "textId": name, "commHandle": handle, "requestHandle": None, **more}


def _mpi(tmp_path: Path, **more: Sequence[Row]) -> Path:
    tables: Mapping[str, Sequence[Row]] = {
        "StringIds": strings("MPI_Send", "MPI_Allreduce", "MPI_Barrier"),
        "MPI_P2P_EVENTS": [
            _call(20, 0, 5, remoteRank=1, tag=7, size=64),
            _call(10, 0, 5, remoteRank=-2, tag=0, size=8),
            _call(30, 0, 9, SECOND, remoteRank=0, tag=1, size=1, end=None),
        ],
        "MPI_COLLECTIVES_EVENTS": [
            _call(15, 1, 5, rootRank=None, size=128, recvSize=64),
            _call(40, 2, 6, SECOND, rootRank=None, size=None, recvSize=None),
            _call(16, 1, 5, SECOND, rootRank=None, size=None, recvSize=32),
        ],
        "MPI_RANKS": [
            {"globalTid": _thread(PROCESS), "rank": 0},
            {"globalTid": _thread(SECOND), "rank": 1},
        ],
        **more,
    }
    return write_export(tmp_path / "mpi.sqlite", tables)


@pytest.mark.filterwarnings("ignore:.*left out")
def test_mpi_calls(tmp_path: Path) -> None:
    calls = _read(_mpi(tmp_path), COMMUNICATION).mpi_calls
    assert calls.schema == MPI_CALLS
    named = calls.with_columns(pl.col("name").cast(pl.String))
    columns = (
        "process_key",
        "name",
        "is_collective",
        "communicator",
        "peer",
        "tag",
        "size_bytes",
        "start_ns",
    )
    assert named.select(columns).rows() == [
        (PROCESS, "MPI_Send", False, 5, None, 0, 8, 10),
        (PROCESS, "MPI_Allreduce", True, 5, None, None, 128, 15),
        (SECOND, "MPI_Allreduce", True, 5, None, None, 32, 16),
        (PROCESS, "MPI_Send", False, 5, 1, 7, 64, 20),
        (SECOND, "MPI_Barrier", True, 6, None, None, None, 40),
    ]
    assert (calls["end_ns"] - calls["start_ns"]).unique().to_list() == [5]
    assert calls["member_count"].is_null().all()


@pytest.mark.filterwarnings("ignore:.*left out")
def test_members_of_mpi_communicators(tmp_path: Path) -> None:
    def made(rank: int, time: int | None, handle: int, size: int) -> Row:
        return {"rank": rank, "timestamp": time, "commHandle": handle, "size": size}

    # handles are used again, and mean something else on each rank
    path = _mpi(tmp_path, MPI_COMMUNICATORS=[made(0, 0, 5, 2), made(0, 12, 5, 4), made(1, 17, 5, 8)])
    calls = _read(path, COMMUNICATION).mpi_calls
    assert calls.select("start_ns", "member_count").rows() == [(10, 2), (15, 4), (16, 8), (20, 4), (40, None)]
    ranks = _read(path, COMMUNICATION).ranks
    assert ranks.rows() == [(PROCESS, None, 0, "MPI", 8), (SECOND, None, 1, "MPI", 8)]


def _ranks(
    tmp_path: Path, *events: Row, need: frozenset[Group] = COMMUNICATION, **tables: Sequence[Row]
) -> list[tuple[object, ...]]:
    (tmp_path / "nccl.sqlite").unlink(missing_ok=True)
    kernels = [kernel(1, 2, 1)] if "ops" in need else []
    more = {"CUPTI_ACTIVITY_KIND_KERNEL": kernels} if kernels else {}
    return _read(_nccl_export(tmp_path, events, **more, **tables), need).ranks.rows()


def test_the_rank_among_all_is_that_of_the_largest_communicator(tmp_path: Path) -> None:
    world, group = nccl(1, _INIT, 1, 8, 5, 0), nccl(0, _INIT, 2, 2, 1, 0)
    assert _ranks(tmp_path, group, world) == [(PROCESS, 0, 5, "NCCL", 8)]
    assert _ranks(tmp_path, group) == [(PROCESS, 0, 1, "NCCL", 2)]
    # alone in its group
    assert _ranks(tmp_path, nccl(0, _INIT, 2, 1, 0, 0)) == []
    assert _ranks(tmp_path, group, world, need=frozenset()) == []


def test_each_device_of_a_process_has_its_rank(tmp_path: Path) -> None:
    made = [nccl(device, _INIT, 1, 4, device + 2, device) for device in (1, 0)]
    assert _ranks(tmp_path, *made) == [(PROCESS, 0, 2, "NCCL", 4), (PROCESS, 1, 3, "NCCL", 4)]
    # two groups of two: neither is all
    other = nccl(0, _INIT, 2, 2, 1, 0, globalTid=SECOND | 1)
    assert _ranks(tmp_path, nccl(0, _INIT, 1, 2, 1, 0), other) == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RANK": "6", "WORLD_SIZE": "8"}, (5, "NCCL", 8)),
        ({"RANK": "6", "WORLD_SIZE": "16"}, (6, "RANK", 16)),
        ({"RANK": "6"}, (5, "NCCL", 8)),
    ],
)
def test_a_communicator_of_another_size_than_all_is_a_group(
    tmp_path: Path, variables: dict[str, str], expected: tuple[int, str, int]
) -> None:
    environment = [
        {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'{name}="{value}"'}
        for name, value in variables.items()
    ]
    need: frozenset[Group] = frozenset({"communication", "ops"})
    [rank] = _ranks(tmp_path, nccl(1, _INIT, 1, 8, 5, 0), need=need, META_DATA_CAPTURE=environment)
    assert rank[2:] == expected


def test_xla_names_its_threads(tmp_path: Path) -> None:
    names = strings(
        "XlaLauncher:#global=12,local=4,process=1,slice=0#",
        "XlaLauncher:#global=13,local=5,process=1,partition=0#",
        "XlaLauncher",
        "XlaLauncher:#global=x,local=5,process=1#",
    )
    threads = [{"nameId": n, "priority": 0, "globalTid": THREAD + n} for n in range(4)]
    path = write_export(tmp_path / "a.sqlite", {"StringIds": names, "ThreadNames": threads})
    assert _read(path, frozenset()).ranks.rows() == [
        (PROCESS, 4, 12, "XLA", None),
        (PROCESS, 5, 13, "XLA", None),
    ]
