"""Batch processing: processes, waiting, logs, results."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import nsys_pp
from fixtures.recording.bulk import write_bulk_report
from nsys_pp.cli.command import build_bar
from nsys_pp.errors import describe_path
from tests.cli.calls import (
    PATIENCE_S,
    PIPELINE,
    RANK0,
    Result,
    assert_refused,
    call,
    command_line,
    environment,
    run,
    succeed,
    wait_until,
)
from tests.sql import select


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def objects(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stderr.splitlines()]


@pytest.mark.slow
def test_processes_make_the_same_outputs(tmp_path: Path) -> None:
    outputs: list[dict[str, bytes]] = []
    for jobs in ((), ("--processes", "2")):
        folder = tmp_path / str(len(jobs))
        folder.mkdir()
        assert call("merge", PIPELINE, "-o", folder / "run.pftrace", *jobs).code == 0
        window = ("--start", "1ms", "--end", "500ms", "-o", folder / "part.json")
        assert call("merge", RANK0.parent, *window, *jobs).code == 0  # drawn when clocks are known
        assert call("pipeline", RANK0.parent, "-o", folder / "tables.json", *jobs).code == 0
        outputs.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert (len(outputs[0]), outputs[0]) == (3, outputs[1])


def test_too_little_memory_is_noted_and_then_refused(tmp_path: Path) -> None:
    done = call("merge", PIPELINE, "-o", tmp_path / "run.pftrace", "--memory", "100MB")
    assert "may need 0.3 GB of memory, which is more than `--memory`" in done.stderr
    assert "needs more memory than `--memory` allows" in done.stderr
    assert (done.code, list(tmp_path.iterdir())) == (1, [])


def test_merge_waits_for_parts_that_come(tmp_path: Path) -> None:
    call("extract", RANK0.parent, "-o", tmp_path / "made")
    (tmp_path / "there").mkdir()
    parts = sorted((tmp_path / "made").iterdir())

    def bring() -> None:
        for part in parts:
            time.sleep(0.2)
            target = tmp_path / "there" / part.name
            whole = part.read_bytes()
            target.write_bytes(whole[:5000])
            time.sleep(0.2)
            target.write_bytes(whole)

    thread = threading.Thread(target=bring)
    thread.start()
    output = tmp_path / "run.pftrace"
    done = call("merge", tmp_path / "there", "-o", output, "--wait-for", "2", "--wait-timeout", "10m")
    thread.join()
    assert done.code == 0, done.stderr
    expected = tmp_path / "expected" / "run.pftrace"
    expected.parent.mkdir()
    call("merge", *parts, "-o", expected)
    assert output.read_bytes() == expected.read_bytes()


def test_after_the_time_limit_complete_inputs_are_processed(tmp_path: Path) -> None:
    for path in RANK0.parent.iterdir():
        shutil.copy(path, tmp_path)
    cut = tmp_path / "rank3.sqlite"
    cut.write_bytes(RANK0.read_bytes()[:50_000])
    line = ("merge", tmp_path, "-o", tmp_path / "run.pftrace", "--wait-for", "4", "--wait-timeout", "0.2s")
    assert_refused(call(*line), "after 0.2s, 2 of 4 reports are there and whole", f"`{cut}` is truncated")
    result = tmp_path / "result.json"
    done = call(*line, "--keep-going", "--result", result)
    assert done.code == 3, done.stderr
    assert f"\nskipped {cut}: " in done.stderr
    skipped = {entry["path"]: entry for entry in read(result)["skipped"]}
    assert skipped.keys() == {str(cut), str(tmp_path)}
    assert "is truncated" in skipped[str(cut)]["reason"]
    assert "2 of 4 reports are there and whole" in skipped[str(tmp_path)]["reason"]
    assert all(entry["hint"] for entry in skipped.values())


def test_inputs_that_match_no_file_are_skipped_and_named(tmp_path: Path) -> None:
    absent, pattern = tmp_path / "rank9.sqlite", tmp_path / "none*"
    links = (tmp_path / "link.sqlite", tmp_path / "another.sqlite")
    for link in links:
        link.symlink_to("nowhere")
    output, result = tmp_path / "run.pftrace", tmp_path / "result.json"
    line = ("merge", RANK0, absent, *links, "", pattern, "-o", output)
    assert_refused(call(*line), f"`{absent}` does not exist")
    assert not output.exists()
    done = call(*line, "--keep-going", "--result", result)
    assert done.code == 3, done
    reasons = {entry["path"]: entry["reason"] for entry in read(result)["skipped"]}
    assert reasons == {
        str(absent): f"`{absent}` does not exist",
        str(pattern): f"`{pattern}` matches no report",
        **{str(link): f"`{link}` is a link to no file" for link in links},
        ".": "the name of an input is empty",
    }
    assert all(f"skipped {path}: " in done.stderr for path in (absent, *links, pattern))
    assert_refused(
        call("merge", absent, pattern, "-o", tmp_path / "none.pftrace", "--keep-going"), "does not exist"
    )


def test_a_result_tells_what_was_done(tmp_path: Path) -> None:
    result, output = tmp_path / "result.json", tmp_path / "run.pftrace"
    succeed("merge", PIPELINE, "-o", output, "--processes", "2", "--result", result)
    found = read(result)
    assert (found["command"], found["exit_status"], found["error"]) == ("merge", 0, None)
    assert found["outputs"] == [{"path": str(output), "bytes": output.stat().st_size}]
    assert found["inputs"] == [
        str(PIPELINE / place) for place in ("node2/rank0.sqlite", "node2/rank1.sqlite")
    ] + [str(PIPELINE / place) for place in ("node10/rank2.sqlite", "node10/rank3.sqlite")]
    assert (found["skipped"], found["named"]) == ([], [str(PIPELINE)])
    phases = {one["phase"]: one["wall_s"] for one in found["timings"]["phases"]}
    assert list(phases) == ["reading", "drawing", "aligning", "finding", "writing"]
    assert 0 < sum(phases.values()) <= found["timings"]["wall_s"] + 0.01
    assert found["peak_memory_bytes"]["largest_worker"] > 10_000_000


def test_a_result_replaces_no_other_file(tmp_path: Path) -> None:
    report = Path(shutil.copy(RANK0, tmp_path))
    link = tmp_path / "run.json"
    link.symlink_to(report)
    assert "invalid `--result" in call("info", report, "--result", link).stderr
    assert report.read_bytes() == RANK0.read_bytes()
    for _ in range(2):
        succeed("info", report, "--result", tmp_path / "own.json")
    line = ("merge", report, "-o", tmp_path / "x.pftrace", "--manifest", "--result")
    assert "invalid `--result" in call(*line, tmp_path / "x.manifest.json").stderr
    assert not (tmp_path / "x.pftrace").exists()
    kernels = tmp_path / "kernels.json"
    tables = ("summary", report, "--table", "kernels,copies", "--format", "json", "-o", tmp_path)
    refused = call(*tables, "--result", kernels)
    assert f"Error: `{kernels}` is an output of this run" in refused.stderr
    assert b"kernels" in kernels.read_bytes()


def test_a_result_is_written_of_what_fails(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    broken = tmp_path / "x.sqlite"
    broken.write_bytes(RANK0.read_bytes()[:20_000])
    assert call("info", RANK0, "--result", result).code == 0
    done = call("merge", broken, "-o", tmp_path / "run.pftrace", "--result", result)
    assert_refused(done, "is truncated")
    found = read(result)
    assert (found["exit_status"], found["outputs"]) == (1, [])
    assert f"`{broken}` is truncated" in found["error"]["message"]
    assert found["error"]["hint"]
    assert call("chart", RANK0, "-o", "-", "--result", result).code == 2
    assert read(result)["exit_status"] == 2
    gone = tmp_path / "no" / "x.json"
    assert_refused(call("merge", RANK0, "-o", tmp_path / "run.pftrace", "--result", gone), "folder")
    assert not (tmp_path / "run.pftrace").exists()


def test_a_log_for_programs(tmp_path: Path) -> None:
    for path in PIPELINE.rglob("*.sqlite"):
        shutil.copy(path, tmp_path)
    cut = tmp_path / "rank1\udcff.sqlite"
    (tmp_path / "rank1.sqlite").rename(cut).write_bytes(RANK0.read_bytes()[:50_000])
    output = tmp_path / "run.pftrace"
    line = ("merge", tmp_path, "-o", output, "--log-format", "json")
    env: dict[str, str | None] = {"NSYS_PP_LOG_SECONDS": "0.1"}
    done = call(*line, "--keep-going", "--processes", "2", env=env)
    assert (done.code, done.stdout) == (3, "")
    lines = objects(done)
    assert all(one["time"].endswith("Z") and one["message"] for one in lines)
    events = {one["event"]: one for one in lines}
    assert {"progress", "done", "wrote", "skipped", "note"} <= events.keys()
    assert events["wrote"]["outputs"] == [{"path": str(output), "bytes": output.stat().st_size}]
    assert (events["skipped"]["path"], events["skipped"]["level"]) == (describe_path(cut), "warning")
    assert "\\ud" not in done.stderr
    assert any("rank 1 has no report" in one["message"] for one in lines if one["event"] == "note")
    drawing = [one for one in lines if one.get("doing") == "drawing"]
    assert {one["total"] for one in drawing} == {3}
    assert all(0 <= one["done"] <= 3 and one["rate_per_s"] >= 0 for one in drawing)
    refused = call(*line, "--force", env=env)
    assert refused.code == 1
    last = objects(refused)[-1]
    assert (last["event"], last["level"]) == ("error", "error")
    assert describe_path(cut) in last["message"]
    assert last["hint"]


def test_progress_in_a_log_has_counts_and_rate(tmp_path: Path) -> None:
    done = call("merge", PIPELINE, "-o", tmp_path / "run.pftrace", env={"NSYS_PP_LOG_SECONDS": "0.05"})
    lines = done.stderr.splitlines()
    assert any(" of 4 (" in line and "/s)" in line and "drawing rank" in line for line in lines)
    assert any(line.endswith(" s: done") for line in lines)
    after = lines[next(number for number, line in enumerate(lines) if line.startswith("Wrote ")) :]
    assert after[1:] == nsys_pp.pipeline(PIPELINE).verdict.lines


@pytest.mark.parametrize("seconds", ["0", "1e300"])
def test_progress_lines_can_be_switched_off(seconds: str, tmp_path: Path) -> None:
    done = call("merge", RANK0, "-o", tmp_path / "run.pftrace", env={"NSYS_PP_LOG_SECONDS": seconds})
    findings = nsys_pp.pipeline(RANK0).verdict.lines
    lines = [line for line in done.stderr.splitlines() if line not in findings]
    assert all(line.startswith(("Wrote ", "note: ")) for line in lines)


needs_children = pytest.mark.skipif(
    not [*Path("/proc/self/task").glob("*/children")], reason="needs /proc to see processes"
)


def children_of(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in listed.split()]


@pytest.fixture(scope="module")
def large_reports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("large")
    return [
        write_bulk_report(folder / f"{seed}.sqlite", kernels=60_000, ranges=60_000, seed=seed)
        for seed in (1, 2, 3)
    ]


@pytest.mark.slow
@pytest.mark.few(1)
@needs_children
@pytest.mark.parametrize("command", ["merge", "extract"])
def test_an_interrupt_ends_all_processes_and_leaves_nothing(
    command: str, large_reports: list[Path], tmp_path: Path
) -> None:
    output = tmp_path / ("run.pftrace" if command == "merge" else "")
    line = command_line(command, *large_reports, "-o", output, "--processes", "2", "--detail", "cpu")
    process = subprocess.Popen(
        line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    wait_until(
        lambda: any(path.stat().st_size for path in tmp_path.rglob(".*/**/*") if path.is_file()), process
    )
    children = children_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, stderr
    assert (stdout, stderr) == ("", "Interrupted\n")
    assert list(tmp_path.iterdir()) == []
    assert len(children) >= 2
    assert not any(Path(f"/proc/{child}/exe").exists() for child in children)


@pytest.mark.slow
@needs_children
def test_a_worker_that_the_system_kills_costs_nothing(large_reports: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "found" / "run.pftrace"
    output.parent.mkdir()
    line = command_line("merge", *large_reports, "-o", output, "--processes", "2")
    process = subprocess.Popen(line, env=environment(), stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(output.parent.rglob("*.blocks")), process)
    workers = [
        one for one in children_of(process.pid) if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()
    ]
    os.kill(workers[0], signal.SIGKILL)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, stderr
    expected = tmp_path / "expected" / "run.pftrace"
    expected.parent.mkdir()
    assert run("merge", *large_reports, "-o", expected).code == 0
    assert output.read_bytes() == expected.read_bytes()
    assert list(output.parent.iterdir()) == [output]


@pytest.mark.slow
def test_the_way_past_a_broken_report_is_named_and_comes_before_the_verdict(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(RANK0.read_bytes()[:50_000])
    others = sorted(PIPELINE.glob("*/*.sqlite"))
    for command in (("merge", "-o", tmp_path / "x.pftrace"), ("pipeline",), ("summary",), ("info",)):
        done = call(command[0], *others, broken, *command[1:])
        assert_refused(done, "broken.sqlite` is truncated")
        assert done.stderr.endswith("; `--keep-going` skips such reports\n"), done.stderr
        assert "--keep-going" not in call(command[0], broken, *command[1:]).stderr
    done = call("merge", *others, broken, "--keep-going", "-o", tmp_path / "run.pftrace")
    lines = done.stderr.splitlines()
    assert done.code == 3
    assert lines[0].startswith(f"skipped {broken}: ")
    assert sum(line.startswith("skipped ") for line in lines) == 1


def render_bar(width: int, activity: str, counts: str) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    bar = build_bar(console)
    bar.add_task(activity, total=100, counts=counts, completed=25)
    lines = console.render_lines(bar.make_tasks_table(bar.tasks))
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


@pytest.mark.parametrize("width", [80, 119, 120, 200])
@pytest.mark.parametrize("counts", ["encoded 1,900,544 of 2,000,009 rows", ""])
def test_a_bar_cuts_the_name_alone(width: int, counts: str) -> None:
    (line,) = render_bar(width, f"drawing [red]{'long' * 60}.sqlite", counts)
    assert len(line) <= width
    assert counts in line
    assert line.endswith("-:--:-- left")  # without a speed, the time is unknown
    assert "drawing [red]lo" in line
    assert "…" in line
    assert ("elapsed" in line) is (width >= 120)


_COMMANDS = {
    "merge": ["-o", "run.pftrace"],
    "project": ["-o", "ranges.csv"],
    "pipeline --explain-jobs": [],
    "compare": [str(RANK0)],
    "summary": [],
    "align": [],
    "info": [],
    "check": [],
    "chart": ["-o", "run.svg"],
    "report": ["-o", "run.html"],
    "extract": ["-o", "run.nspart"],
    "sql": ["SELECT count(*) FROM jobs"],
}


def _sum(entry: dict[str, Any]) -> int:
    return int(entry["used"] + sum(entry["left_out"].values()))


@pytest.mark.few(4)
@pytest.mark.parametrize("command", sorted(_COMMANDS))
def test_every_command_counts(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [*command.split(), *_COMMANDS[command], "--result", "r.json", "--explain-rows"]
    done = succeed(*arguments, RANK0)
    found = read(Path("r.json"))
    assert (found["command"], found["exit_status"]) == (arguments[0], 0)
    assert bool(found["outputs"]) == ("-o" in arguments)
    assert found["inputs"]
    report = found["rows"][0]
    assert report["report"] == str(RANK0)
    tables = {entry["source"]: entry for entry in report["tables"]}
    for name in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        [(rows,)] = select(RANK0, f"SELECT count(*) FROM {name}")
        assert tables[name]["read"] == rows == _sum(tables[name])
    assert all(entry["read"] == _sum(entry) for entry in report["tables"])
    lines = [line for line in done.stderr.splitlines() if f"{RANK0}: " in line]
    assert len([line for line in lines if " read, " in line or "of these" in line]) == len(report["tables"])
