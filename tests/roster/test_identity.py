"""A recording is known again, whatever form it comes in; two recordings never are one."""

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
