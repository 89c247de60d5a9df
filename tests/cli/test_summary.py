"""`nsys-pp summary`: what it prints, in every form, what it writes, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import nsys_pp
from tests.cli.calls import PIPELINE, RANK0, assert_refused, call, succeed

SHOWN = ("overview", "distribution", "kernels", "idle")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts of all reports: cheaper to read again and again."""
    folder = tmp_path_factory.mktemp("parts")
    assert call("extract", PIPELINE, "-o", folder).code == 0
    return folder


@pytest.fixture(scope="module")
def one(parts: Path) -> Path:
    return parts / "rank0.nspart"


def as_json(reports: Path, *arguments: str | Path) -> dict[str, list[dict[str, Any]]]:
    done = succeed("summary", reports, "--format", "json", *arguments)
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)["tables"]
    return found


def lines_of(reports: Path, *arguments: str | Path) -> list[str]:
    return succeed("summary", reports, *arguments).stdout.splitlines()


def test_by_default_a_terminal_shows_what_fits_it_each_with_how_it_was_made(one: Path) -> None:
    done = succeed("summary", one)
    assert done.stderr == ""
    blocks = [block.splitlines() for block in done.stdout.split("\n\n")]
    assert blocks.pop(0) == blocks.pop()
    assert blocks.pop()[0].startswith("`--table` also shows: device, ")
    assert [lines[0] for lines in blocks] == [nsys_pp.SUMMARY_TABLES[name].title for name in SHOWN]
    for name, lines in zip(SHOWN, blocks, strict=True):
        assert " ".join(lines).endswith(nsys_pp.SUMMARY_TABLES[name].caption)
    rows = [line for line in blocks[SHOWN.index("kernels")][2:] if re.match(r" *[\d,]+  ", line)]
    assert len(rows) == 10 + 2
    both = succeed("summary", one, "--table", "memory,copies").stdout
    title = nsys_pp.SUMMARY_TABLES["memory"].title
    assert f"\n{title}: not recorded: profile with `--cuda-memory-usage=true`\n" in both


def test_what_is_printed_is_what_the_table_holds(one: Path) -> None:
    rows = as_json(one, "--table", "kernels")["kernels"]
    arguments = ("--table", "kernels", "--unit", "us", "--limit", "0")
    lines = lines_of(one, *arguments, "--format", "markdown")[2:]
    assert lines[0].startswith("| Count | Total (us) | Share (%) |")
    shown = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[2 : 2 + len(rows)]]
    assert [cells[-1].replace("\\", "") for cells in shown] == [row["name"] for row in rows]
    for cells, row in zip(shown, rows, strict=True):
        assert int(cells[0].replace(",", "")) == row["count"]
        assert float(cells[1].replace(",", "")) == pytest.approx(row["total_ns"] / 1e3, abs=0.06)
    printed = "\n".join(lines_of(one, *arguments))
    assert all(f" {cells[1]} " in printed for cells in shown)
    total = printed.splitlines()[-2].split()
    assert int(total[0].replace(",", "")) == sum(row["count"] for row in rows)
    assert total[2:] == ["100.00", "total"]


def test_rows_are_sorted_by_what_is_asked_for(one: Path) -> None:
    def kernels(*options: str) -> list[dict[str, Any]]:
        return as_json(one, "--table", "kernels", *options)["kernels"]

    most = [row["max_ns"] for row in kernels("--sort", "max")]
    assert most == sorted(most, reverse=True)
    least = [row["min_ns"] for row in kernels("--sort", "GPUMin")]
    assert least == sorted(least)
    names = [row["name"] for row in kernels("--sort", "name", "--limit", "5")]
    assert names == sorted(row["name"] for row in kernels())[:5]


@pytest.mark.parametrize(
    ("by", "columns"),
    [
        ("stage", ["stage"]),
        ("device", ["machine", "gpu"]),
    ],
)
def test_tables_are_split(by: str, columns: list[str], parts: Path) -> None:
    whole = as_json(parts, "--table", "kernels")["kernels"]
    rows = as_json(parts, "--table", "kernels", "--by", by)["kernels"]
    assert list(rows[0])[: len(columns)] == columns
    groups = list(dict.fromkeys(tuple(row[column] for column in columns) for row in rows))
    assert len(groups) > 1
    assert sum(row["total_ns"] for row in rows) == sum(row["total_ns"] for row in whole)
    lines = lines_of(parts, "--table", "kernels", "--by", by, "--limit", "2")
    assert sum(line.endswith("  total") for line in lines) == len(groups)
    assert sum(not line.strip("─ ") for line in lines) == len(groups) - 1


def test_data_that_were_not_recorded_are_noted_and_left_out(one: Path, tmp_path: Path) -> None:
    done = call("summary", one, "--table", "kernels,memory", "--format", "json")
    found = json.loads(done.stdout)
    assert list(found["tables"]) == ["kernels"]
    entry = {"table": "memory", "why": "not recorded", "record_with": ["--cuda-memory-usage=true"]}
    assert found["missing"] == [entry]
    assert_refused(call("summary", one, "--table", "memory", "--format", "csv"), "memory: not recorded")
    done = call("summary", one, "--table", "memory", "-o", tmp_path / "x.csv")
    assert_refused(done, "no table memory: not recorded: profile with `--cuda-memory-usage=true`")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_a_file_for_each_table_that_is_there(tmp_path: Path, one: Path) -> None:
    done = succeed("summary", one, "-o", tmp_path / "out", "--format", "csv")
    missing = {"memory"} | {name for name in ("os",) if f"no table {name}" in done.stderr}
    names = {"verdict", *nsys_pp.SUMMARY_TABLES} - missing
    assert {path.stem for path in (tmp_path / "out").iterdir()} == names
    assert done.stderr.count("Wrote ") == len(names)
    assert_refused(call("summary", one, "-o", tmp_path / "out", "--format", "csv"), "exists")
    again = ("--table", "kernels", "-o", tmp_path / "out", "--format", "csv", "--limit", "2")
    said = succeed("summary", one, *again, "--force").stderr
    assert f"Wrote {tmp_path / 'out' / 'kernels.csv'}: 2 of " in said
    assert f"note: not written by this run: `{tmp_path / 'out'}/" in said


def test_causes_are_unknown_where_the_clock_of_a_gpu_is_off(tmp_path: Path) -> None:
    """All launches would come after the gaps that they end, if both clocks were one."""
    report = Path(shutil.copy(RANK0, tmp_path))
    with closing(sqlite3.connect(report)) as connection:
        for kind in ("KERNEL", "MEMCPY", "MEMSET"):
            connection.execute(
                f"UPDATE CUPTI_ACTIVITY_KIND_{kind} SET start = start - 100000000, end = end - 100000000"
            )
        connection.commit()
    causes = {row["cause"] for row in as_json(report, "--table", "idle")["idle"]}
    assert causes - {"nothing before, or nothing after"} == {"unknown launch, or the clock of the GPU is off"}
