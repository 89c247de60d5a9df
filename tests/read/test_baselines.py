"""Baselines, written and read again; many writers; hostile and newer ones."""

from __future__ import annotations

import io
import sqlite3
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.errors import BaselineError, OutputError
from nsys_pp.frames.aggregates import SAMPLE, SAMPLED, RunFacts, RunSums
from nsys_pp.frames.baseline import FACTS_MEMBER, FRAMES_MEMBER, TABLE
from nsys_pp.read.baselines import list_baselines, read_baseline
from nsys_pp.write.baselines import add_baseline, encode_baseline, remove_baselines

ROWS = [
    (None, "step", "on a lane, median", "ns", 10, 1.5e8, 1.5e6),
    (2, "compute", "of jobs", "ns", 11, 0.1, 0.001),
    (0, "bubble", "share", "fraction", -3, 0.25, 0.005),
]
SUMS = RunSums(
    facts=RunFacts(made_by="1.2", steps=(10, 11), gpus={"H100": 2}, step_ns=1.5e8, recorded=("kernels",)),
    samples={
        name: pl.DataFrame(ROWS[: at % 4], schema=SAMPLE, orient="row") for at, name in enumerate(SAMPLED)
    },
)
CONTENT = encode_baseline(SUMS, tagged_at="2026-03-01T12:00:00Z")


@pytest.fixture(params=["folder", "file.sqlite", "file.db"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def put(store: Path, content: bytes) -> None:
    """Put a content into a store as main@1, as anyone could."""
    if store.suffix:
        with sqlite3.connect(store) as connection:
            connection.execute(f"CREATE TABLE {TABLE} (name, number, content)")
            connection.execute(f"INSERT INTO {TABLE} VALUES ('main', 1, ?)", (content,))
        connection.close()
        return
    store.mkdir(exist_ok=True)
    (store / "main@1.nsbaseline").write_bytes(content)


def pack(facts: bytes, frames: bytes = b"") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(FACTS_MEMBER, facts)
        archive.writestr(FRAMES_MEMBER, frames)
    return stream.getvalue()


def test_what_is_read_is_what_was_written(store: Path) -> None:
    assert add_baseline(store, "main", CONTENT) == (1, [])
    loaded = read_baseline(store, "main", version="9")
    assert (loaded.name, loaded.number, loaded.tagged_at) == ("main", 1, "2026-03-01T12:00:00Z")
    assert loaded.sums.facts == SUMS.facts
    for name in SAMPLED:
        assert loaded.sums.samples[name].equals(SUMS.samples[name])
    assert encode_baseline(loaded.sums, tagged_at=loaded.tagged_at) == CONTENT


def test_the_newest_is_read_and_numbers_are_not_used_again_while_they_exist(store: Path) -> None:
    for _ in range(11):
        add_baseline(store, "a", CONTENT)
    add_baseline(store, "b", CONTENT)
    assert read_baseline(store, "a", version="9").number == 11
    remove_baselines(store, [("a", 11), ("a", 2)])
    assert [(one.name, one.number) for one in list_baselines(store, version="9")] == [
        *(("a", number) for number in (1, *range(3, 11))),
        ("b", 1),
    ]
    assert add_baseline(store, "a", CONTENT, keep=2) == (11, [1, *range(3, 10)])
    with pytest.raises(BaselineError, match="has no baseline `a@2`"):
        read_baseline(store, "a@2", version="9")


def test_many_writers_lose_nothing(store: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = [*pool.map(lambda _: add_baseline(store, "main", CONTENT)[0], range(24))]
    assert sorted(numbers) == [*range(1, 25)]
    assert len(list_baselines(store, version="9")) == 24
    if not store.suffix:
        assert len([*store.iterdir()]) == 24, "no temporary file is left"


def test_a_newer_format_is_refused_with_both_versions(store: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(CONTENT)) as archive:
        record = msgspec.json.decode(archive.read(FACTS_MEMBER))
    put(store, pack(msgspec.json.encode({**record, "format": 2, "more": []})))
    for read in (
        lambda: read_baseline(store, "main", version="9.9"),
        lambda: list_baselines(store, version="9.9"),
    ):
        with pytest.raises(
            BaselineError, match=r"format 2, of a newer nsys-pp; this is 9\.9, which reads format 1"
        ) as error:
            read()
        assert error.value.hint == "update nsys-pp"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no zip",
        CONTENT[:-30],
        pack(b"{}"),
        pack(b"[" * 10_000),
        pack(b'{"format": "1"}'),
        pack(b'{"format": 1, "tagged_at": 3}'),
        pack(b'{"format": 1e999}'),
    ],
)
def test_hostile_contents_are_refused_in_words(content: bytes, store: Path) -> None:
    put(store, content)
    with pytest.raises(BaselineError, match="damaged, or no baseline"):
        read_baseline(store, "main", version="9")


@given(st.data())
def test_flipped_bytes_are_refused_or_harmless(data: st.DataObject) -> None:
    from nsys_pp.read.baselines import _decode

    at = data.draw(st.integers(0, len(CONTENT) - 1))
    content = CONTENT[:at] + bytes([CONTENT[at] ^ data.draw(st.integers(1, 255))]) + CONTENT[at + 1 :]
    try:
        loaded = _decode(content, "main", 1, where="x", version="9", with_samples=True)
    except BaselineError:
        return
    assert set(loaded.sums.samples) == {*SAMPLED}


def test_other_files_of_the_folder_are_ignored(tmp_path: Path) -> None:
    add_baseline(tmp_path, "main", CONTENT)
    for name in ("notes.txt", "..@1.nsbaseline", "main@x.nsbaseline", ".main@2.nsbaseline.part"):
        (tmp_path / name).write_text("")
    assert len(list_baselines(tmp_path, version="9")) == 1
    assert add_baseline(tmp_path, "main", CONTENT)[0] == 2


@pytest.mark.parametrize(
    "schema",
    [
        f"CREATE VIEW {TABLE} AS WITH RECURSIVE c(name) AS (SELECT 1 UNION ALL SELECT 1 FROM c)"
        " SELECT name, 1 AS number, 2 AS content FROM c",
        f"CREATE VIRTUAL TABLE {TABLE} USING fts5(name, number, content)",
        "CREATE TABLE other (x)",
    ],
)
def test_sqlite_files_run_nothing(schema: str, tmp_path: Path) -> None:
    store = tmp_path / "x.sqlite"
    with sqlite3.connect(store) as connection:
        connection.execute(schema)
    connection.close()
    with pytest.raises(BaselineError, match=r"damaged|without baselines"):
        list_baselines(store, version="9")


def test_triggers_are_refused_before_writing(tmp_path: Path) -> None:
    store = tmp_path / "x.sqlite"
    add_baseline(store, "main", CONTENT)
    with sqlite3.connect(store) as connection:
        connection.execute(f"CREATE TRIGGER t AFTER INSERT ON {TABLE} BEGIN DELETE FROM {TABLE}; END")
    connection.close()
    with pytest.raises(BaselineError, match="has another"):
        add_baseline(store, "main", CONTENT)
    assert len(list_baselines(store, version="9")) == 1


def test_stores_that_are_no_stores(tmp_path: Path) -> None:
    text = tmp_path / "x.sqlite"
    text.write_text("no database, " * 100)
    with pytest.raises(BaselineError, match="cannot read the baselines of"):
        list_baselines(text, version="9")
    with pytest.raises(BaselineError, match="cannot write"):
        add_baseline(text, "main", CONTENT)
    assert text.read_text().startswith("no database")
    with pytest.raises(OutputError, match="cannot write"):
        add_baseline(text / "below", "main", CONTENT)
    with pytest.raises(BaselineError, match="does not exist"):
        list_baselines(tmp_path / "none", version="9")
