"""Which reports are of one machine, and its label."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fixtures.recording.export import Session, write_report
from nsys_pp.frames.raw import ALL_GROUPS, Group
from nsys_pp.frames.report import Session as OurSession
from nsys_pp.frames.roster import Identity, capture_window
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.roster.identity import find_repeated, identify
from nsys_pp.roster.machines import find_machines
from tests.roster.identities import NS, identity

A, B, C = "aaaaaaaa-1", "bbbbbbbb-2", "cccccccc-3"


BUS0, BUS1 = "0000:1b:00.0", "0000:3b:00.0"


def _told(*identities: Identity) -> dict[str, list[int]]:
    return {machine.label: list(machine.reports) for machine in find_machines(identities)}


def _sources(*identities: Identity) -> list[str]:
    return [machine.source for machine in find_machines(identities)]


def test_machines_come_in_natural_order() -> None:
    names = ("node10", "node2", "node2", "node1")
    reports = [identity(f"{n}.sqlite", hostname=name, pids=[n]) for n, name in enumerate(names)]
    assert _told(*reports) == {"node1": [3], "node2": [1, 2], "node10": [0]}
    assert list(_told(*reports)) == ["node1", "node2", "node10"]
    assert _sources(*reports) == ["hostname"] * 3


def test_without_a_hostname_there_are_other_names() -> None:
    reports = [
        identity("x/a.sqlite", hostname=None, hardware_id="E0F2"),
        identity("machine10/b.sqlite", hostname=None),
        identity("machine2/b.sqlite", hostname=None),
        identity("machine2/c.sqlite", hostname=None, pids=[101]),
        identity("x/d.sqlite", hostname=None),
    ]
    assert _told(*reports) == {"d": [4], "E0F2": [0], "machine2": [2, 3], "machine10": [1]}
    assert sorted(_sources(*reports)) == ["file name", "folder", "folder", "hardware id"]


@pytest.mark.parametrize(
    ("one", "other", "labels", "source"),
    [
        ({"hardware_id": "abc"}, {"hardware_id": "abd"}, ["worker (abc)", "worker (abd)"], "hardware id"),
        # what is at one place of the bus is one GPU
        (
            {"gpus": [(A, BUS0)]},
            {"gpus": [(B, BUS0)]},
            ["worker (aaaaaaaa)", "worker (bbbbbbbb)"],
            "GPU uuids",
        ),
        # places are unknown: only the uuids of both
        (
            {"gpus": [(A, None)]},
            {"gpus": [(B, None)]},
            ["worker (aaaaaaaa)", "worker (bbbbbbbb)"],
            "GPU uuids",
        ),
        # one process id at one time
        ({"pids": [7]}, {"pids": [7]}, ["worker (1)", "worker (2)"], "process ids"),
    ],
)
def test_one_name_can_be_two_machines(
    one: dict[str, Any], other: dict[str, Any], labels: list[str], source: str
) -> None:
    reports = [identity("a.sqlite", **{"pids": [1], **one}), identity("b.sqlite", **{"pids": [2], **other})]
    assert _told(*reports) == {labels[0]: [0], labels[1]: [1]}
    assert _sources(*reports) == [source, source]


def test_folders_find_machines_of_one_name_apart() -> None:
    reports = [identity(f"machine{n}/rank{n}.sqlite", pids=[n]) for n in (10, 2, 0)]
    assert list(_told(*reports)) == ["worker (machine0)", "worker (machine2)", "worker (machine10)"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({"hardware_id": "abc"}, {}),
        ({"gpus": [(A, BUS0), (B, BUS1)]}, {"gpus": [(B, BUS1)]}),
        # each sees its own GPU, at another place: a job's ranks under cgroups
        ({"gpus": [(A, BUS0)]}, {"gpus": [(B, BUS1)]}),
        ({"gpus": [(A, BUS0)]}, {}),
        # two parts of one GPU
        (
            {"gpus": [(A, BUS0)], "launcher": {"CUDA_VISIBLE_DEVICES": f"MIG-{A}"}},
            {"gpus": [(B, BUS0)], "launcher": {"CUDA_VISIBLE_DEVICES": f"MIG-{B}"}},
        ),
    ],
)
def test_one_name_is_one_machine_unless_something_speaks_against_it(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    reports = [identity("a.sqlite", pids=[1], **one), identity("b.sqlite", pids=[2], **other)]
    assert _told(*reports) == {"worker": [0, 1]}


def test_containers_of_one_machine_meet_by_their_gpus() -> None:
    shared = [(A, BUS0), (B, BUS1)]
    reports = [
        identity("machine0/a.sqlite", hostname="pod-b", gpus=shared, pids=[7]),
        identity("machine1/b.sqlite", hostname="pod-a", gpus=shared, pids=[7]),
        identity("c.sqlite", hostname="pod-b", gpus=[(C, BUS0)], pids=[8]),
    ]
    assert _told(*reports) == {"pod-a": [0, 1], "pod-b": [2]}
    by_id = [identity(f"{name}.sqlite", hostname=name, hardware_id="x") for name in "ab"]
    assert _told(*by_id) == {"a": [0, 1]}


def test_hardware_ids_are_believed_more_than_gpus() -> None:
    reports = [identity(f"{name}.sqlite", hardware_id=name, gpus=[(A, BUS0)]) for name in ("x1", "x2")]
    assert len(_told(*reports)) == 2


def test_captures_of_one_process_are_of_one_machine() -> None:
    reports = [identity(f"r.{n}.sqlite", start_ns=n * NS) for n in range(3)]
    assert _told(*reports) == {"worker": [0, 1, 2]}


def test_what_fits_two_machines_joins_neither() -> None:
    known = [
        identity("a.sqlite", gpus=[(A, BUS0)], pids=[1]),
        identity("b.sqlite", gpus=[(B, BUS0)], pids=[2]),
    ]
    unknown = [identity("c.sqlite", pids=[3]), identity("d.sqlite", pids=[4])]
    told = _told(*known, *unknown)
    assert told == {"worker (3)": [2, 3], "worker (aaaaaaaa)": [0], "worker (bbbbbbbb)": [1]}
    assert _told(known[0], *unknown) == {"worker": [0, 1, 2]}


def test_ids_that_begin_alike_are_numbered() -> None:
    reports = [identity(f"{n}.sqlite", hardware_id=f"same-beginning-{n}", pids=[n]) for n in (1, 2)]
    assert list(_told(*reports)) == ["worker (1)", "worker (2)"]


def test_many_reports_of_one_name_are_told_in_time() -> None:
    reports = [identity(f"{n}.sqlite", pids=[100 + n % 8]) for n in range(400)]
    assert len(_told(*reports)) == 400


PIPELINE = Path(__file__).parent.parent.parent / "fixtures" / "pipeline"


NOTHING: frozenset[Group] = frozenset()


def _identify(path: Path, need: frozenset[Group] = NOTHING) -> Identity:
    return identify(build_report(read_report(path, need=need)))


def _report(path: Path, shift_ns: int = 0, pid: int = 1000, **session: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_report(
        path,
        ranges=[{"start": 10 + shift_ns, "end": 20 + shift_ns, "name": "step", "pid": pid}],
        api_calls=[{"start": 11 + shift_ns, "end": 12 + shift_ns, "pid": pid}],
        kernels=[{"start": 30 + shift_ns, "end": 40 + shift_ns, "correlation": 1, "pid": pid}],
        session=Session(time_shift_ns=shift_ns, pid=pid, **{"duration_ns": 500, **session}),
    )


def _write_tables(report: Path, folder: Path) -> Path:
    """Write what `nsys export --type parquetdir` would of a SQLite export."""
    folder.mkdir()
    with sqlite3.connect(report) as connection:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for name in names:
            cursor = connection.execute(f'SELECT * FROM "{name}"')
            columns = [column[0] for column in cursor.description]
            frame = pl.DataFrame(cursor.fetchall(), schema=columns, orient="row", infer_schema_length=None)
            frame.write_parquet(folder / f"{name}.parquet")
    connection.close()
    return folder


def test_one_recording_has_one_fingerprint(tmp_path: Path) -> None:
    report = _report(tmp_path / "a.sqlite")
    copy = tmp_path / "machine3" / "rank7.sqlite"
    copy.parent.mkdir()
    shutil.copy(report, copy)
    utc = _report(tmp_path / "utc.sqlite", shift_ns=1_790_000_000_000_000_000)
    folder = _write_tables(report, tmp_path / "a_pqtdir")
    prints = {
        _identify(path, need).fingerprint
        for path in (report, copy, utc, folder)
        for need in (NOTHING, ALL_GROUPS)
    }
    assert len(prints) == 1
    assert 0 <= prints.pop() < 1 << 64


def _variants() -> Iterator[dict[str, Any]]:
    yield {}
    yield {"hostname": "node2"}
    yield {"utc_epoch_ns": 1_790_000_000_000_000_001}
    yield {"duration_ns": 501}
    yield {"pid": 1001}
    yield {"environment": {"RANK": "0"}}
    yield {"environment": {"RANK": "1"}}


def test_two_recordings_have_two(tmp_path: Path) -> None:
    reports = [_report(tmp_path / f"{n}.sqlite", **changes) for n, changes in enumerate(_variants())]
    assert len({_identify(path).fingerprint for path in reports}) == len(reports)
    ranks = sorted(PIPELINE.rglob("*.sqlite"))
    assert len({_identify(path).fingerprint for path in ranks}) == len(ranks) == 4


def test_real_recordings_are_different(shared_reports: list[Path]) -> None:
    identities = [_identify(path) for path in shared_reports]
    assert find_repeated(identities) == []
    assert find_repeated([*identities, identities[3]]) == [(len(identities), 3)]


def test_what_is_known_without_reading_events(tmp_path: Path) -> None:
    report = _report(tmp_path / "rank3.sqlite", environment={"RANK": "3", "WORLD_SIZE": "8"})
    little, much = _identify(report), _identify(report, ALL_GROUPS)
    assert little.devices.equals(much.devices)
    assert little.ranks.equals(much.ranks)
    assert little.gpus.equals(much.gpus)
    assert little.ranks.select("rank", "rank_source", "world_size").rows() == [(3, "RANK", 8)]
    assert len(little.devices) == len(little.gpus) == 1


def test_places_that_a_program_names(tmp_path: Path) -> None:
    def name(text: str, pid: int) -> dict[str, Any]:
        return {"start": 1, "end": 2, "name": text, "pid": pid}

    report = write_report(
        tmp_path / "a.sqlite",
        ranges=[
            name("rank=3; pp=1/4 dp=0 tp=1", 1),
            name("pp=1", 2),  # may be anything
            name("pp_rank: 2, tp_rank: 0", 3),
            name("pp=0 tp=0", 4),
            name("pp=0 tp=1", 4),  # not what it said before
            name("pp=4/4 tp=1", 5),  # counted from 1, or what?
            name("app=3 tp=1", 6),
        ],
        marks=[{"time": 5, "name": "PP=7 DP=2", "pid": 7}],
    )
    places = _identify(report, ALL_GROUPS).coordinates
    assert places.select("stage", "tensor", "replica").rows() == [(1, 1, 0), (2, 0, None), (7, None, 2)]
    assert _identify(report).coordinates.is_empty()


@pytest.mark.parametrize("shift_ns", [0, 1_790_000_000_000_000_000])
def test_windows_do_not_depend_on_the_exports_shift(tmp_path: Path, shift_ns: int) -> None:
    session: OurSession = _identify(
        _report(tmp_path / "a.sqlite", shift_ns=shift_ns, utc_epoch_ns=70)
    ).session
    assert capture_window(session) == (70, 570)
