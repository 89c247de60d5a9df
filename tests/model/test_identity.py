"""Which machine, process, thread, stream, GPU and rank it was; and no secret is in a report."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from msgspec import Struct

from nsys_pp.frames.raw import ALL_GROUPS, Group
from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.read.tables import PROCESS, THREAD, Row, call, kernel, op, push_pop, strings, write_export

SECOND = (1 << 48) | (5000 << 24)


def _report(
    tmp_path: Path,
    common: Mapping[str, Sequence[Row]] | None = None,
    *,
    name: str = "report.sqlite",
    **tables: Sequence[Row],
) -> Report:
    events = {"StringIds": strings("k", "k"), "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2, 1)]}
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    return build_report(read_report(write_export(tmp_path / name, {**events, **(common or {}), **tables})))


def _gpu(number: int, bus: str | None, ordinal: int | None = None, uuid: str | None = None) -> Row:
    return {"id": number, "name": f"card {number}", "busLocation": bus, "cuDevice": ordinal, "uuid": uuid}


def _on(*devices: tuple[int, int]) -> list[Row]:
    return [kernel(1, 2, 1, globalPid=process, deviceId=device) for process, device in devices]


def _labels(report: Report) -> list[tuple[object, ...]]:
    return report.devices.select("process_key", "device_id", "gpu", "name").rows()


def test_without_a_list_gpus_are_ordinals(tmp_path: Path) -> None:
    report = _report(tmp_path, CUPTI_ACTIVITY_KIND_KERNEL=_on((PROCESS, 1), (SECOND, 0), (SECOND, 1)))
    assert [row[:3] for row in _labels(report)] == [
        (PROCESS, 1, "GPU 1"),
        (SECOND, 0, "GPU 0"),
        (SECOND, 1, "GPU 1"),
    ]


def test_gpus_are_numbered_along_the_bus(tmp_path: Path) -> None:
    # as on a machine whose nsys numbers them backwards; a display adapter has no place
    gpus = [
        _gpu(3, "0000:07:00.0", 0),
        _gpu(2, "0000:46:00.0", 1),
        _gpu(1, "0000:C7:00.0", 2),
        _gpu(9, None, 0),
    ]
    assert _labels(
        _report(tmp_path, CUPTI_ACTIVITY_KIND_KERNEL=_on((PROCESS, 0), (PROCESS, 2)), TARGET_INFO_GPU=gpus)
    ) == [(PROCESS, 0, "GPU 0", "card 3"), (PROCESS, 2, "GPU 2", "card 1")]


def test_one_ordinal_of_two_processes_can_be_two_gpus(tmp_path: Path) -> None:
    devices: list[Row] = [
        {"pid": 4242, "cudaId": 0, "gpuId": 1, "uuid": None},
        {"pid": 5000, "cudaId": 0, "gpuId": 0, "uuid": None},
    ]
    gpus = [_gpu(0, "0000:01:00.0", 0, "aa"), _gpu(1, "0000:02:00.0", 1, "bb")]
    tables: dict[str, list[Row]] = {
        "TARGET_INFO_CUDA_DEVICE": devices,
        "CUPTI_ACTIVITY_KIND_KERNEL": _on((PROCESS, 0), (SECOND, 0)),
    }
    report = _report(tmp_path, tables, TARGET_INFO_GPU=gpus)
    assert _labels(report) == [(PROCESS, 0, "GPU 1", "card 1"), (SECOND, 0, "GPU 0", "card 0")]
    assert report.devices["uuid"].to_list() == ["bb", "aa"]
    unlisted = _report(tmp_path, tables, name="unlisted.sqlite")
    assert _labels(unlisted) == [(PROCESS, 0, "GPU 1", None), (SECOND, 0, "GPU 0", None)]


def test_uuids_tell_gpus_apart_where_nothing_else_does(tmp_path: Path) -> None:
    devices: list[Row] = [
        {"pid": pid, "cudaId": 0, "gpuId": None, "uuid": uuid}
        for pid, uuid in ((4242, "GPU-AA"), (5000, "bb"))
    ]
    tables: dict[str, list[Row]] = {
        "TARGET_INFO_CUDA_DEVICE": devices,
        "CUPTI_ACTIVITY_KIND_KERNEL": _on((PROCESS, 0), (SECOND, 0)),
    }
    assert [row[2] for row in _labels(_report(tmp_path, tables))] == ["GPU 0", "GPU 1"]
    gpus = [_gpu(0, "0000:01:00.0", 0, "bb"), _gpu(1, "0000:02:00.0", 1, "GPU-aa")]
    report = _report(tmp_path, tables, name="listed.sqlite", TARGET_INFO_GPU=gpus)
    assert _labels(report) == [(PROCESS, 0, "GPU 1", "card 1"), (SECOND, 0, "GPU 0", "card 0")]


@pytest.mark.parametrize(
    ("ordinals", "visible", "expected"),
    [
        ([0, 1, 2], "2,0", "card 2"),
        ([0, 1, 2], "7", "card 0"),
        ([0, 1, 2], "GPU-xy", "card 0"),
        # nsys gave all that it cannot use ordinal 0
        ([0, 0, 0], "GPU-bbbb", "card 1"),  # cut short
        ([0, 0, 0], "GPU-AAAAaaaa-0000-0000-0000-000000000000", "card 0"),
        ([0, 0, 0], "2", "card 2"),
        ([0, 0, 0], "GPU-cc,GPU-bb", "card 2"),
    ],
)
def test_visible_devices_are_followed_where_they_can_be(
    tmp_path: Path, ordinals: list[int], visible: str, expected: str
) -> None:
    gpus = [
        _gpu(n, f"0000:0{n}:00.0", ordinal, f"{4 * letter}{4 * letter}-0000-0000-0000-000000000000")
        for n, (ordinal, letter) in enumerate(zip(ordinals, "abc", strict=True))
    ]
    report = _report(
        tmp_path, TARGET_INFO_GPU=gpus, META_DATA_CAPTURE=_environment(CUDA_VISIBLE_DEVICES=visible)
    )
    assert _labels(report)[0][3] == expected


def test_visible_devices_number_gpus_that_are_not_listed(tmp_path: Path) -> None:
    report = _report(
        tmp_path,
        CUPTI_ACTIVITY_KIND_KERNEL=_on((PROCESS, 0), (PROCESS, 1)),
        META_DATA_CAPTURE=_environment(CUDA_VISIBLE_DEVICES="6,2"),
    )
    assert [row[2] for row in _labels(report)] == ["GPU 6", "GPU 2"]


def test_parts_of_a_gpu_are_not_one(tmp_path: Path) -> None:
    whole, *parts = (f"{4 * letter}{4 * letter}-0000-0000-0000-000000000000" for letter in "abc")
    devices: list[Row] = [
        {"pid": pid, "cudaId": 0, "gpuId": 1, "uuid": part}
        for pid, part in zip((4242, 5000), parts, strict=True)
    ]
    assert _report(
        tmp_path,
        TARGET_INFO_CUDA_DEVICE=devices,
        CUPTI_ACTIVITY_KIND_KERNEL=_on((PROCESS, 0), (SECOND, 0)),
        TARGET_INFO_GPU=[_gpu(0, "0000:01:00.0", 0, "dd"), _gpu(1, "0000:02:00.0", 1, whole)],
    ).devices.select("gpu", "uuid", "bus_location").rows() == [
        ("GPU 1 MIG 0", parts[0], "0000:02:00.0"),
        ("GPU 1 MIG 1", parts[1], "0000:02:00.0"),
    ]
    assert _report(
        tmp_path,
        name="unlisted.sqlite",
        META_DATA_CAPTURE=_environment(CUDA_VISIBLE_DEVICES=f"MIG-{parts[0].upper()}"),
    ).devices["uuid"].to_list() == [parts[0]]


def test_gpus_are_listed_along_the_bus(tmp_path: Path) -> None:
    gpus = [_gpu(0, "0000:C7:00.0", 0, "GPU-BB"), _gpu(1, "0000:07:00.0", 1, "aa"), _gpu(2, None)]
    devices: list[Row] = [{"pid": 4242, "cudaId": 0, "gpuId": None, "uuid": "cc"}]
    assert _report(tmp_path, TARGET_INFO_GPU=gpus, TARGET_INFO_CUDA_DEVICE=devices).gpus.rows() == [
        ("aa", "0000:07:00.0", "card 1"),
        ("bb", "0000:C7:00.0", "card 0"),
        ("cc", None, None),
    ]


def test_threads_and_processes_are_those_with_events(tmp_path: Path) -> None:
    report = _report(
        tmp_path,
        StringIds=strings("k", "k", "python", "pt_main", "[NSys]", "renamed"),
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(1, 2, 1)],
        NVTX_EVENTS=[
            push_pop(1, 2, globalTid=THREAD + 1),
            push_pop(3, None, eventType=34, globalTid=SECOND | 1),
        ],
        PROCESSES=[
            {"globalPid": p, "pid": p >> 24 & 0xFFFFFF, "name": n}
            for p, n in ((PROCESS, "python"), (1, "init"))
        ],
        ThreadNames=[
            {"nameId": 3, "priority": 0, "globalTid": THREAD},
            {"nameId": 5, "priority": 0, "globalTid": THREAD},
            {"nameId": 4, "priority": 0, "globalTid": PROCESS | 9},
        ],
    )
    assert report.processes.rows() == [(PROCESS, 4242, "python"), (SECOND, 5000, None)]
    assert report.threads.select("thread_key", "tid", "name").rows() == [
        (THREAD, 4243, "renamed"),
        (THREAD + 1, 4244, None),
        (SECOND | 1, 1, None),
    ]


def test_streams(tmp_path: Path) -> None:
    owner = {"hwId": 0, "vmId": 1, "processId": 4242, "contextId": 1}
    assert _report(
        tmp_path,
        TARGET_INFO_CUDA_STREAM=[
            {**owner, "streamId": 7, "priority": 0, "flag": 1},
            {**owner, "streamId": 13, "priority": 4294967291, "flag": 2},
            {**owner, "processId": 1, "streamId": 13, "priority": 0, "flag": 2},
        ],
        TARGET_INFO_CUDA_CONTEXT_INFO=[{**owner, "deviceId": 0, "nullStreamId": 7}],
        TARGET_INFO_NVTX_CUDA_STREAM=[{**owner, "deviceId": 0, "streamId": 13, "name": "comm"}],
    ).streams.select("process_key", "stream_id", "name", "priority", "is_default").rows() == [
        (PROCESS, 7, None, 0, True),
        (PROCESS, 13, "comm", -5, False),
    ]


def _environment(**variables: str) -> list[Row]:
    return [
        {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'{key}="{value}"'}
        for key, value in variables.items()
    ]


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("r.sqlite", {"Hostname": "node7"}, ("node7", "hostname")),
        ("machine3/x/r.sqlite", {"Hostname": "node7"}, ("node7", "hostname")),
        ("r.sqlite", {"SystemUID": "E0F2"}, ("E0F2", "hardware id")),
        ("machine3/x/r.sqlite", {"SystemUID": "pid:[402]"}, ("machine3", "folder")),
        ("r.1.sqlite", {}, ("r.1", "file name")),
    ],
)
def test_machine(tmp_path: Path, name: str, facts: dict[str, str], expected: tuple[str, str]) -> None:
    rows = [{"name": key, "value": value} for key, value in facts.items()]
    session = _report(
        tmp_path, name=name, TARGET_INFO_SYSTEM_ENV=rows or [{"name": "x", "value": "y"}]
    ).session
    assert (session.machine, session.machine_source) == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SLURM_PROCID": "5", "RANK": "3"}, (3, "RANK")),
        ({"PMI_RANK": "4"}, (4, "PMI_RANK")),
        ({"PADDLE_TRAINER_ID": "2"}, (2, "PADDLE_TRAINER_ID")),
        ({"RANK": "abc", "OMPI_COMM_WORLD_RANK": "0"}, (0, "OMPI_COMM_WORLD_RANK")),
        ({"MY_RANK": "3", "LOCAL_RANK": "1"}, (None, None)),
        ({"RANK": "8", "WORLD_SIZE": "8", "FLUX_TASK_RANK": "2"}, (2, "FLUX_TASK_RANK")),
        ({"MV2_COMM_WORLD_RANK": "1"}, (1, "MV2_COMM_WORLD_RANK")),
    ],
)
def test_rank_of_the_launcher(
    tmp_path: Path, variables: dict[str, str], expected: tuple[object, object]
) -> None:
    session = _report(tmp_path, META_DATA_CAPTURE=_environment(**variables)).session
    assert (session.rank, session.rank_source) == expected
    assert "MY_RANK" not in session.launcher


@pytest.mark.filterwarnings("ignore:.*no table of names")
def test_the_rank_does_not_depend_on_what_is_read(tmp_path: Path) -> None:
    streams = [
        {"hwId": 0, "vmId": 1, "processId": pid, "contextId": 1, "streamId": 7, "priority": 0, "flag": 1}
        for pid in (4242, 5000)
    ]
    tables: dict[str, list[Row]] = {
        "META_DATA_CAPTURE": _environment(SLURM_PROCID="1"),
        "TARGET_INFO_CUDA_STREAM": [dict(stream) for stream in streams],
        "CUPTI_ACTIVITY_KIND_KERNEL": _on((PROCESS, 0), (SECOND, 1)),
    }
    path = write_export(tmp_path / "a.sqlite", tables)
    for need in (ALL_GROUPS, frozenset[Group]()):
        assert build_report(read_report(path, need=need)).session.rank is None


def test_mpi_says_the_rank_best(tmp_path: Path) -> None:
    tables: dict[str, list[Row]] = {"META_DATA_CAPTURE": _environment(RANK="3")}
    one = _report(tmp_path, tables, MPI_RANKS=[{"globalTid": THREAD, "rank": 6}]).session
    assert (one.rank, one.rank_source) == (6, "MPI")
    ranks = [{"globalTid": THREAD, "rank": 6}, {"globalTid": SECOND | 1, "rank": 7}]
    assert _report(tmp_path, tables, name="two.sqlite", MPI_RANKS=ranks).session.rank is None


def test_launcher_variables_come_from_the_block_too(tmp_path: Path) -> None:
    block = "A=b;RANK=7;TOKEN=x;WORLD_SIZE=8;X_RANK=1;LOCAL_RANK=7secret"
    assert _report(
        tmp_path,
        META_DATA_CAPTURE=_environment(WORLD_SIZE="SCRUBBED", SLURM_NODEID="2"),
        TARGET_INFO_SYSTEM_ENV=[{"name": "DeviceEnvironment", "value": block}],
    ).session.launcher == {"SLURM_NODEID": "2", "RANK": "7", "WORLD_SIZE": "8"}


@pytest.mark.parametrize(
    ("name", "value", "is_kept"),
    [
        ("CUDA_VISIBLE_DEVICES", "MIG-GPU-8932f937-d72c/1/0,MIG-8932f937", True),
        ("CUDA_VISIBLE_DEVICES", "0,hunter2", False),
        ("CUDA_VISIBLE_DEVICES", "GPU-8932f937/home/me", False),
        ("PADDLE_TRAINERS_NUM", "8", True),
        ("PADDLE_TRAINER_ENDPOINTS", "8", False),
        ("JSM_NAMESPACE_RANK", "3x", False),
        ("FLUX_TASK_RANK", "-1", False),
    ],
)
def test_only_numbers_and_devices_are_read(tmp_path: Path, name: str, value: str, is_kept: bool) -> None:
    session = _report(tmp_path, META_DATA_CAPTURE=_environment(**{name: value})).session
    assert session.launcher == ({name: value} if is_kept else {})


def test_times_of_the_session(tmp_path: Path) -> None:
    session = _report(
        tmp_path,
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": 1_700_000_000_000_000_001, "systemClockNs": 5}],
        ANALYSIS_DETAILS=[{"duration": 1000, "startTime": 3, "stopTime": 9}],
        META_DATA_CAPTURE=[{"name": "CUDA_GRAPH_TRACE_OPTIONS:MODE", "value": "Node"}],
    ).session
    utc = 1_700_000_000_000_000_001
    assert (session.utc_epoch_ns, session.origin_ns, session.graph_mode) == (utc, utc - 3, "Node")
    assert (session.system_clock_ns, session.capture_end_ns, session.time_shift_ns) == (5, 1000, 0)


@pytest.mark.parametrize(
    ("epoch", "start", "shift", "expected"),
    [
        (10**18, 10**9, 0, 10**18 - 10**9),
        (10**18, 10**9 + 7, 7, 10**18 - 10**9),  # the exporter shifts the start, not the epoch
        (10**18, None, 0, None),
        (None, 10**9, 0, None),
        (10**18, 1 - (1 << 62), 0, None),  # damaged
    ],
)
def test_origin_of_the_session(
    tmp_path: Path, epoch: int | None, start: int | None, shift: int, expected: int | None
) -> None:
    session = _report(
        tmp_path,
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": epoch}],
        ANALYSIS_DETAILS=[{"duration": 1000, "startTime": start}],
        META_DATA_EXPORT=[{"name": "EXPORT_CONFIG_TIME_SHIFT", "value": str(shift)}],
    ).session
    assert session.origin_ns == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", True),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", True),
        ("void nccl_x", True),
        ("HcclAllReduce", True),
        ("nvshmemi_transfer", True),
        ("rcclKernel", True),
        ("void cutlass::gemm", False),
        ("launcher_nccless", False),
    ],
)
def test_communication_kernels(tmp_path: Path, name: str, expected: bool) -> None:
    report = _report(tmp_path, StringIds=strings(name, name))
    assert report.gpu_ops["is_communication"].to_list() == [expected]


def test_copies_of_a_kind_that_is_new_are_copies(tmp_path: Path) -> None:
    copies = [op(1, 2, 1, copyKind=kind, bytes=1) for kind in (1, 10, 13, 99, None)]
    names = _report(tmp_path, CUPTI_ACTIVITY_KIND_MEMCPY=copies).gpu_ops["name"].cast(pl.String).to_list()
    assert names[1:] == ["Memcpy HtoD", "Memcpy PtoP", "Memcpy Unified DtoD", "Memcpy", "Memcpy"]


def test_details(tmp_path: Path) -> None:
    kernels = [kernel(1, 2, 1, gridX=3, gridY=2, demangledName=1), kernel(3, 4, 2, demangledName=0)]
    report = _report(tmp_path, StringIds=strings("k", "k(int)"), CUPTI_ACTIVITY_KIND_KERNEL=kernels)
    assert report.op_details.distinct[report.op_details.row].select(
        pl.col("full_name", "grid", "block").cast(pl.String), "registers_per_thread"
    ).rows() == [("k(int)", "3,2,1", "32,32,32", 16), (None, "1,1,1", "32,32,32", 16)]


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
    assert (report.session.launcher, report.session.rank) == ({"RANK": "3"}, 3)
    text = _everything(report)
    assert "step" in text
    assert SECRET not in text
    assert SECRET not in repr(report)
    # names are stored once for all: written down, they bring nothing else along
    for name in report.__struct_fields__:
        if isinstance(frame := getattr(report, name), pl.DataFrame):
            written = io.BytesIO()
            frame.write_ipc(written)
            assert SECRET.encode() not in written.getvalue()
    # of the environment even the raw report has nothing more
    assert SECRET not in str(raw["launcher"].rows()) + str(raw["facts"].rows())
