"""The same report reads the same, whichever way nsys exported it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nsys_pp.errors import ReportError
from nsys_pp.frames.raw import RawReport
from nsys_pp.model import build_report
from nsys_pp.model.identity import compute_fingerprint
from nsys_pp.read import read_report
from tests.cli.calls import RANK0, succeed
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
from tests.recording import record

_PROGRAM = """
import nvtx, threading, time
with nvtx.annotate("step", color="red", payload=7, category="c", domain="d"):
    for i in range(5):
        with nvtx.annotate(f"inner {i}", payload=1.5 if i % 2 else -3):
            time.sleep(0.001)
handed = nvtx.start_range("handed over")
thread = threading.Thread(target=nvtx.end_range, args=(handed,))
thread.start()
thread.join()
nvtx.mark("mark")
nvtx.push_range("left open")
"""


def _assert_same(one: RawReport, other: RawReport) -> None:
    assert one.recorded == other.recorded
    for name, frame in one.frames.items():
        if name == "launcher":  # recorded in two tables, of which nsys exports one to a folder
            assert_frame_equal(*(raw[name].unique(maintain_order=True) for raw in (one, other)))
        else:
            assert_frame_equal(frame, other[name])


@pytest.fixture(scope="module")
def recorded(nsys: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report that the real nsys recorded here, without a GPU, and exported in three ways."""
    folder = tmp_path_factory.mktemp("recorded")
    environ = {**os.environb, b"RANK": b"3", b"BROKEN": b"x\xff\xfey"}
    options = ["-t", "nvtx,osrt", "--sample=none", "--cpuctxsw=none"]
    record(nsys, folder, options, ["-c", _PROGRAM], environ=environ)
    kinds = {
        "run.sqlite": "sqlite",
        "run_pqtdir": "parquetdir",
        "run_arwdir": "arrowdir",
        "utc.sqlite": "sqlite",
    }
    for name, kind in kinds.items():
        command = [nsys, "export", "-q", "true", "--type", kind, "-o", name, "run.nsys-rep"]
        command += ["--ts-normalize", "true"] * (name == "utc.sqlite")
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("name", ["run_pqtdir", "run_arwdir", "utc.sqlite"])
def test_real_exports_of_all_kinds_have_one_fingerprint(recorded: Path, name: str) -> None:
    one, other = (read_report(recorded / export, need=frozenset()) for export in ("run.sqlite", name))
    assert compute_fingerprint(one) == compute_fingerprint(other)


@pytest.mark.parametrize("kind", ["run_pqtdir", "run_arwdir"])
def test_real_exports_of_all_kinds_are_the_same(recorded: Path, kind: str) -> None:
    tables = read_report(recorded / kind)
    _assert_same(read_report(recorded / "run.sqlite"), tables)
    assert tables["nvtx"]["kind"].value_counts().height == 6  # of every kind that we know


def test_a_real_recording_is_read_by_way_of_its_export(
    recorded: Path, nsys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYS_PP_CACHE", str(tmp_path))
    raw = read_report(recorded / "run.nsys-rep", nsys=nsys)
    _assert_same(read_report(recorded / "run.sqlite"), raw)
    report = build_report(raw)
    names = report.ranges.select(pl.col("name", "domain").cast(pl.String), "payload", "is_open").rows()
    assert names[0] == ("step", "d", "7", False)
    assert names[2] == ("inner 1", None, "1.5", False)
    assert names[-1] == ("left open", None, None, True)
    assert report.ranges["end_thread_key"].is_not_null().to_list() == [False] * 6 + [True, False]
    assert report.ranges["category"].cast(pl.String).to_list() == ["c"] + [None] * 7
    assert report.ranges["color_argb"][0] == 0xFFFF0000
    assert report.marks["name"].cast(pl.String).to_list() == ["mark"]


def write_folder(export: Path, folder: Path, kind: str) -> Path:
    """Write an export's tables as nsys does: a file each, identifiers without a sign."""
    folder.mkdir(parents=True)
    with sqlite3.connect(f"{export.as_uri()}?immutable=1", uri=True) as connection:
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in tables:
            columns = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
            rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
            types = {"INTEGER": pl.Int64, "REAL": pl.Float64}
            schema = {column[1]: types.get(column[2], pl.String) for column in columns}
            frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
                pl.col("^(global.*|endGlobalTid|address)$").reinterpret(signed=False),
                pl.col("^(correlationId|deviceId|contextId|textId|eventType)$").cast(pl.UInt32),
            )
            if kind == "parquet":
                frame.write_parquet(folder / f"{name}.parquet")
            elif kind == "stream":
                frame.write_ipc_stream(folder / f"{name}.arrow")
            else:
                frame.write_ipc(folder / f"{name}.arrow")
    connection.close()
    return folder


@pytest.mark.parametrize(
    "odd",
    [
        pl.struct(name="shortName").alias("shortName"),
        pl.duration(seconds="shortName").alias("shortName"),
        pl.all().cast(pl.Decimal(38, 2)),
    ],
    ids=["structs", "durations", "decimals"],
)
def test_a_column_of_no_exporter_is_no_column(tmp_path: Path, odd: pl.Expr) -> None:
    export = write_export(tmp_path / "a.sqlite", _cuda_tables())
    folder = write_folder(export, tmp_path / "a_parquet", "parquet")
    file = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    pl.read_parquet(file).with_columns(odd).write_parquet(file)
    with pytest.warns(
        UserWarning,
        match="2 rows of `CUPTI_ACTIVITY_KIND_KERNEL` with no whole number in `(shortName|start)`",
    ):
        raw = read_report(folder)
    assert (len(raw["kernels"]), raw.tally.read["kernels"]) == (0, 2)


def test_a_folder_without_its_names_is_a_report(tmp_path: Path) -> None:
    folder = write_folder(RANK0.absolute(), tmp_path / "in" / "a_pqtdir", "parquet")
    (folder / "StringIds.parquet").unlink()
    assert "no table of names with text: NVTX events, CUDA" in succeed("summary", tmp_path / "in").stderr


@pytest.mark.parametrize("value", ["secret", b"secret", 59.5])
def test_values_of_other_types_are_no_values(tmp_path: Path, value: object) -> None:
    """And no error shows them: they may be secret."""
    export = write_export(tmp_path / "a.sqlite", _cuda_tables())
    folder = write_folder(export, tmp_path / "a_parquet", "parquet")
    for name, column, odd in (
        ("NVTX_EVENTS", "eventType", value),
        ("META_DATA_EXPORT", "value", True),
    ):
        file = folder / f"{name}.parquet"
        pl.read_parquet(file).with_columns(pl.lit(odd).alias(column)).write_parquet(file)
    with pytest.warns(UserWarning, match="2 rows of `NVTX_EVENTS` with no whole number in `eventType`"):
        raw = read_report(folder)
    assert raw["nvtx"].is_empty()


def test_a_folder_with_the_name_of_the_home_folder_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = write_export(tmp_path / "a.sqlite", _cuda_tables())
    for form in ("parquet", "stream"):
        write_folder(export, tmp_path / "~" / form, form)
    monkeypatch.chdir(tmp_path)
    for form in ("parquet", "stream"):
        assert len(read_report(Path("~", form))["kernels"]) == 2


def test_more_rows_than_bytes_are_no_table(tmp_path: Path) -> None:
    folder = write_folder(
        write_export(tmp_path / "a.sqlite", _cuda_tables()), tmp_path / "a_parquet", "parquet"
    )
    file = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    pl.concat([pl.read_parquet(file).head(1)] * 100_000).write_parquet(file)
    with pytest.raises(ReportError, match=r"KERNEL\.parquet` is no table of nsys: it has 100,000 rows"):
        read_report(folder)


def test_a_table_without_columns_has_no_rows(tmp_path: Path) -> None:
    folder = write_folder(write_export(tmp_path / "a.sqlite", _cuda_tables()), tmp_path / "a_arrow", "stream")
    pl.DataFrame().write_ipc_stream(folder / "CUPTI_ACTIVITY_KIND_RUNTIME.arrow")
    assert read_report(folder)["calls"].is_empty()


def _cuda_tables() -> dict[str, list[Row]]:
    high = PROCESS | (254 << 56) - (1 << 64)  # host 254: negative as SQLite has it
    return {
        "StringIds": strings("kernel", "kernel(int)", "cudaLaunchKernel_v7000"),
        "NVTX_EVENTS": [
            push_pop(0, 9, textId=0, uint64Value=-1),
            push_pop(2, None, text="x", uint64Value=None),
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(1, 2, 5, nameId=2), call(3, 4, 6, globalTid=high | 7)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(3, 5, 5), kernel(6, 8, 6, globalPid=high)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [op(3, 5, 5, bytes=4096, copyKind=1)],
        "CUPTI_ACTIVITY_KIND_MEMSET": [op(3, 5, 5, bytes=16, value=0)],
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [op(3, 5, 5, graphId=4, graphExecId=5)],
        "OSRT_API": [os_call(1, 2), os_call(1, 1, eventClass=31), os_call(3, 4, globalTid=high | 7)],
        "SCHED_EVENTS": [switch(1, 1), switch(5, 0)],
        "CUDA_GPU_MEMORY_USAGE_EVENTS": [memory(1, 0, -4096, 16), memory(2, 1, -4096, 16, memKind=7)],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.25.0"}],
    }


@pytest.mark.parametrize("kind", ["parquet", "stream", "file", "parquet in capitals"])
def test_cuda_tables_are_the_same_in_a_folder(tmp_path: Path, kind: str) -> None:
    export = write_export(tmp_path / "a.sqlite", _cuda_tables())
    folder = write_folder(export, tmp_path / "a_dir", kind.split()[0])
    for path in folder.glob("[!S]*") if kind.endswith("capitals") else ():  # as other tools may write names
        pl.read_parquet(path).rename(str.upper).write_parquet(folder / f"{path.stem.lower()}.parquet")
        path.unlink()
    raw = read_report(folder)
    _assert_same(read_report(export), raw)
    assert raw["calls"]["thread"].to_list()[0] == THREAD
    assert raw["calls"]["thread"].to_list()[1] < 0
    assert raw["cuda_memory"].select("address", "kind", "action").rows() == [
        *((-4096, "device", "allocation"), (-4096, None, "release"))
    ]
    assert [len(raw[name]) for name in ("os_calls", "thread_switches")] == [3, 2]


def test_texts_may_be_dictionaries(tmp_path: Path) -> None:
    """As other writers of Parquet have them; empty texts stay absent."""
    tables = _cuda_tables()
    tables["NVTX_EVENTS"].append(push_pop(3, 4, text=""))
    export = write_export(tmp_path / "a.sqlite", tables)
    folder = write_folder(export, tmp_path / "a_dir", "parquet")
    for path in folder.iterdir():
        pl.read_parquet(path).cast({pl.String: pl.Categorical}).write_parquet(path)
    assert pl.read_parquet_schema(folder / "NVTX_EVENTS.parquet")["text"] != pl.String
    raw = read_report(folder)
    assert raw["nvtx"]["text"].to_list()[-1] is None
    _assert_same(read_report(export), raw)


def test_real_reports_are_the_same_in_a_folder(tmp_path: Path, shared_report: Path) -> None:
    folder = write_folder(shared_report, tmp_path / "a_dir", "parquet")
    _assert_same(read_report(shared_report), read_report(folder))


@pytest.mark.parametrize("kind", ["parquet", "stream"])
def test_a_table_that_is_cut_off_is_named(tmp_path: Path, kind: str) -> None:
    folder = write_folder(write_export(tmp_path / "a.sqlite", _cuda_tables()), tmp_path / "a_dir", kind)
    (file,) = folder.glob("CUPTI_ACTIVITY_KIND_KERNEL.*")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(ReportError) as caught:
        read_report(folder)
    assert caught.value.message.startswith(f"`{file}` cannot be read")
