"""Data that a trace has on request (`--show`): every row and sample comes back from Perfetto's importer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.raw import ALL_GROUPS, SHOW_GROUPS
from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.options import SHOW_KINDS
from nsys_pp.output.trace.run_tracks import TITLE as MPI_MESSAGES
from nsys_pp.output.trace.tracks import MOST_SAMPLES, thin
from nsys_pp.read import read_report
from nsys_pp.read.names import TABLES, TABLES_ON_REQUEST
from tests.importer import Importer, assert_no_errors, read_flows, slices_by_track
from tests.read.on_request import write_everything
from tests.read.tables import PROCESS, Row, call, op, os_call, push_pop, strings, write_export
from tests.sql import edit, select
from tests.trace.test_reports import COUNTERS, offset_ns, zero_ns

ROW = re.compile(r"/(?:CPU: .* (?P<pid>\d+)|system)/(?P<row>[^/]*)$")  # names of processes are paths


DRAWN_ANYWAY = {name for table in TABLES for name in table.names}


ARGUMENTS = (
    *("size_bytes", "peer", "tag", "stream_id", "cpu", "address", "count", "detail", "event_id", "stack"),
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "run.pftrace"


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    return write_everything(tmp_path / "report.sqlite")


def assert_activities_are_drawn(importer: Importer, trace: Path, report: Report) -> None:
    """Every activity stands once on the row of its title and thread, with its arguments."""
    slices = slices_by_track(importer, trace)
    assert_no_errors(importer)
    zero = zero_ns(importer, [report])
    titles = set(report.activities["row"].cast(str).unique())
    drawn: Counter[tuple[object, ...]] = Counter()
    for path, ts, dur, name, args in slices.select("path", "ts", "dur", "name", "args").iter_rows():
        place = ROW.search(path)
        row = place["row"] if place else ""
        title = next((title for title in titles if row == title or row.startswith(f"{title} ")), None)
        if place is None or title is None or row == MPI_MESSAGES:
            continue
        owner = (title, row.removeprefix(title).strip().split(" ")[-1], place["pid"] or "system")
        shown = tuple(args.get(argument) for argument in ARGUMENTS)
        drawn[(*owner, ts + zero, dur, name, *shown)] += 1
    expected: Counter[tuple[object, ...]] = Counter()
    tids = dict(report.active_threads.select("thread_key", "tid").iter_rows())
    pids = dict(report.active_processes.select("process_key", "pid").iter_rows())
    for one in report.activities.iter_rows(named=True):
        tid = "" if one["thread_key"] is None else str(tids[one["thread_key"]])
        pid = "system" if one["process_key"] is None else str(pids[one["process_key"]])
        start, end = one["start_ns"], one["end_ns"]
        length = 0 if end is None else end - start
        key = (one["row"], tid, pid, start + offset_ns(report), length, one["name"])
        expected[(*key, *(one[argument] for argument in ARGUMENTS))] += 1
    assert drawn == expected


def assert_events_have_arrows(importer: Importer, report: Report) -> int:
    """Arrows of the loaded trace go from the call that records an event to each call that waits for it.

    But for those of messages, which end at a transfer.
    """
    rows = {row["slice_id"]: row for row in slices_by_track(importer).iter_rows(named=True)}
    zero = zero_ns(importer, [report]) - offset_ns(report)
    drawn = Counter(
        tuple((rows[end]["ts"] + zero, rows[end]["dur"], rows[end]["name"]) for end in flow)
        for flow in read_flows(importer)
        if rows[flow[1]]["name"] != "transfer"
    )
    calls = report.activities.drop_nulls("link").select("link", "is_origin", "start_ns", "end_ns", "name")
    origin: dict[int, object] = {}
    expected: Counter[object] = Counter()
    for link, is_origin, start, end, name in calls.sort("is_origin", descending=True).iter_rows():
        if is_origin:
            origin[link] = (start, end - start, name)
        else:
            expected[origin[link], (start, end - start, name)] += 1
    assert drawn == expected
    return expected.total()


def assert_metrics_are_drawn(importer: Importer, report: Report) -> None:
    """Every sample of a metric stands on its counter, under its GPU or the system."""
    zero = zero_ns(importer, [report])
    drawn = Counter(
        (name, ts + zero, value)
        for name, _, ts, value in importer.query(None, COUNTERS).iter_rows()
        if name != "GPU busy" and not name.endswith("memory in use")
    )
    expected: Counter[tuple[object, ...]] = Counter()
    for name, time, value in report.counters.select("name", "time_ns", "value").iter_rows():
        expected[name, time + offset_ns(report), value] += 1
    for metric in report.sampled_metrics:
        for time, value in thin(metric.samples, most=MOST_SAMPLES).iter_rows():
            expected[metric.name, time + offset_ns(report), value] += 1
    assert drawn == expected


@pytest.mark.filterwarnings("ignore:.*(no arrow to|are not joined)")
def test_every_shared_report_comes_back(shared_report: Path, importer: Importer, trace: Path) -> None:
    report = build_report(read_report(shared_report, need=ALL_GROUPS | SHOW_GROUPS))
    if report.activities.is_empty():
        pytest.skip("nothing to show")
    nsys_pp.merge([shared_report], trace, detail="jobs", show="all")
    assert_activities_are_drawn(importer, trace, report)
    assert_events_have_arrows(importer, report)


@pytest.mark.filterwarnings("ignore:.*(no arrow to|are not joined)")
def test_every_known_table_comes_back(importer: Importer, everything: Path, trace: Path) -> None:
    report = build_report(read_report(everything, need=ALL_GROUPS | SHOW_GROUPS))
    nsys_pp.merge([everything], trace, show="all")
    assert_activities_are_drawn(importer, trace, report)
    assert_metrics_are_drawn(importer, report)
    assert assert_events_have_arrows(importer, report) == 2
    assert {*report.activities["row"].cast(str)} >= {
        *("OS calls", "states", "CPU samples", "CUDA synchronization", "MPI", "UCX", "cuDNN", "cuBLAS"),
        *("OpenACC", "OpenMP", "profiler overhead", "CUDA overhead", "messages of nsys", "SOMETHING_NEW"),
        *("page faults on CPUs", "page faults on GPUs", "memory pools", "memory operations"),
    }
    owners = {
        ("SMs Active [Throughput %]", "GPU 0"),
        ("GPU 1: SMs Active [Throughput %]", "system"),
        ("device memory in use", "GPU 0"),
        ("mlx5_0: IB: Bytes sent", "system"),
        ("CPU 2: cycles", "system"),
        ("memory pool size", "GPU 0"),
    }
    counters = {(name, gpu) for name, gpu, _, _ in importer.query(None, COUNTERS).iter_rows()}
    assert {counter for counter in counters if counter[0] in dict(owners)} == owners


@pytest.mark.filterwarnings("ignore:.*(no arrow to|are not joined)")
def test_each_kind_draws_its_own_rows(everything: Path, trace: Path) -> None:
    without = nsys_pp.merge([everything], trace).events
    events = {kind: nsys_pp.merge([everything], trace, show=kind, force=True).events for kind in SHOW_KINDS}
    assert not [kind for kind, count in events.items() if count <= without]


def test_a_part_with_shown_rows_merges_to_the_same_trace(tmp_path: Path, everything: Path) -> None:
    (part,) = nsys_pp.extract([everything], tmp_path / "report.nspart", show="os,metrics").parts
    whole, of_part = tmp_path / "whole.pftrace", tmp_path / "part.pftrace"
    nsys_pp.merge([everything], whole, show="metrics,os")
    nsys_pp.merge([part.output], of_part)
    assert whole.read_bytes() == of_part.read_bytes()


def test_a_window_cuts_shown_rows(importer: Importer, everything: Path, trace: Path) -> None:
    nsys_pp.merge([everything], trace, show="os", start_ns=0, end_ns=150)
    report = build_report(read_report(everything, need=ALL_GROUPS | SHOW_GROUPS))
    calls = report.activities.filter(row="OS calls")
    drawn = slices_by_track(importer, trace)
    drawn = drawn.filter(drawn["path"].str.contains("/OS calls "))
    expected = calls.filter(calls["start_ns"] < 150)
    assert 0 < len(expected) < len(calls)
    assert sorted(drawn["name"]) == sorted(expected["name"].cast(str))


def test_the_default_trace_has_no_more_bytes_with_them(tmp_path: Path, everything: Path) -> None:
    on_request = {name for table in TABLES_ON_REQUEST for name in table.names} - DRAWN_ANYWAY
    edit(
        everything, "DELETE FROM GPU_METRICS", "DELETE FROM TARGET_INFO_GPU_METRICS"
    )  # the overview has them
    merged = nsys_pp.merge([everything], tmp_path / "whole.pftrace")
    names = {name for (name,) in select(everything, "SELECT name FROM sqlite_master")} & on_request
    names |= {"SOMETHING_NEW", "SYSTEM_THING", "CUDA_UM_CPU_PAGE_FAULT_EVENTS"}
    edit(everything, *(f'DROP TABLE "{name}"' for name in names))
    nsys_pp.merge([everything], tmp_path / "bare.pftrace")
    assert merged.output.read_bytes() == (tmp_path / "bare.pftrace").read_bytes()


EPOCH_NS = 1_700_000_000_000_000_000
ON_GPU: dict[str, list[Row]] = {  # for process 1
    "CUPTI_ACTIVITY_KIND_RUNTIME": [call(100, 200, 1, globalTid=(1 << 48) | (1 << 24) | 1)],
    "CUPTI_ACTIVITY_KIND_KERNEL": [
        op(300, 900, 1, shortName=2, demangledName=2, globalPid=(1 << 48) | (1 << 24))
    ],
}
LAUNCHER = {"NVTX_EVENTS": [push_pop(300, 900, text="load", globalTid=(1 << 48) | (2 << 24) | 2)]}


def write_without_gpus(
    path: Path, *, pid: int, epoch_ns: int, more: Mapping[str, list[Row]] | None = None
) -> Path:
    """Write a report of OS calls and barriers of MPI, and the rows of further tables."""
    thread = (1 << 48) | (pid << 24) | pid
    calls = [os_call(10, 50, nameId=0, globalTid=thread)]
    ends = [1_000_000 * at + 7919 * at * at % 400_000 for at in range(1, 41)]  # at irregular times
    barriers = [
        {"start": end - 50_000, "end": end, "globalTid": thread, "textId": 1, "commHandle": 1} for end in ends
    ]
    return write_export(
        path,
        {
            "StringIds": strings("read", "MPI_Barrier", "kernel"),
            "MPI_RANKS": [{"globalTid": thread, "rank": pid - 1}],
            "MPI_COMMUNICATORS": [{"rank": pid - 1, "timestamp": 0, "commHandle": 1, "size": 2}],
            "OSRT_API": calls,
            "MPI_COLLECTIVES_EVENTS": barriers,
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": epoch_ns}],
            "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "nameEnum": 619, "value": f"host{pid}"}],
            **(more or {}),
        },
    )


def test_reports_without_gpu_operations_are_merged_on_one_clock(
    importer: Importer, tmp_path: Path, trace: Path
) -> None:
    paths = [
        write_without_gpus(tmp_path / f"{pid}.sqlite", pid=pid, epoch_ns=EPOCH_NS + 5000 * pid)
        for pid in (1, 2)
    ]
    with pytest.warns(UserWarning, match="no report has GPU operations: CPU ranges"):
        merged = nsys_pp.merge(paths, trace)
    assert (merged.machines, merged.gpus, merged.slices) == (2, 0, 2 * (1 + 40))
    calls = slices_by_track(importer, trace)
    calls = calls.filter(calls["path"].str.contains("/OS calls "))
    assert_no_errors(importer)
    assert sorted(calls["name"]) == ["read", "read"]
    assert calls["ts"].n_unique() == 1  # the barriers end at once, though recorded UTC differs by 5 us


def test_hosts_of_a_run_with_gpus_are_drawn_on_its_clock(
    importer: Importer, tmp_path: Path, trace: Path
) -> None:
    paths = [
        write_without_gpus(tmp_path / "gpu.sqlite", pid=1, epoch_ns=EPOCH_NS + 5000, more=ON_GPU),
        write_without_gpus(tmp_path / "host.sqlite", pid=2, epoch_ns=EPOCH_NS, more=LAUNCHER),
    ]
    with pytest.warns(UserWarning, match=r"host.sqlite` has no GPU operations: its CPU ranges, and calls of"):
        merged = nsys_pp.merge(paths, trace)
    assert (merged.machines, merged.gpus, merged.slices) == (2, 1, 1 + 1 + 40)
    drawn = slices_by_track(importer, trace)
    assert_no_errors(importer)
    starts = dict(drawn.filter(drawn["name"].is_in(["load", "kernel"])).select("name", "ts").iter_rows())
    assert (
        starts["load"] == starts["kernel"]
    )  # both end their barriers at once, though recorded UTC differs by 5 us
    rows = {path.split("/", 1)[1] for path in drawn["path"]}
    assert any(row.startswith("CPU: ") and "/NVTX " in row for row in rows)
    assert any(row.startswith("CPU: ") and "/MPI " in row for row in rows)
    nsys_pp.merge(paths, trace, force=True, detail="kernels")
    assert "load" not in set(slices_by_track(importer, trace)["name"])


def test_content_that_was_chosen_is_not_changed(tmp_path: Path) -> None:
    path = write_without_gpus(tmp_path / "report.sqlite", pid=1, epoch_ns=1)
    for options in ({"detail": "kernels"}, {"show": "samples"}, {"end_ns": 5}):
        with pytest.raises(MissingDataError):
            nsys_pp.merge([path], tmp_path / "run.pftrace", **options)
    with pytest.raises(MissingDataError, match="no GPU operations"):
        nsys_pp.merge(
            [
                write_export(
                    tmp_path / "bare.sqlite",
                    {"StringIds": strings("x"), "PROCESSES": [{"globalPid": 0, "pid": 0}]},
                )
            ],
            tmp_path / "b.pftrace",
        )


def write_events(path: Path, waits: int) -> Path:
    """Write a report of one record of an event, and of many calls that wait for it."""
    calls = [call(10 * at, 10 * at + 5, at, nameId=0 if at == 0 else 1) for at in range(waits + 1)]
    own = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": PROCESS, "eventId": 3}
    return write_export(
        path,
        {
            "StringIds": strings("cudaEventRecord", "cudaStreamWaitEvent"),
            "CUPTI_ACTIVITY_KIND_RUNTIME": calls,
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
                {"start": 10 * at, "end": 10 * at + 5, "correlationId": at, "syncType": 2, **own}
                for at in range(1, waits + 1)
            ],
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT": [{"correlationId": 0, **own}],
        },
    )


@pytest.mark.parametrize("ending", [".pftrace", ".json"])
def test_several_calls_wait_for_one_record(ending: str, importer: Importer, tmp_path: Path) -> None:
    path = write_events(tmp_path / "report.sqlite", waits=3)
    trace = tmp_path / f"run{ending}"
    nsys_pp.merge([path], trace, show="sync")
    names = dict(importer.query(trace, "SELECT id, name FROM slice").iter_rows())
    flows = read_flows(importer)
    assert_no_errors(importer)
    assert (
        sorted((names[begin], names[end]) for begin, end in flows)
        == [("cudaEventRecord", "cudaStreamWaitEvent")] * 3
    )
    assert (len({begin for begin, _ in flows}), len({end for _, end in flows})) == (1, 3)


def test_waits_without_an_arrow_are_counted(importer: Importer, tmp_path: Path, trace: Path) -> None:
    path = write_events(tmp_path / "report.sqlite", waits=11)
    with pytest.warns(UserWarning, match="no arrow to 3 of 11 waits .*: 3 of records that have 8 arrows"):
        nsys_pp.merge([path], trace, show="sync")
    slices_by_track(importer, trace)
    assert len(read_flows(importer)) == 8
    edit(path, "DROP TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT")
    with pytest.warns(UserWarning, match="no arrow to 11 of 11 waits .*: 11 without a known record"):
        nsys_pp.merge([path], trace, show="sync", force=True)


NAMES = (
    *("MPI_Init", "MPI_Send", "MPI_Recv", "MPI_Isend", "MPI_Irecv", "MPI_Waitall", "MPI_Sendrecv"),
    *("MPI_Send_init", "MPI_Recv_init", "MPI_Start", "MPI_Wait", "MPI_Barrier"),
)


IDS = {name: at for at, name in enumerate(NAMES)}


WORLD, OTHER, COPY = 100, 200, 300


# tables and columns as nsys 2023.4 and 2024.2 wrote them of a program of Open MPI
def write_rank(path: Path, rank: int, messages: list[Row], requests: list[Row]) -> Path:
    """Write a report of a rank of two, with clocks of one machine."""
    thread = (1 << 48) | ((rank + 10) << 24) | (rank + 10)
    handles = [
        {"commHandle": WORLD + rank, "parentHandle": 0, "localRank": rank, "size": 2},
        {"commHandle": OTHER + rank, "parentHandle": WORLD + rank, "localRank": 1 - rank, "size": 2}
        | {"groupRoot": 1, "groupRootUid": 0},
        {"commHandle": COPY + rank, "parentHandle": WORLD + rank},  # ranks of duplicates are not recorded
    ]
    ends = [10_000_000 + 1_000_000 * at + 7919 * at * at % 400_000 for at in range(1, 41)]

    def named(row: Row) -> Row:
        return {**row, "globalTid": thread, "textId": IDS[str(row["name"])], "name": None}

    return write_export(
        path,
        {
            "StringIds": strings(*NAMES),
            "PROCESSES": [{"globalPid": thread & ~0xFFFFFF, "pid": rank + 10, "name": "app"}],
            "MPI_RANKS": [{"globalTid": thread, "rank": rank}],
            "MPI_COMMUNICATORS": [{"rank": rank, "timestamp": 5, **handle} for handle in handles],
            "MPI_P2P_EVENTS": [named(row) for row in messages],
            "MPI_START_WAIT_EVENTS": [named(row) for row in requests],
            "MPI_OTHER_EVENTS": [named({"start": 1, "end": 4, "name": "MPI_Init"})],
            "MPI_COLLECTIVES_EVENTS": [
                named({"start": end - 50_000, "end": end, "name": "MPI_Barrier", "commHandle": WORLD + rank})
                for end in ends
            ],
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": EPOCH_NS}],
            "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "nameEnum": 619, "value": "host"}],
        },
    )


def row(
    start: int, end: int, name: str, peer: int, tag: int, size: int, handle: int, request: int | None = None
) -> Row:
    columns = {"start": start, "end": end, "name": name, "commHandle": handle, "tag": tag}
    return {**columns, "remoteRank": peer, "size": size, "requestHandle": request}


def wait(start: int, end: int, name: str, request: int) -> Row:
    return {"start": start, "end": end, "name": name, "requestHandle": request}


def write_run(folder: Path) -> list[Path]:
    sender = [
        row(1000, 1100, "MPI_Send", 1, 5, 64, WORLD),
        row(1200, 1210, "MPI_Isend", 1, 7, 500, WORLD, 41),
        row(1220, 1230, "MPI_Isend", 1, 8, 600, WORLD, 42),
        row(2000, 2000, "MPI_Sendrecv", 1, 11, 300, WORLD),
        row(2000, 2400, "MPI_Sendrecv", 1, 11, 310, WORLD),
        row(3000, 3001, "MPI_Send_init", 1, 30, 90, WORLD, 43),
        row(4000, 4100, "MPI_Send", 0, 3, 77, OTHER),  # rank 0 of the other communicator is process 1
        row(5000, 5100, "MPI_Send", 1, 3, 78, COPY),
    ]
    sender_requests = [
        *(wait(1300, 1900, "MPI_Waitall", request) for request in (41, 42)),
        *(wait(3100 + 200 * at, 3110 + 200 * at, "MPI_Start", 43) for at in (0, 1)),
        *(wait(3120 + 200 * at, 3180 + 200 * at, "MPI_Wait", 43) for at in (0, 1)),
    ]
    receiver = [
        row(500, 1150, "MPI_Recv", 0, 5, 64, WORLD + 1),
        row(1160, 1165, "MPI_Irecv", 0, 8, 1000, WORLD + 1, 51),
        row(1170, 1175, "MPI_Irecv", 0, 7, 1000, WORLD + 1, 52),
        row(2100, 2100, "MPI_Sendrecv", 0, 11, 310, WORLD + 1),
        row(2100, 2300, "MPI_Sendrecv", 0, 11, 300, WORLD + 1),
        row(3050, 3051, "MPI_Recv_init", 0, 30, 90, WORLD + 1, 53),
        row(3900, 4200, "MPI_Recv", 1, 3, 77, OTHER + 1),
        row(4900, 5200, "MPI_Recv", 0, 3, 78, COPY + 1),
    ]
    receiver_requests = [
        *(wait(1400, 1950, "MPI_Waitall", request) for request in (51, 52)),
        *(wait(3060 + 200 * at, 3070 + 200 * at, "MPI_Start", 53) for at in (0, 1)),
        *(wait(3080 + 200 * at, 3200 + 200 * at, "MPI_Wait", 53) for at in (0, 1)),
    ]
    return [
        write_rank(folder / "0.sqlite", 0, sender, sender_requests),
        write_rank(folder / "1.sqlite", 1, receiver, receiver_requests),
    ]


ARROWS = [  # tag and bytes of each message that is sent, and of the receive at its end
    *([5, 64, 64], [7, 500, 1000], [8, 600, 1000], [11, 300, 300], [11, 310, 310]),
    *([30, 90, 90], [30, 90, 90], [3, 77, 77]),
]


UNKNOWN = "2 of 18 sends and receives of MPI are not joined: unknown communicator 2"


def read_arrows(importer: Importer, trace: Path) -> list[list[int]]:
    slices = {row["slice_id"]: row for row in slices_by_track(importer, trace).iter_rows(named=True)}
    assert_no_errors(importer)
    arrows = []
    for begin, end in read_flows(importer):
        sent, arrived = slices[begin], slices[end]
        assert sent["name"].startswith("send to rank ")
        assert arrived["name"] == "message"
        assert sent["ts"] < arrived["ts"]
        assert sent["args"]["tag"] == arrived["args"]["tag"]
        arrows.append([sent["args"]["tag"], sent["args"]["size_bytes"], arrived["args"]["size_bytes"]])
    return arrows


@pytest.mark.parametrize("ending", [".pftrace", ".json"])
def test_messages_are_joined_between_ranks(ending: str, importer: Importer, tmp_path: Path) -> None:
    paths = write_run(tmp_path)
    trace = tmp_path / f"run{ending}"
    with pytest.warns(UserWarning, match=UNKNOWN):
        nsys_pp.merge(paths, trace, show="mpi")
    if ending == ".json":
        flows = importer.query(trace, "SELECT slice_out, slice_in FROM flow")
        assert_no_errors(importer)
        assert len(flows) == len(ARROWS)
        return
    assert sorted(read_arrows(importer, trace)) == sorted(ARROWS)
    drawn = slices_by_track(importer).filter(pl.col("path").str.ends_with("/MPI messages"))
    reports = [build_report(read_report(path, need=frozenset({"show_mpi"}))) for path in paths]
    expected = pl.concat(report.mpi_messages for report in reports)
    calls = drawn.filter(pl.col("name") != "message")
    shown = [
        (ts % 1_000_000, dur, args["call"]) for ts, dur, args in calls.select("ts", "dur", "args").iter_rows()
    ]
    zero = int(drawn["ts"].min()) - int(expected["start_ns"].min())  # type: ignore[arg-type]
    recorded = expected.select(
        pl.col("start_ns") + zero, pl.col("end_ns") - pl.col("start_ns"), "name"
    ).rows()
    assert sorted(shown) == sorted((start % 1_000_000, length, name) for start, length, name in recorded)


def test_parts_have_the_same_messages(importer: Importer, tmp_path: Path) -> None:
    paths = write_run(tmp_path)
    parts = nsys_pp.extract(paths, tmp_path / "parts", show="mpi").parts
    with pytest.warns(UserWarning, match=UNKNOWN):
        nsys_pp.merge([part.output for part in parts], tmp_path / "parts.pftrace")
    with pytest.warns(UserWarning, match=UNKNOWN):
        nsys_pp.merge(paths, tmp_path / "run.pftrace", show="mpi")
    assert (tmp_path / "parts.pftrace").read_bytes() == (tmp_path / "run.pftrace").read_bytes()


@pytest.mark.filterwarnings("ignore:.*not joined", "ignore:no report has GPU operations")
def test_messages_are_drawn_where_no_report_has_gpu_operations(
    importer: Importer, tmp_path: Path, trace: Path
) -> None:
    nsys_pp.merge(write_run(tmp_path), trace)
    assert len(read_arrows(importer, trace)) == len(ARROWS)


@pytest.mark.filterwarnings("ignore:.*not joined")
def test_a_window_cuts_messages(importer: Importer, tmp_path: Path, trace: Path) -> None:
    nsys_pp.merge(write_run(tmp_path), trace, show="mpi", end_ns=1_150)
    assert sorted(read_arrows(importer, trace)) == [[5, 64, 64]]
