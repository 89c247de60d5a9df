"""`nsys-pp pipeline`: what it prints, in every form, what it writes, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import nsys_pp
from tests.cli.calls import PIPELINE, RANK0, assert_refused, call, succeed
from tests.output.report_pages import read_heat_map
from tests.sql import select


def as_json(*arguments: str | Path, of: Path = PIPELINE) -> dict[str, list[dict[str, Any]]]:
    done = succeed("pipeline", of, "--format", "json", *arguments)
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)["tables"]
    return found


def test_a_terminal_shows_tables_with_how_they_were_made() -> None:
    done = succeed("pipeline", PIPELINE)
    blocks = [block.splitlines() for block in done.stdout.split("\n\n")]
    shown = ["verdict", "steps", "stages", "kinds", "stragglers"]
    *blocks, (more, *_) = blocks
    assert [lines[0] for lines in blocks] == [nsys_pp.PIPELINE_TABLES[name].title for name in shown]
    for name, lines in zip(shown, blocks, strict=True):
        assert nsys_pp.PIPELINE_TABLES[name].caption in " ".join(lines)
    assert more.startswith("`--table` also shows: coverage, lanes, families")
    assert all(line == line.rstrip() and len(line) <= 160 for line in done.stdout.splitlines())
    steps = dict(zip(shown, blocks, strict=True))["steps"]
    assert [line.split()[0] for line in steps[1:-1]] == ["Step", "10", "11", "12"]


def test_a_gap_names_the_range_and_calls_of_most_of_it() -> None:
    gaps = as_json("--table", "gaps")["gaps"]
    for kind in ("range", "call", "os_call"):
        shares = [gap[f"{kind}_fraction"] for gap in gaps]
        assert [gap[kind] is None for gap in gaps] == [share is None for share in shares]
        assert all(share is None or 0.5 <= share <= 1 for share in shares)
    assert any(gap["call"] for gap in gaps)


def test_what_is_said_below_a_table_is_about_columns_that_it_has() -> None:
    whole = call("pipeline", PIPELINE, "--table", "schedule,stages").stdout
    assert "Formula (%)" in whole
    assert "; formula: " in whole
    assert "; gain: " in whole
    less = succeed("pipeline", PIPELINE, "--table", "schedule,stages", "--job-pattern", r"other=forward_\d+")
    assert "unknown: there are no forwards within steps" in less.stdout.splitlines()
    assert "unknown: " not in whole
    for word in ("ideal", "formula", "gain"):
        assert word not in less.stdout.lower()


def test_findings_are_in_the_result_and_in_json(tmp_path: Path) -> None:
    done = call("pipeline", PIPELINE, "--format", "json", "--result", tmp_path / "result.json")
    rows = json.loads(done.stdout)["tables"]["verdict"]
    assert [row["kind"] for row in rows] == ["none", "bubble", "clocks"]
    recorded = json.loads((tmp_path / "result.json").read_text())["verdict"]
    assert [finding["line"] for finding in recorded] == [row["line"] for row in rows]
    assert recorded[1]["value_ns"] == rows[1]["value_ns"] > 0
    assert nsys_pp.summary(PIPELINE, tables=["device"]).verdict.lines == [row["line"] for row in rows]


def test_csv_is_one_table() -> None:
    done = call("pipeline", PIPELINE, "--format", "csv", "--table", "steps")
    header, *rows = done.stdout.splitlines()
    assert header.startswith("step,start_ns,span_ns,")
    assert len(rows) == 3


def test_steps_can_be_chosen() -> None:
    assert [row["step"] for row in as_json("--steps", "11:12", of=RANK0)["steps"]] == [11]
    assert [row["step"] for row in as_json("--steps", "11:", of=RANK0)["steps"]] == [11, 12]
    assert_refused(call("pipeline", RANK0, "--steps", "99:"), "no step is in `99:`")


def test_copies_get_a_table_of_steps(tmp_path: Path) -> None:
    done = succeed("pipeline", PIPELINE, "--steptask", tmp_path / "out")
    copies = sorted((tmp_path / "out").glob("*.db"))
    assert [path.name for path in copies] == [f"rank{rank}.steptask.db" for rank in range(4)]
    assert "Wrote 4 databases with the StepTaskInfo of a rank: " in done.stderr
    for rank, path in enumerate(copies):
        rows = select(path, "SELECT name, type, rank, step FROM StepTaskInfo")
        assert {row[2] for row in rows} == {rank}
        assert {row[3] for row in rows if row[0] in ("FP", "BP")} == {10, 11, 12}
        assert sum(row[:2] == ("FP", 0) for row in rows) == sum(row[:2] == ("BP", 1) for row in rows) == 24
        assert f"to {path}, a copy of " in done.stderr


def test_reports_are_written_only_where_that_is_asked_for(tmp_path: Path) -> None:
    shutil.copytree(PIPELINE / "node2", tmp_path / "run")
    succeed("pipeline", tmp_path / "run", "--in-place")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["rank0.sqlite", "rank1.sqlite"]
    assert call("pipeline", tmp_path / "run", "--in-place").code == 0
    assert call("info", tmp_path / "run").code == 0


def test_the_files_of_paddle(tmp_path: Path) -> None:
    done = succeed("pipeline", PIPELINE, "--format", "paddle", "-o", tmp_path / "out", "--device", "1")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "pipeline_profile.json",
        "pipeline_profile_perfetto.json",
    ]
    events = json.loads((tmp_path / "out" / "pipeline_profile.json").read_text())["traceEvents"]
    assert {event["tid"] for event in events} == {"Step", "GPU1(machine:0)", "GPU1(machine:1)"}
    assert "ui.perfetto.dev" in done.stderr


STARTS = {"html": b"<!doctype html>", "svg": b"<", "png": b"\x89PNG"}


@pytest.mark.few(1)
@pytest.mark.parametrize("format", [*STARTS])
def test_the_ending_says_what_is_drawn(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"x.{format}"
    done = succeed("chart", PIPELINE, "-o", path, "--title", "Run <7>")
    assert path.read_bytes()[:15].lower().startswith(STARTS[format].lower())
    assert done.stdout == ""
    assert f"Wrote {path}" in done.stderr
    assert f"on 4 lanes in {'3 steps' if format == 'html' else '1 step'}." in done.stderr
    assert_refused(call("chart", PIPELINE, "-o", path), "exists")


def test_it_says_what_it_wrote_and_found(tmp_path: Path) -> None:
    path, result = tmp_path / "x.html", tmp_path / "result.json"
    done = succeed(
        "report", PIPELINE, "-o", path, "--title", "Run <7>", "--steps", "11:12", "--result", result
    )
    assert done.stdout == ""
    assert f"Wrote {path}" in done.stderr
    assert "1 step of 4 ranks." in done.stderr
    assert "Clocks agree" in done.stderr
    page = path.read_text()
    assert "<h1>Run &lt;7&gt;</h1>" in page
    assert [first for first, _ in read_heat_map(page)["steps"]] == [11]
    record = json.loads(result.read_text())
    assert record["outputs"][0]["path"] == str(path)
    assert record["verdict"]
    assert_refused(call("report", PIPELINE, "-o", path), "exists")
    assert "unknown extension" in call("report", PIPELINE, "-o", path.with_suffix(".pdf")).stderr
    assert path.read_text() == page


def test_a_trace_that_is_not_there_is_noted(tmp_path: Path) -> None:
    trace = tmp_path / "run of 7.pftrace"
    done = call("report", RANK0, "-o", tmp_path / "x.html", "--trace", trace)
    assert f"no such file: `{trace}`" in done.stderr
    assert f"nsys-pp open &#x27;{trace}&#x27; --zoom " in (tmp_path / "x.html").read_text()
    trace.touch()
    done = call("report", RANK0, "-o", tmp_path / "x.html", "--trace", trace, "--force")
    assert "no such file" not in done.stderr


def test_refusals(tmp_path: Path) -> None:
    assert_refused(call("report", PIPELINE, "-o", tmp_path / "no" / "x.html"), "folder does not exist")
    assert_refused(call("report", PIPELINE, "-o", tmp_path / "x.html", "--steps", "90:91"), "no step is in")
    assert not [*tmp_path.iterdir()]
