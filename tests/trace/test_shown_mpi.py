"""Messages of MPI in traces: slices and arrows come back from Perfetto's importer, as they were sent."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.importer.importer import Importer
from tests.importer.readback import assert_no_errors, read_flows, slices_by_track
from tests.read.tables import Row, strings, write_export

NAMES = (
    *("MPI_Init", "MPI_Send", "MPI_Recv", "MPI_Isend", "MPI_Irecv", "MPI_Waitall", "MPI_Sendrecv"),
    *("MPI_Send_init", "MPI_Recv_init", "MPI_Start", "MPI_Wait", "MPI_Barrier"),
)
IDS = {name: at for at, name in enumerate(NAMES)}
WORLD, OTHER, COPY = 100, 200, 300
EPOCH_NS = 1_700_000_000_000_000_000
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
def test_messages_are_drawn_where_no_report_has_gpu_operations(importer: Importer, tmp_path: Path) -> None:
    trace = tmp_path / "run.pftrace"
    nsys_pp.merge(write_run(tmp_path), trace)
    assert len(read_arrows(importer, trace)) == len(ARROWS)


@pytest.mark.filterwarnings("ignore:.*not joined")
def test_a_window_cuts_messages(importer: Importer, tmp_path: Path) -> None:
    trace = tmp_path / "run.pftrace"
    nsys_pp.merge(write_run(tmp_path), trace, show="mpi", end_ns=1_150)
    assert sorted(read_arrows(importer, trace)) == [[5, 64, 64]]
