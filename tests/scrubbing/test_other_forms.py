"""Copies of reports that are not in SQLite: folders of tables, and reports as nsys recorded them."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from fixtures.recording.secrets import MARK
from nsys_pp.errors import OutputError, ReportError
from nsys_pp.read import read_report
from tests.cli.calls import assert_refused, call
from tests.recording import record
from tests.test_secrets import HIDDEN, plant, plant_into
from tests.unpacking import find_words

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
RANK0 = PIPELINE / "node2" / "rank0.sqlite"


def export_tables(report: Path, folder: Path, form: str) -> Path:
    """Write the tables of a report as `nsys export --type parquetdir` and `arrowdir` do, text as bytes where it is none."""
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(report)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        for (name,) in connection.execute(query).fetchall():
            table = pl.read_database(f'SELECT * FROM "{name}"', connection, infer_schema_length=None)
            path = folder / f"{name}.{'parquet' if form == 'parquet' else 'arrow'}"
            if form == "parquet":
                table.write_parquet(path)
            else:
                table.write_ipc_stream(path)
    return folder


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_folder_has_the_copy_of_its_report(tmp_path: Path, form: str) -> None:
    report = Path(shutil.copy(RANK0, tmp_path / "rank0.sqlite"))
    folder = export_tables(report, tmp_path / "rank0_pqtdir", form)
    copies = [tmp_path / name for name in ("a.sqlite", "b.sqlite")]
    results = [
        nsys_pp.scrub(path, copy, hosts=True, users=True, paths=True)
        for path, copy in zip((report, folder), copies, strict=True)
    ]
    assert copies[0].read_bytes() == copies[1].read_bytes()
    assert results[1].removed[folder].tables == results[0].removed[report].tables
    assert results[1].removed[folder].text_count > 100
    assert results[0].pseudonyms == results[1].pseudonyms


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_planted_secrets_are_not_in_the_bytes(tmp_path: Path, form: str) -> None:
    report = plant(tmp_path / "planted.sqlite", "3.7.2")
    plant_into(report)
    folder = export_tables(report, tmp_path / "run" / "planted_arwdir", form)
    nsys_pp.scrub(tmp_path / "run", tmp_path / "clean")
    (copy,) = (tmp_path / "clean").iterdir()
    assert copy.name == "planted.sqlite"
    with closing(sqlite3.connect(report)) as connection:  # an event of the operating system refers to it
        ((text,),) = connection.execute("SELECT value FROM StringIds WHERE id = 900002")
    assert find_words(copy.read_bytes().replace(text.encode(), b""), [MARK, *HIDDEN]) == set()
    assert read_report(copy).recorded == read_report(folder).recorded


def test_other_tables_of_a_folder_are_kept_on_request(tmp_path: Path) -> None:
    folder = export_tables(RANK0, tmp_path / "rank0_pqtdir", "parquet")
    notes = pl.DataFrame(
        {"text": ["a note", None], "big": pl.Series([2**64 - 1, 1], dtype=pl.UInt64), "list": [[1], [2, 3]]}
    )
    notes.write_parquet(folder / "notes.parquet")
    done = call("scrub", folder, "-o", tmp_path / "b.sqlite", "--keep-table", "notes")
    assert done.code == 0
    assert "`notes` copied as they are" in done.stderr
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as connection:
        rows = connection.execute("SELECT text, big FROM notes").fetchall()
    assert rows == [("a note", -1), (None, 1)]


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    folder = export_tables(RANK0, tmp_path / "rank0_pqtdir", "parquet")
    (folder / "notes.parquet").write_bytes(b"PAR1 no PAR1")
    assert_refused(call("scrub", folder, "-o", tmp_path / "b.sqlite"), "notes.parquet` cannot be read")
    assert not (tmp_path / "b.sqlite").exists()


def test_copies_inside_the_folder_are_no_inputs_of_a_second_call(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    shutil.copytree(PIPELINE, reports)
    clean = reports / "clean"
    for force in (False, True):
        copies = nsys_pp.scrub(reports, clean, hosts=True, force=force).copies
        assert sorted(path.relative_to(reports) for path in copies) == sorted(
            path.relative_to(PIPELINE) for path in PIPELINE.rglob("*.sqlite")
        )
    assert not any(path.name == "clean" for path in clean.rglob("*"))
    with pytest.raises(OutputError, match="exists"):
        nsys_pp.scrub(reports, clean, hosts=True)
    for path in PIPELINE.rglob("*.sqlite"):
        (reports / path.relative_to(PIPELINE)).unlink()
    with pytest.raises(ReportError, match="holds no report, only copies in"):
        nsys_pp.scrub(reports, clean, hosts=True, force=True)


def test_a_recording_without_nsys_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("NSYS_PP_NSYS", raising=False)
    monkeypatch.setenv("NSYS_PP_CACHE", str(tmp_path / "cache"))
    recording = tmp_path / "rank0.nsys-rep"
    recording.write_bytes(b"x" * 100)
    done = call("scrub", recording, "-o", tmp_path / "clean.sqlite")
    assert_refused(done, "nsys")
    assert "nsys export --type sqlite" in done.stderr
    assert not (tmp_path / "clean.sqlite").exists()


def test_a_recording_is_exported_first(nsys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS_PP_CACHE", str(tmp_path / "cache"))
    program = "import nvtx\nwith nvtx.annotate('a range'): pass\n"
    record(nsys, tmp_path, ["-t", "nvtx", "--sample=none", "--cpuctxsw=none"], ["-c", program])
    copies = nsys_pp.scrub(tmp_path / "run.nsys-rep", tmp_path / "clean.sqlite", nsys=nsys).copies
    assert copies == {tmp_path / "run.nsys-rep": tmp_path / "clean.sqlite"}
    raw = read_report(tmp_path / "clean.sqlite")
    assert "a range" in [*raw["nvtx"]["text"], *raw["strings"]["text"]]
