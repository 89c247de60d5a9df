"""nsys records tokens and passwords; nothing of the kind leaves a report, in any output of any command."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import polars as pl
import pytest

from fixtures.recording.export import Session, write_report
from fixtures.recording.rows import global_tid
from fixtures.recording.secrets import MARK, SESSION
from nsys_pp import cli
from tests.cli.calls import arguments_of, call
from tests.sql import add_rows, edit, select
from tests.unpacking import find_words, read_folder

SHOWN = "drawn-word"  # in names that events refer to: it must be found
ALLOWED = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "SLURM_PROCID": "3",
    "CUDA_VISIBLE_DEVICES": "0",
}
HIDDEN = (
    "HF_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "WANDB_API_KEY",
    "DB_URL",
)  # names of secrets are none of ours, too
PID = 1000
TELLING_NAME = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|PUBLIC_KEY|CREDENTIAL", re.IGNORECASE)

MERGES = {
    **{f"{detail}.pftrace": ["--detail", detail] for detail in ("jobs", "ranges", "kernels", "cpu")},
    "flows.pftrace": ["--flows"],
    "kernels.json": [],
    "cpu.json": ["--detail", "cpu", "--flows"],
    "kernels.json.gz": [],
    "cpu.json.gz": ["--detail", "cpu", "--flows"],
}
PROJECTS = {
    "table.parquet": [],
    "streams.parquet": ["--per-stream", "--ops", "all", "--scope", "process"],
    "table.csv": [],
    "table.json": [],
    "table.sqlite": [],
    "table.db": ["--scope", "thread"],
}
PRINTS = {
    "project": ["project"],
    "project, csv": ["project", "--format", "csv"],
    "project, json": ["project", "--format", "json"],
    "info": ["info"],
    "info, json": ["info", "--json"],
}

OTHERS = {  # command -> options, with `FOLDER` for the folder of outputs
    "extract": ["extract", "-o", "FOLDER/rank0.nspart", "--detail", "cpu"],
    "report": ["report", "-o", "FOLDER/page.html"],
    "chart": ["chart", "-o", "FOLDER/chart.html"],
    "chart, svg": ["chart", "-o", "FOLDER/chart.svg"],
    "pipeline": ["pipeline", "--json"],
    "jobs": ["pipeline", "--explain-jobs"],
    "align": ["align"],
    "logged": [
        "merge",
        "-o",
        "FOLDER/logged.pftrace",
        "--log-format",
        "json",
        "--result",
        "FOLDER/result.json",
    ],
    "parallel": ["merge", "-o", "FOLDER/parallel.pftrace", "--processes", "2", "--debug"],
    **{
        f"summary, {name}": ["summary", "-o", f"FOLDER/summary.{name}"] for name in ("csv", "json", "parquet")
    },
    "scrub": ["scrub", "-o", "FOLDER/clean.sqlite", "--hosts", "--users", "--paths"],
    "check": ["check"],
}


def write_everything(report: Path, folder: Path) -> dict[str, bytes]:
    """Run every command with every format on a report; all that came out, by what it was."""
    lines = {
        **{name: ["merge", "-o", str(folder / name), *options] for name, options in MERGES.items()},
        **{name: ["project", "-o", str(folder / name), *options] for name, options in PROJECTS.items()},
        **PRINTS,
    }
    said = {name: call(command, report, *options) for name, (command, *options) in lines.items()}
    printed = {
        f"{name}, {stream}": text.encode()
        for name, result in said.items()
        for stream, text in (("stdout", result.stdout), ("stderr", result.stderr))
    }
    return {**printed, **read_folder(folder)}


def provoke_errors(report: Path, folder: Path) -> dict[str, bytes]:
    """Break copies of a report in several ways, and give all that is said about them."""
    said = {}
    size = report.stat().st_size
    for name, first, last in (("cut", size // 2, size), ("start", 0, 64), ("middle", 2 * 4096, size - 4096)):
        data = bytearray(report.read_bytes())
        data[first:last] = b"\xa5" * (last - first) if name != "cut" else b""
        broken = folder / f"{name}.sqlite"
        broken.write_bytes(data)
        for command in ("merge", "project", "info"):
            refused = call(*arguments_of(command, broken, folder=folder))
            assert refused.code == 1
            said[f"{command}, {name}"] = (refused.stdout + refused.stderr).encode()
    text = Path(shutil.copy(report, folder / "text.sqlite"))
    edit(text, f"UPDATE NVTX_EVENTS SET start = '{MARK}-number' WHERE rowid = 1")
    told = call("project", text)
    assert "1 row of `NVTX_EVENTS` with no whole number in `start` left out" in told.stderr
    said["text for a number"] = (told.stdout + told.stderr).encode()
    return said


@pytest.fixture(autouse=True)
def _parquet_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Parquet files written uncompressed: their dictionaries may hold what no row refers to."""
    write = pl.DataFrame.write_parquet

    def write_plain(frame: pl.DataFrame, file: Any, **options: Any) -> None:
        write(frame, file, **{**options, "compression": "uncompressed"})

    monkeypatch.setattr(pl.DataFrame, "write_parquet", write_plain)


def plant(path: Path, schema: str) -> Path:
    """Write a report with the mark wherever nsys puts what is nobody's business."""
    environment = {
        **SESSION["environment"],
        "DB_URL": f"x;RANK={MARK};LOCAL_RANK=7{MARK};",  # looks like variables of the launcher
        **ALLOWED,
    }
    facts = {**SESSION, "environment": environment, "command": f"/home/{MARK}/python"}
    other, unused = global_tid(PID + 1), global_tid(PID, PID + 99)
    return write_report(
        path,
        schema=schema,
        session=Session(**facts, pid=PID),
        ranges=[
            {"start": 0, "end": 90, "name": f"step {SHOWN}", "domain": f"domain {SHOWN}", "category": SHOWN},
            {"start": 1, "end": 40, "name": f"{SHOWN} registered", "registered": True},
            {"start": 2, "end": 60, "name": SHOWN, "kind": "start_end", "jsonText": f'{{"a": "{SHOWN}"}}'},
        ],
        marks=[{"time": 3, "name": SHOWN}],
        api_calls=[{"start": 10, "end": 12, "correlation": 1}, {"start": 20, "end": 22, "correlation": 2}],
        kernels=[{"start": 30, "end": 60, "correlation": 1, "name": SHOWN, "full_name": f"{SHOWN}(int)"}],
        memcpys=[{"start": 70, "end": 75, "correlation": 2}],
        threads=[{"pid": PID, "name": SHOWN}],
        tables={
            "StringIds": [
                {"id": 900_001, "value": f"PATH=/bin\0TOKEN={MARK}\0RANK={MARK}\0"},
                {"id": 900_002, "value": f"{MARK}-unused"},
            ],
            "META_DATA_CAPTURE": [
                {"name": "PROCESS_0:WORKING_DIRECTORY", "value": f"/home/{MARK}"},
                {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'RANK2="{MARK}"'},
                {"name": "PROCESS_1:ENVIRONMENT_VARIABLE", "value": f'TOKEN="{MARK}"'},
                {"name": f"{MARK}", "value": "1"},
            ],
            "META_DATA_EXPORT": [{"name": "EXPORT_PARAM_OUTPUT_PATH", "value": f"/home/{MARK}/report"}],
            "TARGET_INFO_SYSTEM_ENV": [
                {"name": "UserName", "nameEnum": 9, "value": MARK, "devStateName": MARK, "globalVid": 1},
            ],
            "PROCESSES": [{"globalPid": other, "pid": PID + 1, "name": f"curl --header {MARK}"}],
            "ThreadNames": [{"nameId": 900_002, "priority": 0, "globalTid": unused}],
            "OSRT_API": [
                {
                    "start": 1,
                    "end": 2,
                    "globalTid": unused,
                    "nameId": 900_002,
                    "eventClass": 1,
                    "returnValue": 0,
                }
            ],
            "DIAGNOSTIC_EVENT": [{"timestamp": 1, "severity": 2, "text": f"cannot open {MARK}"}],
            "GENERIC_EVENTS": [
                {"rawTimestamp": 1, "timestamp": 1, "typeId": 1, "data": f'{{"x": "{MARK}"}}'}
            ],
            "NVTX_EVENTS": [
                {"start": 0, "eventType": 75, "domainId": 70, "text": f"{MARK}-domain", "globalTid": other},
                {
                    "start": 0,
                    "eventType": 33,
                    "domainId": 0,
                    "category": 70,
                    "text": MARK,
                    "globalTid": other,
                },
            ],
        },
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.few(1)
@pytest.mark.parametrize("schema", ["3.0.0", "3.7.2", "3.25.0"])
def test_no_output_holds_what_no_event_refers_to(tmp_path: Path, folder: Path, schema: str) -> None:
    report = plant(tmp_path / "report.sqlite", schema)
    assert find_words(report.read_bytes(), [MARK, SHOWN]) == {MARK, SHOWN}
    written = write_everything(report, folder)
    leaks = {name: found for name, data in written.items() if (found := find_words(data, [MARK, *HIDDEN]))}
    assert leaks == {}
    # the same search finds what is drawn, in every file and on the terminal
    silent = {f"{name}, stdout" for name in (*MERGES, *PROJECTS)}
    for name in written.keys() - silent:
        if not name.endswith("stderr"):
            assert find_words(written[name], [SHOWN]), name
    assert set(MERGES) | set(PROJECTS) <= set(written)


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keep the contents of all files that are deleted or renamed: temporary files of outputs, and of processes."""
    kept = tmp_path / "deleted"
    kept.mkdir()
    remove, remove_tree, replace = os.unlink, shutil.rmtree, os.replace

    def keep(path: Any) -> None:
        for file in (Path(path), *Path(path).rglob("*")):
            if file.is_file() and kept not in file.parents:
                shutil.copyfile(file, kept / str(len([*kept.iterdir()])))

    def watch(call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Any, *more: Any, **options: Any) -> Any:
            with suppress(OSError, TypeError):
                keep(path)
            return call(path, *more, **options)

        return watched

    monkeypatch.setattr(os, "unlink", watch(remove))
    monkeypatch.setattr(shutil, "rmtree", watch(remove_tree))
    monkeypatch.setattr(os, "replace", watch(replace))
    return kept


def test_no_other_command_or_scratch_file_holds_it(tmp_path: Path, folder: Path, deleted: Path) -> None:
    """Names of calls of the operating system are names that events refer to, so the report has no such event."""
    report = edit(plant(tmp_path / "report.sqlite", "3.7.2"), "DELETE FROM OSRT_API")
    said: dict[str, bytes] = {}
    for name, (command, *options) in OTHERS.items():
        if command not in cli.main.list_commands(click.Context(cli.main)):
            continue
        done = call(command, report, *[option.replace("FOLDER", str(folder)) for option in options])
        assert done.code in (0, 1, 2), done  # a pipeline needs jobs
        said[f"{name}, stdout"], said[f"{name}, stderr"] = done.stdout.encode(), done.stderr.encode()
    written = {
        **said,
        **read_folder(folder),
        **{f"deleted {name}": data for name, data in read_folder(deleted).items()},
    }
    assert {"rank0.nspart", "page.html", "clean.sqlite", "result.json", "deleted 0"} <= written.keys()
    assert {name for name, data in written.items() if find_words(data, [MARK, *HIDDEN])} == set()


def test_no_error_quotes_what_is_recorded(tmp_path: Path) -> None:
    said = provoke_errors(plant(tmp_path / "report.sqlite", "3.7.2"), tmp_path)
    assert {name: text for name, text in said.items() if find_words(text, [MARK])} == {}


def test_only_variables_of_launchers_are_told(tmp_path: Path) -> None:
    report = plant(tmp_path / "report.sqlite", "3.7.2")
    [told] = json.loads(call("info", report, "--json").stdout)["reports"]
    assert told["launcher"] == ALLOWED
    assert (told["rank"], told["rank_source"]) == (3, "RANK")


_REAL = (
    *("Athrun", "GindaChen__mfu", "argonne-lcf__lineprofiling_seq_parallel_fp32-ranks8-nodes2-T1_0"),
    *("MohanadOdema", "quasiben__cudf", "zx3xyy__result_2_7B_nvtx"),
)


def plant_into(report: Path) -> None:
    """Add rows with the mark to tables of a real report, in the shape of rows that it has."""
    present = {name for (name,) in select(report, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    [(last,)] = select(report, "SELECT max(id) FROM StringIds")
    texts = [(last + 1, f"{MARK}-unused"), (last + 2, f"PATH=/bin\0TOKEN={MARK}\0")]
    add_rows(report, "StringIds (id, value)", texts)
    planted = [("DeviceEnvironment", f"A={MARK};HF_TOKEN={MARK}"), ("PROCESS_0:ARGUMENT_1", MARK)]
    planted += [("PROCESS_0:ENVIRONMENT_VARIABLE", f'HF_TOKEN="{MARK}"'), (MARK, MARK)]
    for table in present & {"TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "META_DATA_EXPORT"}:
        columns = [name for (name,) in select(report, f"SELECT name FROM pragma_table_info('{table}')")]
        row = dict(zip(columns, select(report, f"SELECT * FROM {table} LIMIT 1")[0], strict=True))
        add_rows(report, table, ([*(row | {"name": one, "value": text}).values()] for one, text in planted))
    edit(
        report,
        "CREATE TABLE IF NOT EXISTS ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER)",
        f"INSERT INTO ProcessStreams VALUES (1, {last + 1}, {last + 2})",
        "CREATE TABLE gone AS SELECT :text AS text",
        text=MARK * 500,
    )
    edit(report, "PRAGMA secure_delete = OFF", "DROP TABLE gone")  # a page that is free again


def _real_secrets(report: Path) -> dict[str, str]:
    """Values of variables that are secret by their names, as the report has them."""
    found = {}
    for table in ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE"):
        with suppress(sqlite3.OperationalError):
            rows = select(report, f"SELECT value FROM {table} WHERE upper(name) LIKE '%ENVIRONMENT%'")
            for variable in (part for (value,) in rows for part in value.split(";")):
                name, _, value = variable.partition("=")
                if TELLING_NAME.search(name) and len(value.strip('"')) >= 8:
                    found[name] = value.strip('"')
    return found


@pytest.mark.slow
@pytest.mark.parametrize("prefix", _REAL)
def test_no_output_of_a_real_report_holds_its_secrets(
    shared_reports: list[Path], tmp_path: Path, folder: Path, prefix: str
) -> None:
    original = next((path for path in shared_reports if path.name.startswith(prefix)), None)
    if original is None:
        pytest.skip(f"no report {prefix}*")
    report = tmp_path / "report.sqlite"
    report.write_bytes(original.read_bytes())
    plant_into(report)
    secrets = _real_secrets(report)
    assert find_words(report.read_bytes(), [MARK]) == {MARK}
    leaks = []
    for name, data in write_everything(report, folder).items():
        leaked = find_words(data, [MARK, *secrets.values()])
        # a failing test must not say them either
        leaks += [
            (name, variable) for variable, value in {"MARK": MARK, **secrets}.items() if value in leaked
        ]
    assert leaks == []


_PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda mark: b"junk" + mark + b"junk",
    "gzip": gzip.compress,
    "gzip after junk": lambda mark: b"\x0a\x99" * 99 + gzip.compress(mark) + b"junk",
    "zlib after junk": lambda mark: b"\x78\x9c\x78\x01" * 9 + zlib.compress(mark) + b"junk",
    "zlib in gzip": lambda mark: gzip.compress(b"junk" + zlib.compress(mark)),
    "cut off": lambda mark: zlib.compress(mark + bytes(100_000), 0)[:50_000],
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("how", _PACKED)
def test_the_search_finds_a_mark(how: str, encoding: str) -> None:
    assert find_words(_PACKED[how](f"x {MARK.upper()} y".encode(encoding)), [MARK, SHOWN]) == {MARK}
    assert find_words(_PACKED[how](b"nothing"), [MARK]) == set()


def test_the_search_finds_a_mark_in_tables(tmp_path: Path) -> None:
    frame = pl.DataFrame({"text": [f"x{MARK}"] * 1000, "other": ["long" * 2000 + MARK] * 1000})
    pl.DataFrame.write_parquet(frame, tmp_path / "a.parquet")
    deleted = ("PRAGMA secure_delete = OFF", f"CREATE TABLE t AS SELECT '{MARK}' AS text", "DROP TABLE t")
    edit(tmp_path / "a.sqlite", *deleted)
    edit(tmp_path / "b.sqlite", "PRAGMA encoding = 'UTF-16le'", f"CREATE TABLE t AS SELECT '{MARK}' AS text")
    found = {name: find_words(data, [MARK, SHOWN]) for name, data in read_folder(tmp_path).items()}
    assert found == {"a.parquet": {MARK}, "a.sqlite": {MARK}, "b.sqlite": {MARK}}
