"""Tables on request: GPU metrics, and activities of hosts in bubbles."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsys_pp
from nsys_pp.frames.raw import SHOW_GROUPS
from nsys_pp.frames.report import METRIC_VALUES
from nsys_pp.frames.training import LANE_STATES
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.run.requested import sum_host_times
from nsys_pp.tables.registry import REQUESTED_TABLES
from nsys_pp.tables.registry import TRAINING_TABLES as TABLES
from nsys_pp.tables.training import build_metric_table
from nsys_pp.training.sums import list_measured, sum_metrics
from tests.cli.calls import call as run_command
from tests.read.tables import PROCESS, THREAD, Row, call, op, os_call, strings, switch, write_export
from tests.training.expected_training import build_small_training

PIPELINE = Path(__file__).parents[3] / "fixtures" / "pipeline"
CAUSES = ["compute", "host", "message_wait"]
BUBBLE_SCHEMA = pl.Schema(
    {"step": pl.Int64(), "cause": LANE_STATES["cause"], "process_key": pl.Int64(), "device_id": pl.Int32()}
    | {"start_ns": pl.Int64(), "end_ns": pl.Int64()}
)
STATES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 8), st.sampled_from(CAUSES)), min_size=1, max_size=12
)
SAMPLES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 100)), min_size=1, max_size=12)


def states_of(drawn: list[tuple[int, int, str]]) -> list[tuple[int, str, int, int]]:
    """Put states of drawn lengths one after the other, by lane."""
    at = {0: 0, 1: 0}
    placed = []
    for lane, length, cause in drawn:
        placed.append((lane, cause, at[lane], at[lane] + length))
        at[lane] += length
    return placed


@settings(deadline=None, max_examples=80)
@given(STATES, SAMPLES)
def test_means_and_peaks_are_those_of_the_definition(
    drawn: list[tuple[int, int, str]], samples: list[tuple[int, int]]
) -> None:
    states = states_of(drawn)
    frame = pl.DataFrame(
        [(lane, 0, None, cause, start, end, None) for lane, cause, start, end in states],
        schema=LANE_STATES,
        orient="row",
    )
    training = replace(build_small_training([]), lane_states=frame)
    values = dict(samples)  # one per time
    times = sorted(values)
    samples_of = pl.DataFrame(
        [(time, float(values[time])) for time in times], schema=METRIC_VALUES, orient="row"
    )
    measured = list_measured(training)
    sums = [
        sum_metrics(measured.filter(lane=lane), {"SMs Active [Throughput %]": samples_of}, lane=lane)
        for lane in (0, 1)
    ]
    found = build_metric_table(training, pl.concat(sums)).filter(pl.col("group") != "steps")
    expected: dict[tuple[object, object], object] = {}
    for cause in CAUSES:
        moments = [
            (lane, moment)
            for lane, of, start, end in states
            if of == cause
            for moment in range(start, end)
            if times[0] <= moment < times[-1]
        ]
        valid = [values[max(time for time in times if time <= moment)] for _, moment in moments]
        if valid:
            group, item = ("compute", None) if cause == "compute" else ("bubbles", cause)
            lanes = len({lane for lane, _ in moments})
            expected[group, item] = (sum(valid) / len(valid), max(valid), len(valid), lanes)
    assert {
        (group, item): (pytest.approx(mean), peak, time, lanes)
        for _, group, item, mean, peak, time, lanes in found.iter_rows()
    } == expected


def add_metrics(folder: Path) -> None:
    """Add a metric to each report of the fixture: 61 inside forwards, 48 in backwards, else 2, for all GPUs of the machine."""
    training = nsys_pp.pipeline(folder).training
    run = nsys_pp.pipeline(folder).run
    for at, recorded in enumerate(run.inputs):
        if recorded.path.stem not in ("rank0", "rank2"):  # one report per machine has the metrics
            continue
        machine = run.roster.filter(report=at)["machine"][0]
        rows = []
        for lane, gpu in training.lanes.filter(machine=machine).select("lane", "gpu").iter_rows():
            edges = [(0, 2), (1 << 40, 2)]
            for kind, value in (("forward", 61), ("backward", 48)):
                jobs = training.jobs.filter(lane=lane, kind=kind)
                for start, end in jobs.select("start_ns", "end_ns").iter_rows():
                    clock = run.clocks.clocks[at]
                    edges += [(clock.to_report(start), value), (clock.to_report(end), 2)]
            number = int(gpu.removeprefix("GPU "))
            rows += [(time, (1 << 48) + number, 5, value) for time, value in edges]
        with closing(sqlite3.connect(recorded.path)) as connection, connection:
            connection.execute("CREATE TABLE GPU_METRICS (timestamp, typeId, metricId, value)")
            connection.executemany("INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?)", rows)
            connection.execute("CREATE TABLE TARGET_INFO_GPU_METRICS (typeId, metricId, metricName)")
            names = [((1 << 48) + number, 5, "Tensor Active [Throughput %]") for number in (0, 1)]
            connection.executemany("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, ?, ?)", names)


def test_metrics_of_a_machine_are_of_the_jobs_of_all_its_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "pipeline"
    shutil.copytree(PIPELINE, folder)
    add_metrics(folder)
    done = run_command("pipeline", folder, "--table", "metrics", "--format", "json")
    assert done.code == 0, done.stderr
    table = nsys_pp.pipeline(folder).tables(["metrics"])["metrics"]
    jobs = table.filter(group="jobs", lane_count=4)
    means = dict(jobs.select("item", "mean").iter_rows())
    assert means["forward"] == pytest.approx(61, abs=0.5)
    assert means["backward"] == pytest.approx(48, abs=0.5)
    waits = table.filter(group="bubbles", item="message_wait").row(0, named=True)
    assert waits["mean"] < 15  # few waits are inside a job
    assert table["metric"].unique().to_list() == ["Tensor Active [Throughput %]"]
    families = table.filter(group="families")
    assert {"GEMM", "attention", "communication"} <= set(families["item"])
    assert families.filter(item="GEMM")["mean"].item() > families.filter(item="communication")["mean"].item()
    assert families["lane_count"].max() == 4, "kernels of ranks whose metrics are in another report"
    whole = nsys_pp.pipeline(folder).tables(["step_metrics"])["step_metrics"]
    first = whole["step"][0]
    steps = nsys_pp.pipeline(folder, steps=f"{first}:{first + 1}").tables(["step_metrics"])["step_metrics"]
    assert steps.equals(whole.head(1))
    assert whole["time_ns"].sum() == table.filter(group="steps")["time_ns"].item()
    nsys_pp.extract(folder, tmp_path / "parts")
    of_parts = nsys_pp.pipeline(tmp_path / "parts").tables(["metrics", "step_metrics"])
    assert of_parts["step_metrics"].equals(whole)
    without = (
        pl.col("group") != "families"
    )  # kernels of ranks whose metrics are in another part are not in parts
    assert of_parts["metrics"].filter(without).equals(table.filter(without))
    assert of_parts["metrics"].filter(group="families")["lane_count"].max() == 2


def test_tables_on_request_are_not_in_all() -> None:
    assert not set(REQUESTED_TABLES) & set(TABLES)
    for name in REQUESTED_TABLES:
        assert REQUESTED_TABLES[name].name == name


def test_reports_without_metrics_and_hosts_have_empty_tables() -> None:
    tables = nsys_pp.pipeline(PIPELINE / "node2" / "rank0.sqlite").tables(["metrics", "host"])
    assert tables["metrics"].is_empty()
    assert set(tables["host"]["activity"].cast(str).unique().drop_nulls()) <= {"range", "call"}
    assert "message_wait" not in tables["host"]["cause"].cast(str).to_list()


CALLS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.sampled_from([0, 1])), max_size=8)
BUBBLES = st.lists(st.tuples(st.integers(0, 10), st.integers(1, 10)), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(CALLS, BUBBLES, st.lists(st.integers(0, 90), max_size=8))
def test_host_times_are_those_of_the_definition(
    calls: list[tuple[int, int, int]], drawn: list[tuple[int, int]], samples: list[int]
) -> None:
    names = ("read", "pthread_cond_wait")
    bubbles, at = [], 0
    for gap, length in drawn:
        bubbles.append((at + gap, at + gap + length))
        at += gap + length
    apart = []  # calls one after the other: whichever is innermost is not the question here
    reached = 0
    for start, length, name in sorted(calls):
        begin = max(start, reached)
        apart.append((begin, begin + length, name))
        reached = begin + length
    last = bubbles[-1][1]
    tables: dict[str, list[Row]] = {
        "StringIds": strings(*names),
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(last, last + 1, 1)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [op(last, last + 9, 1, shortName=0, demangledName=0)],
        "OSRT_API": [os_call(start, end, nameId=name) for start, end, name in apart],
        "SCHED_EVENTS": [switch(0, 1), switch(30, 0), switch(200, 1)],
        "COMPOSITE_EVENTS": [
            {"id": number, "start": time, "cpu": 0, "globalTid": THREAD, "threadState": 1}
            for number, time in enumerate(samples, start=1)
        ],
    }
    with TemporaryDirectory() as folder:
        path = write_export(Path(folder) / "report.sqlite", tables)
        report = build_report(read_report(path, need=SHOW_GROUPS | {"ops", "ranges", "cpu"}))
    frame = pl.DataFrame(
        [(7, "host", PROCESS, 0, start, end) for start, end in bubbles],
        schema=BUBBLE_SCHEMA,
        orient="row",
    )
    found = sum_host_times(report, frame)
    assert set(found["step"]) == {7}
    times = {(row["activity"], row["name"]): row["time_ns"] for row in found.iter_rows(named=True)}
    inside = [moment for start, end in bubbles for moment in range(start, end)]
    assert times[None, None] == len(inside)
    for at, word in enumerate(names):
        covered = {moment for start, end, of in apart if of == at for moment in range(start, end)}
        assert times.get(("OS call", word), 0) == len(covered & set(inside))
    assert times.get(("state", "running"), 0) == len([moment for moment in inside if moment < 30])
    assert times.get(("state", "not running"), 0) == len([moment for moment in inside if 30 <= moment < 200])
    counted = found.filter(pl.col("activity") == "sample")["count"].sum()
    assert counted == len([time for time in samples if time in inside])


def test_stacks_are_summed_by_their_outlines(tmp_path: Path) -> None:
    names = (
        "read",
        "0x7f01",
        "main(int)",
        "/usr/lib/libc.so.6",
        "cudaMemcpyAsync_v3020",
        "cudaLaunchKernel_v7000",
        "[Unknown]",
    )
    frames = [(1, 0, 3, 0), (1, 1, 3, 1), (1, 1, 3, 2), (1, 2, 3, 3), (2, 4, 3, 0), (2, 1, 6, 1)]
    stacks: list[Row] = [
        {"id": stack, "symbol": symbol, "module": module, "stackDepth": depth}
        for stack, symbol, module, depth in frames
    ]
    tables: dict[str, list[Row]] = {
        "StringIds": strings(*names),
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            call(60, 80, 1, nameId=4, callchainId=2),
            call(100, 101, 2, nameId=5, callchainId=0),
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [op(81, 82, 1, copyKind=1, bytes=8, srcKind=0, dstKind=2)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [op(100, 109, 2, shortName=0, demangledName=0)],
        "OSRT_API": [os_call(10, 50, nameId=0, callchainId=1), os_call(52, 55, nameId=0)],
        "OSRT_CALLCHAINS": stacks,
        "CUDA_CALLCHAINS": stacks,
        "COMPOSITE_EVENTS": [{"id": 1, "start": 20, "cpu": 0, "globalTid": THREAD, "threadState": 1}],
        "SAMPLING_CALLCHAINS": stacks[1:4],
    }
    path = write_export(tmp_path / "report.sqlite", tables)
    report = build_report(read_report(path, need=SHOW_GROUPS | {"ops", "ranges", "cpu", "copy_kinds"}))
    bubble = pl.DataFrame([(7, "host", PROCESS, 0, 0, 100)], schema=BUBBLE_SCHEMA, orient="row")
    found = sum_host_times(report, bubble)
    times = {(activity, name): (time, count) for *_, activity, name, time, count in found.iter_rows()}
    assert times["stack", "read < [libc.so.6] < main"] == (40, 1)
    assert times["stack", "cudaMemcpyAsync_v3020 < [Unknown]"] == (20, 1)
    assert times["call", "cudaMemcpyAsync pageable"] == (20, 1)
    assert times["OS call", "read"] == (43, 1)
    assert times["sample", "[libc.so.6]"] == (None, 1)
    assert times["sample stack", "[libc.so.6] < main"] == (None, 1)
    shown = report.activities.filter(pl.col("row") == "OS calls")["stack"].to_list()
    assert shown == ["read < 0x7f01 [libc.so.6] < 0x7f01 [libc.so.6] < main(int)", None]


def test_the_reason_of_an_empty_table_is_the_one_that_holds(tmp_path: Path) -> None:
    def reasons(path: Path) -> str:
        done = run_command("pipeline", path, "--table", "metrics,host")
        assert done.code == 0
        return done.stdout

    report = PIPELINE / "node2" / "rank0.sqlite"
    of_report = reasons(report)
    assert "the report has no GPU metrics: record them with `nsys profile --gpu-metrics-device" in of_report
    assert "part" not in of_report
    option = next(
        row for row in nsys_pp.info(report).reports[0].contents.missing["option"] if "metrics" in row
    )
    assert f"`nsys profile {option}`" in of_report, "spelled as in `info`"
    part = tmp_path / "rank0.nspart"
    nsys_pp.extract(report, part)
    of_part = reasons(part)
    assert "none of the parts has GPU metrics" in of_part
    assert "none of the 4 reports has GPU metrics" in reasons(PIPELINE)
