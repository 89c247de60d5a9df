"""`nsys-pp summary`: what it prints, in every form, what it writes, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import nsys_pp
from tests.cli.calls import assert_refused, call

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
REPORT = PIPELINE / "node2" / "rank0.sqlite"
USAGE = 2
SHOWN = (
    *("overview", "device", "model", "distribution", "operators", "families", "kernels"),
    *("copies", "communication", "idle", "launches", "memory"),
)

pytestmark = pytest.mark.usefixtures("reports_read_once")


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
    done = call("summary", reports, "--format", "json", *arguments)
    assert done.code == 0, done
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


def lines_of(reports: Path, *arguments: str | Path) -> list[str]:
    done = call("summary", reports, *arguments)
    assert done.code == 0, done
    return done.stdout.splitlines()


def test_by_default_a_terminal_shows_what_fits_it_each_with_how_it_was_made(one: Path) -> None:
    done = call("summary", one)
    assert done.code == 0, done
    assert done.stderr == ""
    blocks = [block.splitlines() for block in done.stdout.split("\n\n")]
    assert blocks.pop(0)[0] == nsys_pp.PIPELINE_TABLES["verdict"].title
    assert [lines[0] for lines in blocks] == [nsys_pp.SUMMARY_TABLES[name].title for name in SHOWN]
    for name, lines in zip(SHOWN, blocks, strict=True):
        assert " ".join(lines).endswith(nsys_pp.SUMMARY_TABLES[name].caption) or len(lines) == 2
    assert blocks[-1][1] == "not recorded: profile with `--cuda-memory-usage=true`"
    rows = [line for line in blocks[SHOWN.index("kernels")][2:] if re.match(r" *[\d,]+  ", line)]
    assert len(rows) == 15 + 2


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


def test_totals_are_of_all_rows_and_the_rest_is_counted(one: Path) -> None:
    rows = as_json(one, "--table", "kernels")["kernels"]
    lines = lines_of(one, "--table", "kernels", "--limit", "3")
    left = rows[3:]
    (rest,) = (number for number, line in enumerate(lines) if line.endswith(f"… {len(left)} more rows"))
    assert lines[rest].split()[0] == f"{sum(row['count'] for row in left):,}"
    assert lines[rest + 1].split()[0] == f"{sum(row['count'] for row in rows):,}"


def test_phases_and_parts_are_never_left_out(one: Path) -> None:
    tables = as_json(one, "--table", "model,distribution")
    lines = lines_of(one, "--table", "model,distribution", "--limit", "1")
    for name, column in (("model", "phase"), ("distribution", "part")):
        for row in tables[name]:
            assert any(line.endswith(f"  {row[column]}") for line in lines)


def test_rows_are_sorted_by_what_is_asked_for(one: Path) -> None:
    def kernels(*options: str) -> list[dict[str, Any]]:
        return as_json(one, "--table", "kernels", *options)["kernels"]

    most = [row["max_ns"] for row in kernels("--sort", "max")]
    assert most == sorted(most, reverse=True)
    least = [row["min_ns"] for row in kernels("--sort", "GPUMin")]
    assert least == sorted(least)
    names = [row["name"] for row in kernels("--sort", "name", "--limit", "5")]
    assert names == sorted(row["name"] for row in kernels())[:5]


def test_phases_stay_below_their_step_however_they_are_sorted(one: Path) -> None:
    default = [row["phase"] for row in as_json(one, "--table", "model")["model"]]
    rows = as_json(one, "--table", "model", "--sort", "CPUTotal")["model"]
    assert rows[0]["phase"] == default[0] == "step"
    assert {row["phase"] for row in rows} == {*default}
    times = [row["host_total_ns"] for row in rows[1:]]
    assert times == sorted(times, reverse=True)


def test_a_table_that_lacks_the_column_keeps_its_order(one: Path) -> None:
    tables = as_json(one, "--table", "kernels,distribution", "--sort", "median")
    assert tables["distribution"] == as_json(one, "--table", "distribution")["distribution"]


@pytest.mark.parametrize(
    ("by", "columns"),
    [
        ("rank", ["rank"]),
        ("machine", ["machine"]),
        ("stage", ["stage"]),
        ("step", ["step"]),
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


def test_communication_counts_as_paddle_has_it_where_that_is_asked_for(one: Path) -> None:
    parts = [
        row["part"] for row in as_json(one, "--table", "distribution", "--paddle-compat")["distribution"]
    ]
    assert parts[0] == "ProfileStep"


def test_data_are_in_nanoseconds_or_in_the_unit_that_is_asked_for(one: Path) -> None:
    raw = as_json(one, "--table", "kernels")["kernels"][0]
    in_ms = as_json(one, "--table", "kernels", "--unit", "ms")["kernels"][0]
    assert isinstance(raw["total_ns"], int)
    assert in_ms["total_ms"] == raw["total_ns"] / 1e6
    assert "total_ns" not in in_ms
    assert in_ms["count"] == raw["count"]


def test_data_that_were_not_recorded_are_noted_and_left_out(one: Path) -> None:
    done = call("summary", one, "--table", "kernels,memory", "--format", "json")
    assert list(json.loads(done.stdout)) == ["kernels"]
    assert done.stderr == "note: no table memory: not recorded: profile with `--cuda-memory-usage=true`\n"
    assert_refused(call("summary", one, "--table", "memory", "--format", "csv"), "memory: not recorded")


def test_markdown_is_what_a_terminal_shows(tmp_path: Path, one: Path) -> None:
    done = call("summary", one, "--table", "kernels,memory", "--format", "markdown")
    title = nsys_pp.SUMMARY_TABLES["kernels"].title
    assert done.stdout.startswith(f"## {title}\n\n| Count | Total (ms) | Share (%) |")
    assert "**total**" in done.stdout
    assert "not recorded: profile with" in done.stdout
    call("summary", one, "--table", "kernels,memory", "-o", tmp_path / "tables.md")
    assert (tmp_path / "tables.md").read_text() == done.stdout
    call("summary", one, "--table", "kernels,memory", "-o", tmp_path / "tables", "--format", "markdown")
    texts = [(tmp_path / "tables" / f"{name}.md").read_text() for name in ("kernels", "memory")]
    assert "\n".join(texts) == done.stdout


@pytest.mark.parametrize("format", ["csv", "parquet", "json"])
def test_a_folder_has_a_file_for_each_table_that_is_there(tmp_path: Path, format: str, one: Path) -> None:
    done = call("summary", one, "-o", tmp_path / "out", "--format", format)
    assert done.code == 0, done
    missing = {"memory"} | {name for name in ("os",) if f"no table {name}" in done.stderr}
    names = {"verdict", *nsys_pp.SUMMARY_TABLES} - missing
    assert {path.stem for path in (tmp_path / "out").iterdir()} == names
    assert done.stderr.count("Wrote ") == len(names)
    assert_refused(call("summary", one, "-o", tmp_path / "out", "--format", format), "exists")
    assert call("summary", one, "-o", tmp_path / "out", "--format", format, "--force").code == 0


def test_nothing_at_all_is_not_written(tmp_path: Path, one: Path) -> None:
    done = call("summary", one, "--table", "memory", "-o", tmp_path / "x.json")
    assert_refused(done, "no table memory: not recorded")
    assert list(tmp_path.iterdir()) == []
