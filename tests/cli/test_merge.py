"""`nsys-pp merge`: what each option does to the trace, and what the command says."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import shutil
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nsys_pp
from fixtures.recording.export import Session, write_report
from fixtures.simulate import main as simulate
from tests.cli.calls import PIPELINE, REPORTS, assert_refused, call, run, succeed
from tests.importer import (
    Importer,
    assert_no_errors,
    read_flows,
    read_tracks,
    slices_by_machine,
    slices_by_track,
)

CLOCKS = PIPELINE.parent / "clocks"
EPOCH = 1_790_000_000_000_000_000
DAY = 86_400_000_000_000


def merge(output: Path, *arguments: str | Path) -> str:
    done = call("merge", *arguments, "-o", output)
    assert (done.code, done.stdout) == (0, ""), done
    return done.stderr


def drawn(importer: Importer, tmp_path: Path, *arguments: str | Path) -> pl.DataFrame:
    """The slices of a merge, each under its machine and its row."""
    trace = tmp_path / f"{len(list(tmp_path.iterdir()))}.pftrace"
    merge(trace, *arguments)
    slices = slices_by_machine(importer, trace)
    assert_no_errors(importer)
    return slices


def rows(slices: pl.DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(slices.select("path", "ts", "dur", "name").iter_rows())


def tiny(path: Path, *, pid: int = 1000, **session: Any) -> Path:
    """A report of one range and its kernel; a session may shift all its times."""
    shift = session.get("time_shift_ns", 0)
    return write_report(
        path,
        session=Session(**{"duration_ns": 20_000, "pid": pid} | session),
        ranges=[{"start": shift, "end": shift + 10_000, "name": "step", "pid": pid}],
        api_calls=[{"start": shift + 2_000, "end": shift + 2_500, "pid": pid}],
        kernels=[
            {"start": shift + 3_000, "end": shift + 9_001, "correlation": 1, "name": "gemm", "pid": pid}
        ],
    )


def two_of_one_gpu(folder: Path) -> list[Path]:
    """Two reports of processes that follow each other on one GPU; what they show after their ends overlaps."""
    session = {"duration_ns": 500, "environment": {"RANK": "3"}}
    return [
        tiny(folder / f"{pid}.sqlite", pid=pid, utc_epoch_ns=EPOCH + pid, **session) for pid in (1000, 2000)
    ]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The trace of the fixtures, and what was said of it."""
    trace = tmp_path_factory.mktemp("merged") / "run.pftrace"
    return trace, merge(trace, *REPORTS)


def test_one_line_says_what_was_written(merged: tuple[Path, str], importer: Importer) -> None:
    trace, said = merged
    slices = len(slices_by_track(importer, trace))
    size = f"{trace.stat().st_size / 1024:.1f} KiB"
    wrote, *findings = said.splitlines(keepends=True)[-4:]
    assert findings[0] == "No finding beyond noise in 3 steps.\n"
    assert findings[1].startswith("Bubble 30 %, ideal for 1F1B with 4 stages and 8 micro-batches 28 %.")
    assert findings[2].startswith("Clocks agree within ")
    assert wrote == (
        f"Wrote {trace} ({size}): {slices:,} slices on 4 GPUs of 2 machines, from 4 reports."
        f" To view it: `nsys-pp open {trace}`, or drop it on https://ui.perfetto.dev.\n"
    )


def test_the_output_has_a_name_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tiny(tmp_path / "one.sqlite")
    monkeypatch.chdir(tmp_path)
    assert call("merge", report).stderr.startswith("Wrote run.pftrace (")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.sqlite", "run.pftrace"]


def test_a_trace_on_standard_output(merged: tuple[Path, str], tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        done = run("merge", *REPORTS, "-o", "-", stdout=file)
    assert (tmp_path / "out").read_bytes() == merged[0].read_bytes()
    assert "Wrote a trace to standard output: 7,906 slices" in done.stderr
    reader, pipe = os.pipe()
    os.close(reader)  # as `| head` does
    assert "Traceback" not in run("merge", *REPORTS, "-o", "-", stdout=pipe).stderr
    refused = run("merge", *REPORTS, "-o", "-", stdout=pty.openpty()[1])
    assert (refused.code, "a trace is not for terminals" in refused.stderr) == (2, True)


def test_a_manifest_has_the_offset_of_each_machine(tmp_path: Path) -> None:
    merge(tmp_path / "run.pftrace", CLOCKS, "--manifest")
    assert json.loads((tmp_path / "run.manifest.json").read_text()) == {
        "perfetto_manifest": {
            "version": 1,
            "trace_time": {"clock": "BOOTTIME", "file": "run.pftrace"},
            "files": [{"path": "run.pftrace"}],
            "attributes": {
                f"nsys_pp.offset_ns.rank{rank}": offset_ns
                for rank, offset_ns in enumerate(nsys_pp.align(CLOCKS).clocks["offset_ns"])
            },
        }
    }


def test_what_a_browser_cannot_hold_is_noted(tmp_path: Path) -> None:
    report = tiny(tmp_path / "one.sqlite")
    events = nsys_pp.merge(report, tmp_path / "0.pftrace").events
    assert "note:" not in merge(tmp_path / "a.pftrace", report, "--max-events", str(events))
    said = merge(tmp_path / "b.pftrace", report, "--max-events", str(events - 1))
    assert said.splitlines()[1] == (
        f"note: a browser holds about {events - 1:,} events; divide the run with `--split rank` or `--split step`, or"
        " reduce the trace with `--detail ranges`, `--detail jobs`, `--device`, or `--start` and `--end`"
    )


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory, importer: Importer) -> pl.DataFrame:
    """All slices of the fixtures, those on the CPU's rows, too."""
    return drawn(importer, tmp_path_factory.mktemp("every"), PIPELINE, "--detail", "cpu")


@pytest.mark.few(1)
@pytest.mark.parametrize("named", [PIPELINE, PIPELINE / "node*" / "rank*"])
def test_the_trace_does_not_depend_on_how_reports_are_named(
    tmp_path: Path, named: Path, merged: tuple[Path, str]
) -> None:
    """A trace has the name of its file without the extension."""
    merge(tmp_path / "run.b", named)
    assert (tmp_path / "run.b").read_bytes() == merged[0].read_bytes()


def test_devices_are_those_of_the_machine(tmp_path: Path, importer: Importer) -> None:
    every = drawn(importer, tmp_path, PIPELINE, "--detail", "jobs")
    slices = drawn(importer, tmp_path, PIPELINE, "--detail", "jobs", "--device", "1,7")
    kept = every.filter(pl.col("path").str.contains("/rank [13] "))
    of_gpus = slices.filter(~pl.col("path").str.starts_with("pipeline/"))
    assert rows(of_gpus) == rows(kept)
    assert_refused(
        call("merge", PIPELINE, "-o", tmp_path / "x.pftrace", "--device", "7"), "4 reports", "to draw"
    )
    assert not (tmp_path / "x.pftrace").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("150ms", None),
        (None, "180ms"),
        ("0.15s", "180000us"),
        ("150000000ns", "180000000ns"),
        ("-5ms", "0.1s"),
    ],
)
def test_a_window_keeps_what_reaches_into_it(
    start: str | None, end: str | None, every: pl.DataFrame, tmp_path: Path, importer: Importer
) -> None:
    options = [*(["--start", start] if start else []), *(["--end", end] if end else [])]
    slices = drawn(importer, tmp_path, PIPELINE, "--detail", "cpu", *options)
    zero = min(pl.read_parquet(PIPELINE / "truth" / "clocks.parquet")["recorded_utc_ns"])
    from_ns = zero + {"-5ms": -5_000_000, None: -DAY}.get(start, 150_000_000)
    until_ns = zero + {"0.1s": 100_000_000, None: DAY}.get(end, 180_000_000)
    kept = every.filter(pl.col("ts") + pl.col("dur") >= from_ns, pl.col("ts") < until_ns)
    assert 0 < len(kept) < len(every)
    by_row = pl.col("path").str.replace("/ranges of .*", "/ranges")  # named by thread where there are several
    assert rows(slices.with_columns(by_row)) == rows(kept.with_columns(by_row))


def test_the_edges_of_a_window(tmp_path: Path, importer: Importer) -> None:
    """The kernel runs from 3,000 to 9,001 ns."""
    report = tiny(tmp_path / "one.sqlite")
    for start, end, is_in in [
        ("9001ns", "20us", True),
        ("9002ns", "20us", False),
        ("0", "3001ns", True),
        ("0", "3000ns", False),
        ("4us", "5us", True),
    ]:
        options = ["--start", start, "--end", end]
        if is_in:
            assert drawn(importer, tmp_path, report, *options)["name"].to_list() == ["step", "gemm"]
        else:
            assert_refused(
                call("merge", report, "-o", tmp_path / "no", *options), f"`{report}` has nothing to draw"
            )


def test_windows_count_from_the_earliest_report(tmp_path: Path, importer: Importer) -> None:
    reports = [
        tiny(tmp_path / f"{name}.sqlite", hostname=name, utc_epoch_ns=EPOCH + late)
        for name, late in (("late", 1_000_000), ("early", 0))
    ]
    for option, machine in (("--start", "late"), ("--end", "early")):
        assert set(drawn(importer, tmp_path, *reports, option, "1ms")["machine"]) == {machine}


def test_flows_imply_the_cpu(tmp_path: Path, importer: Importer) -> None:
    slices = drawn(importer, tmp_path, REPORTS[0], "--flows")
    assert rows(slices) == rows(drawn(importer, tmp_path, REPORTS[0], "--detail", "cpu"))
    assert read_flows(importer) == []
    drawn(importer, tmp_path, REPORTS[0], "--flows", "--detail", "jobs")
    calls = slices.filter(pl.col("path").str.contains("/CUDA API "))
    assert 1000 < len(read_flows(importer)) <= len(calls)


@pytest.mark.few(2)
@pytest.mark.parametrize("scope", ["thread", "process", "auto"])
@pytest.mark.parametrize("ops", ["kernel", "memcpy,memset", "all"])
def test_ranges_are_those_that_project_writes(
    ops: str, scope: str, tmp_path: Path, importer: Importer
) -> None:
    options = ["--ops", ops, "--scope", scope]
    slices = drawn(importer, tmp_path, *REPORTS[:3:2], "--detail", "ranges", *options)
    assert call("project", *REPORTS[:3:2], *options, "-o", tmp_path / "x.parquet").code == 0
    table = pl.read_parquet(tmp_path / "x.parquet").select(
        machine="machine",
        ts=pl.col("gpu_start_ns") + pl.col("utc_offset_ns"),
        dur=pl.col("gpu_end_ns") - pl.col("gpu_start_ns"),
        name=pl.col("name").fill_null("(no name)"),
    )
    shown = slices.filter(pl.col("path").str.contains("/ranges"))
    assert Counter(shown.select(table.columns).iter_rows()) == Counter(table.iter_rows())


def read_chrome(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return list(trace["traceEvents"] if isinstance(trace, dict) else trace)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "options", "is_zipped"),
    [
        ("run.json", [], False),
        ("run.json.gz", [], True),
        ("run.pftrace", ["--format", "chrome"], False),
        ("run.gz", ["--format", "chrome"], True),
    ],
)
def test_chrome_holds_the_same_slices(
    name: str, options: list[str], is_zipped: bool, tmp_path: Path, importer: Importer
) -> None:
    said = merge(tmp_path / name, REPORTS[0], *options)
    assert ((tmp_path / name).read_bytes()[:2] == b"\x1f\x8b") == is_zipped
    events = [event for event in read_chrome(tmp_path / name) if event["ph"] == "X"]
    slices = drawn(importer, tmp_path, REPORTS[0])
    assert f": {len(events):,} slices on 1 GPU" in said
    assert Counter((event["name"], round(event["dur"] * 1000)) for event in events) == Counter(
        slices.select("name", "dur").iter_rows()
    )


def test_chrome_keeps_apart_what_several_reports_say_of_one_gpu(tmp_path: Path) -> None:
    """The viewer draws slices of one thread over each other where they do not nest."""
    merge(tmp_path / "run.json", *two_of_one_gpu(tmp_path))
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in read_chrome(tmp_path / "run.json"):
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], -event["dur"]))
    pairs = [pair for lane in lanes.values() for pair in combinations(sorted(lane), 2)]
    ends = [(first[0] - first[1] + 1e-4, then[0], then[0] - then[1]) for first, then in pairs]
    assert [end for end, start, inner in ends if start + 2e-4 < end < inner] == []


def test_times_are_the_utc_that_each_machine_recorded(tmp_path: Path, importer: Importer) -> None:
    run = tmp_path / "run"
    size = ["--steps", "1", "--micro-batches", "2", "--layers", "1"]
    simulate([str(run), *size, "--offset-us", "node10=30", "--offset-us", "node2=-7"])
    slices = drawn(importer, tmp_path, run, "--clock", "utc")
    clocks = pl.read_parquet(run / "truth" / "clocks.parquet")
    assert dict(
        clocks.select("machine", pl.col("recorded_utc_ns") - pl.col("capture_utc_ns")).iter_rows()
    ) == {
        "node10": 30_000,
        "node2": -7_000,
    }
    operations = pl.read_parquet(run / "truth" / "operations.parquet").join(clocks, on="report")
    true = operations.select(
        "machine",
        ts=pl.col("start_ns") + pl.col("recorded_utc_ns"),
        dur=pl.col("end_ns") - pl.col("start_ns"),
    )
    shown = slices.filter(pl.col("path").str.contains("/stream ")).select(true.columns)
    assert Counter(shown.iter_rows()) == Counter(true.iter_rows())


def test_machines_meet_on_one_clock(tmp_path: Path, importer: Importer) -> None:
    """Clocks a second apart, which drift: what ranks did together stands together in the trace."""
    run = tmp_path / "run"
    options = "--pp 2 --dp 2 --machines 2 --steps 4 --layers 1 --offsets-ms 1000 --drift-ppm random:100"
    simulate([str(run), *options.split(), "--utc-error-us", "100", "--brief-truth"])
    slices = drawn(importer, tmp_path, run).filter(
        pl.col("path").str.ends_with("/communication"), pl.col("name").str.contains("AllReduce_Sum_f32")
    )
    ends = slices.select("path", end=pl.col("ts") + pl.col("dur")).sort("end")
    steps = ends.group_by("path", maintain_order=True).agg("end")["end"].to_list()
    assert [len(step) for step in steps] == [4] * 4
    assert max(max(step) - min(step) for step in zip(*steps, strict=True)) < 2_000
    apart = drawn(importer, tmp_path, run, "--clock", "utc").filter(
        pl.col("path").str.contains("/communication"), pl.col("name").str.contains("AllReduce_Sum_f32")
    )
    assert (apart["ts"].max() - apart["ts"].min()) > (slices["ts"].max() - slices["ts"].min())  # type: ignore[operator]


def test_alignment_is_told_in_the_trace(tmp_path: Path, importer: Importer) -> None:
    """In its metadata (Perfetto shows them from v55 on), and on the machines' rows."""
    trace = tmp_path / "run.pftrace"
    merge(trace, PIPELINE.parent / "clocks", "--offset", "node10=-1.2ms")
    data = trace.read_bytes()
    for fact in ("clock.node2.report2.bound_ns", "clock.node10.report4.source", "given", "-1200000"):
        assert fact.encode() in data
    tracks = read_tracks(importer, trace)
    said = {
        re.search(r"(node\d+), GPU", text)[1]: text  # type: ignore[index]
        for path, text in tracks.select("path", "description").iter_rows()
        if path[0].startswith("rank") and len(path) == 1
    }
    assert said["node10"].endswith(
        "; clock: -1,200.0 us to -1,200.0 us on recorded UTC, drift +0.00 ppm, known by an unknown error (given)"
    )
    assert "(collectives)" in said["node2"]


@pytest.mark.few(1)
@pytest.mark.parametrize("shift", [EPOCH, 0, -3_000, 5_000_000_000, -EPOCH // 7])
def test_a_shift_of_the_export_changes_nothing(shift: int, tmp_path: Path, importer: Importer) -> None:
    """`nsys export --ts-normalize` moves all events to UTC, `--ts-shift` wherever one wants."""
    plain = tiny(tmp_path / "plain.sqlite", utc_epoch_ns=EPOCH)
    shifted = tiny(tmp_path / "shifted.sqlite", utc_epoch_ns=EPOCH, time_shift_ns=shift)
    slices = drawn(importer, tmp_path, shifted, "--detail", "cpu")
    assert rows(slices) == rows(drawn(importer, tmp_path, plain, "--detail", "cpu"))
    assert slices.filter(name="gemm")["ts"].to_list() == [EPOCH + 3_000]
    table = tmp_path / "x.parquet"
    assert call("project", shifted, "-o", table).code == 0
    row = pl.read_parquet(table).to_dicts()[0]
    assert (row["gpu_start_ns"], row["utc_offset_ns"]) == (3_000 + shift, EPOCH - shift)
    assert rows(drawn(importer, tmp_path, shifted, "--start", "9001ns", "--end", "9.5us")) == rows(
        drawn(importer, tmp_path, plain)
    )


def test_a_report_without_utc_is_told(tmp_path: Path, importer: Importer) -> None:
    known = tiny(tmp_path / "known.sqlite", hostname="known", utc_epoch_ns=EPOCH)
    lost, again = (
        write_report(
            tmp_path / f"{name}.sqlite",
            session=Session(hostname=name),
            ranges=[{"start": 0, "end": 10_000, "name": "step"}],
            api_calls=[{"start": 2_000, "end": 2_500}],
            kernels=[{"start": 3_000, "end": 9_001, "correlation": 1, "name": "gemm"}],
            omit={"TARGET_INFO_SESSION_START_TIME"},
        )
        for name in ("lost", "again")
    )
    said = merge(tmp_path / "run.pftrace", lost, known)
    assert said.splitlines()[0] == (
        f"note: `{lost}` does not know its UTC: it is drawn from the start of the earliest report"
    )
    found = slices_by_track(importer, tmp_path / "run.pftrace").filter(name="gemm")["ts"].to_list()
    assert found == [3_000] * 2
    said = merge(tmp_path / "none.pftrace", lost, again)
    assert said.splitlines()[0] == (
        "note: no report knows its UTC: times count from one start, and what shares no operation begins there"
    )
    assert "note" not in merge(tmp_path / "one.pftrace", lost)
    assert slices_by_track(importer, tmp_path / "one.pftrace").filter(name="gemm")["ts"].to_list() == [3_000]


def test_reports_of_one_gpu_lose_nothing(tmp_path: Path, importer: Importer) -> None:
    """Same machine, same GPU, same rank."""
    first, second = two_of_one_gpu(tmp_path)
    both = drawn(importer, tmp_path, first, second, "--detail", "cpu")
    alone = [rows(drawn(importer, tmp_path, one, "--detail", "cpu")) for one in (first, second)]
    assert rows(both) == alone[0] + alone[1]
    assert set(both.filter(name="gemm")["path"]) == {"node1/rank 3 · GPU 0/stream 7 (default)"}


@pytest.mark.slow
def test_jobs_stay_on_their_gpus_if_a_report_vanishes_between_two_reads(
    importer: Importer, tmp_path: Path
) -> None:
    """A windowed merge reads reports twice: to align them, and to draw the window."""
    folder = tmp_path / "in"
    for report in REPORTS:
        (folder / report.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(report, folder / report.parent.name)
    victim = folder / "node2" / "rank0.sqlite"

    def vanish(what: str, share: float) -> None:
        if what.startswith("drawing"):
            victim.unlink(missing_ok=True)

    window: dict[str, Any] = {"start_ns": 0, "end_ns": DAY}
    result = nsys_pp.merge(folder, tmp_path / "cut.pftrace", keep_going=True, progress=vanish, **window)
    assert [path for path, _ in result.skipped] == [victim]
    nsys_pp.merge(PIPELINE, tmp_path / "whole.pftrace", **window)
    cut, whole = (
        slices_by_track(importer, tmp_path / f"{name}.pftrace").filter(pl.col("path").str.contains("rank"))
        for name in ("cut", "whole")
    )
    assert rows(cut) == rows(whole.filter(~pl.col("path").str.contains("rank 0 ")))


def test_inputs_without_a_command_give_the_verdict_a_page_and_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = succeed(PIPELINE)
    lines = done.stderr.splitlines()
    assert lines[0] == "4 reports, 2 machines, 4 GPUs, 3 steps"
    assert lines[2].startswith("Wrote pipeline.html with the evidence, and pipeline.pftrace")
    assert lines[-1].startswith("Clocks agree")
    assert {path.name for path in tmp_path.iterdir()} == {"pipeline.html", "pipeline.pftrace"}
    assert_refused(call(PIPELINE), "exists")
    assert call(PIPELINE, "--force", "--no-open").code == 0
    assert "No such command or file 'nowhere'" in call("nowhere").stderr
    assert "Usage: main REPORT... [OPTIONS]\nTry 'main REPORT... --help'" in call(PIPELINE, "-o").stderr


def test_a_list_of_inputs_is_read_from_standard_input(tmp_path: Path) -> None:
    first, *rest = sorted(PIPELINE.rglob("*.sqlite"))
    reports = [shutil.copy(first, tmp_path / "a\f\u2028b.sqlite"), *rest]
    done = run("merge", "-", "-o", tmp_path / "run.pftrace", input="\r\n".join(map(str, reports)) + "\n\n")
    assert f"from {len(reports)} reports" in done.stderr
    with Path("/dev/zero").open() as endless:
        assert "is no list of reports" in run("info", "-", stdin=endless).stderr
    empty = run("info", "-", input="")
    assert (empty.code, "standard input names no reports" in empty.stderr) == (2, True)
