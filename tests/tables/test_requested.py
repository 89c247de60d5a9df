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
from msgspec import structs
from polars.testing import assert_frame_equal

import nsys_pp
from fixtures.recording.bulk import write_bulk_report
from fixtures.recording.metrics import DDL, METRICS, add_metrics
from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.errors import OptionError
from nsys_pp.frames.part import PART_FRAMES
from nsys_pp.frames.raw import SHOW_GROUPS, Group
from nsys_pp.frames.report import METRIC_VALUES, Report
from nsys_pp.frames.training import LANE_STATES, WAITS
from nsys_pp.frames.training import STEPS as STEP_SCHEMA
from nsys_pp.model import build_report
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import read_part, read_report
from nsys_pp.run import report_sums as bubble_hosts
from nsys_pp.run.report_sums import MOST_WINDOWS, sum_host_times
from nsys_pp.tables.training import UTILISATION_TABLE, build_metric_table
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.sums import list_measured, sum_metrics
from nsys_pp.training.waits import sum_overheads
from tests.cli.calls import call as run_command
from tests.draws import place_after_gaps
from tests.read.tables import PROCESS, THREAD, Row, call, op, os_call, strings, switch, write_export
from tests.sql import add_rows, edit, select
from tests.training.expected_training import PIPELINE, build_small_training

CAUSES = ["compute", "host", "message_wait"]


BUBBLE_SCHEMA = pl.Schema(
    {"step": pl.Int64(), "cause": LANE_STATES["cause"], "process_key": pl.Int64(), "device_id": pl.Int32()}
    | {"start_ns": pl.Int64(), "end_ns": pl.Int64()}
)


STATES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 8), st.sampled_from(CAUSES)), min_size=1, max_size=12
)


def build_from(tables: dict[str, list[Row]], need: frozenset[Group]) -> Report:
    """Write the tables of an export, and build its report."""
    with TemporaryDirectory() as folder:
        return build_report(read_report(write_export(Path(folder) / "report.sqlite", tables), need=need))


def states_of(drawn: list[tuple[int, int, str]]) -> list[tuple[int, str, int, int]]:
    """Put states of drawn lengths one after the other, by lane."""
    at = {0: 0, 1: 0}
    placed = []
    for lane, length, cause in drawn:
        placed.append((lane, cause, at[lane], at[lane] + length))
        at[lane] += length
    return placed


@settings(deadline=None, max_examples=80)
@given(STATES, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 100)), min_size=1, max_size=12))
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


def add_own_metrics(folder: Path, result: PipelineResult) -> None:
    """Add a metric to each report of the fixture: 61 inside forwards, 48 in backwards, else 2, for all GPUs of the machine."""
    training, run = result.training, result.run
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
        path = folder / recorded.path.relative_to(PIPELINE)
        edit(
            path,
            "CREATE TABLE GPU_METRICS (timestamp, typeId, metricId, value)",
            "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId, metricId, metricName)",
        )
        add_rows(path, "GPU_METRICS", rows)
        names = [((1 << 48) + number, 5, "Tensor Active [Throughput %]") for number in (0, 1)]
        add_rows(path, "TARGET_INFO_GPU_METRICS", names)


def test_metrics_of_a_machine_are_of_the_jobs_of_all_its_ranks(
    result: PipelineResult, tmp_path: Path
) -> None:
    folder = tmp_path / "pipeline"
    shutil.copytree(PIPELINE, folder)
    add_own_metrics(folder, result)
    tables = nsys_pp.pipeline(folder).tables(["metrics", "step_metrics"])
    table, whole = tables["metrics"], tables["step_metrics"]
    means = dict(table.filter(group="jobs", lane_count=4).select("item", "mean").iter_rows())
    assert (means["forward"], means["backward"]) == (pytest.approx(61, abs=0.5), pytest.approx(48, abs=0.5))
    waits = table.filter(group="bubbles", item="message_wait").row(0, named=True)
    assert waits["mean"] < 15  # few waits are inside a job
    assert table["metric"].unique().to_list() == ["Tensor Active [Throughput %]"]
    families = table.filter(group="families")
    assert {"GEMM", "attention", "communication"} <= set(families["item"])
    assert families.filter(item="GEMM")["mean"].item() > families.filter(item="communication")["mean"].item()
    assert families["lane_count"].max() == 4, "kernels of ranks whose metrics are in another report"
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


BUBBLES = st.lists(st.tuples(st.integers(0, 10), st.integers(1, 10)), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.sampled_from([0, 1])), max_size=8),
    BUBBLES,
    st.lists(st.integers(0, 90), max_size=8),
)
def test_host_times_are_those_of_the_definition(
    calls: list[tuple[int, int, int]], drawn: list[tuple[int, int]], samples: list[int]
) -> None:
    names = ("read", "pthread_cond_wait")
    bubbles = place_after_gaps(drawn)
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
    report = build_from(tables, SHOW_GROUPS | {"ops", "ranges", "cpu"})
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


def test_stacks_are_summed_by_their_outlines() -> None:
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
    report = build_from(tables, SHOW_GROUPS | {"ops", "ranges", "cpu"})
    bubble = pl.DataFrame([(7, "host", PROCESS, 0, 0, 100)], schema=BUBBLE_SCHEMA, orient="row")
    found = sum_host_times(report, bubble)
    times = {(activity, name): (time, count) for *_, activity, name, time, count in found.iter_rows()}
    assert times.items() >= {
        (("stack", "read < [libc.so.6] < main"), (40, 1)),
        (("stack", "cudaMemcpyAsync_v3020 < [Unknown]"), (20, 1)),
        (("call", "cudaMemcpyAsync pageable"), (20, 1)),
        (("OS call", "read"), (43, 1)),
        (("sample", "[libc.so.6]"), (None, 1)),
        (("sample stack", "[libc.so.6] < main"), (None, 1)),
    }
    shown = report.activities.filter(pl.col("row") == "OS calls")["stack"].to_list()
    assert shown == ["read < 0x7f01 [libc.so.6] < 0x7f01 [libc.so.6] < main(int)", None]


def test_the_reason_of_an_empty_table_is_the_one_that_holds(tmp_path: Path) -> None:
    def reasons(path: Path) -> str:
        done = run_command("pipeline", path, "--table", "metrics,host")
        assert done.code == 0
        return done.stdout

    report = PIPELINE / "node2" / "rank0.sqlite"
    of_report = reasons(report)
    assert "the report has no GPU metrics: profile with `--gpu-metrics-device" in of_report
    assert "part" not in of_report
    option = next(
        row for row in nsys_pp.info(report).reports[0].contents.missing["option"] if "metrics" in row
    )
    assert f"profile with `{option}`" in of_report, "spelled as in `info`"
    part = tmp_path / "rank0.nspart"
    nsys_pp.extract(report, part)
    assert "the report has no GPU metrics: profile with `--gpu-metrics-device" in reasons(part)
    assert "none of the 2 reports has GPU metrics" in reasons(report.parent)


NAMES = ("CUPTI Buffer flush", "TLS allocation", "Lazy Function Loading", "cudaLaunchKernel", "kernel")


def overhead(start: int, end: int, name: int, thread: int = THREAD) -> Row:
    return {"start": start, "end": end, "globalTid": thread, "nameId": name}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(0, 2), st.booleans()), max_size=8),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), max_size=4),
)
def test_times_are_those_of_the_definition(
    spans: list[tuple[int, int, int, bool]], drawn: list[tuple[int, int]]
) -> None:
    steps = [(PROCESS, 0, number, *span) for number, span in enumerate(place_after_gaps(drawn))]
    tables: dict[str, list[Row]] = {
        "StringIds": strings(*NAMES),
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(0, 1, 1, nameId=3)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [op(2, 3, 1, shortName=4, demangledName=4)],
        "PROFILER_OVERHEAD": [
            overhead(start, start + length, name, THREAD if launches else THREAD + 1)
            for start, length, name, launches in spans
        ],
    }
    report = build_from(tables, frozenset({"ops", "os_calls"}))
    columns = ("process_key", "device_id", "step", "start_ns", "end_ns")
    frame = pl.DataFrame([dict(zip(columns, step, strict=True)) for step in steps], schema=STEP_SCHEMA)
    launches = match_launches(report.api_calls, report.gpu_ops)
    sums = sum_overheads(
        report.overheads,
        frame,
        waits=WAITS.to_frame(),
        ops=LaunchedOps(gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=launches),
    )
    found = {
        (row["step"], row["name"]): (row["time_ns"], row["step_ns"]) for row in sums.iter_rows(named=True)
    }
    expected: dict[tuple[int | None, str | None], tuple[int, int | None]] = {}
    own = [span for span in spans if span[3]]
    for chosen in ([0], [1], [2], [0, 1]):
        name = NAMES[chosen[0]] if len(chosen) == 1 else None
        covered = {
            moment for start, length, of, _ in own if of in chosen for moment in range(start, start + length)
        }
        inside = {step[2]: {*range(step[3], step[4])} for step in steps}
        rest = covered.difference(*inside.values())
        for step, moments in inside.items():
            if covered & moments:
                expected[step, name] = (len(covered & moments), len(moments))
        if rest and steps:
            expected[None, name] = (len(rest), None)
    assert found == expected


def test_the_table_has_the_share_of_a_step(tmp_path: Path) -> None:
    tables: dict[str, list[Row]] = {
        "StringIds": strings(*NAMES, "step 1", "step 2"),
        "NVTX_EVENTS": [
            {
                "start": 1000 * at,
                "end": 1000 * at + 900,
                "eventType": 59,
                "globalTid": THREAD,
                "textId": 4 + at,
            }
            for at in (1, 2)
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(1000 * at + 10, 1000 * at + 20, at, nameId=3) for at in (1, 2)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            op(1000 * at + 30, 1000 * at + 800, at, shortName=4, demangledName=4) for at in (1, 2)
        ],
        "PROFILER_OVERHEAD": [overhead(2200, 2227, 0)],
    }
    path = write_export(tmp_path / "report.sqlite", tables)
    table = run_command("pipeline", path, "--table", "overhead", "--format", "csv").stdout.splitlines()
    row = dict(zip(table[0].split(","), table[1].split(","), strict=True))
    assert (row["name"], row["time_ns"], row["is_of_profiler"]) == ("", "27", "true")
    assert float(row["fraction"]) == pytest.approx(27 / 1770, rel=1e-3)  # one step, of 1770 ns
    assert len(table) == 3


# the DDL of exports of schema 3.28.1
NETWORK_DDL = """
CREATE TABLE NET_NIC_METRIC (
    start INTEGER NOT NULL, end INTEGER NOT NULL, globalId INTEGER NOT NULL, portId INTEGER NOT NULL,
    metricsListId INTEGER NOT NULL, metricsIdx INTEGER NOT NULL, value INTEGER NOT NULL
);
CREATE TABLE NET_IB_SWITCH_METRIC (
    start INTEGER NOT NULL, end INTEGER NOT NULL, globalId INTEGER NOT NULL, metricsListId INTEGER NOT NULL,
    metricsIdx INTEGER NOT NULL, value INTEGER NOT NULL
);
CREATE TABLE TARGET_INFO_NETWORK_METRICS (
    metricsListId INTEGER NOT NULL, metricsIdx INTEGER NOT NULL, name TEXT NOT NULL, description TEXT NOT
    NULL, unit TEXT NOT NULL
);
CREATE TABLE NIC_ID_MAP (nicId INTEGER NOT NULL, globalId INTEGER NOT NULL);
DROP TABLE IF EXISTS TARGET_INFO_NIC_INFO;
CREATE TABLE TARGET_INFO_NIC_INFO (
    GUID INTEGER NOT NULL, stateName TEXT NOT NULL, nicId INTEGER NOT NULL, name TEXT NOT NULL, deviceId
    INTEGER NOT NULL, vendorId INTEGER NOT NULL, linkLayer INTEGER NOT NULL
);
INSERT INTO TARGET_INFO_NETWORK_METRICS VALUES
    (0, 5, 'IB: Bytes received', '', 'bytes/ms'), (0, 6, 'IB: Bytes sent', '', 'bytes/ms'),
    (0, 7, 'IPoIB: Bytes sent', '', 'bytes/ms'), (0, 10, 'IB: Send waits', '', 'ticks/ms');
INSERT INTO NIC_ID_MAP VALUES (0, 70), (1, 71);
INSERT INTO TARGET_INFO_NIC_INFO VALUES (1, 'Local', 0, 'mlx5_0', 1, 1, 2), (2, 'Local', 1, 'mlx5_1', 1, 1,
2);
"""


SAMPLE_NS = 100_000


def add_network(path: Path, *, until_ns: int, rates: dict[int, int]) -> None:
    """Add samples of 100 us to a report: rates in bytes per ms by the number of the metric, on both ports of two cards."""
    times = range(0, until_ns, SAMPLE_NS)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(NETWORK_DDL)
        connection.executemany(
            "INSERT INTO NET_NIC_METRIC VALUES (?, ?, ?, ?, 0, ?, ?)",
            [
                (at, at + SAMPLE_NS, card, port, metric, rate)
                for at in times
                for card in (70, 71)
                for port in (1, 2)
                for metric, rate in rates.items()
            ],
        )
        connection.execute("INSERT INTO NET_IB_SWITCH_METRIC VALUES (0, ?, 9, 0, 6, 1000)", [until_ns])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the fixture with network metrics in both reports of the first machine, which have the same cards."""
    folder = tmp_path_factory.mktemp("network") / "pipeline"
    shutil.copytree(PIPELINE, folder)
    for name in ("rank0", "rank1"):
        add_network(
            folder / "node2" / f"{name}.sqlite", until_ns=1_000_000_000, rates={5: 3000, 6: 500, 7: 9, 10: 1}
        )
    return folder


@pytest.fixture(scope="module")
def with_network(recorded: Path) -> PipelineResult:
    return nsys_pp.pipeline(recorded)


def test_bytes_of_a_constant_rate_are_those_of_the_length_of_each_step(with_network: PipelineResult) -> None:
    result = with_network
    table = result.tables(["network"])["network"]
    (machine,) = table["machine"].unique()
    lanes = result.training.lanes.filter(machine=machine)["lane"]
    spans = (
        result.training.steps.filter(pl.col("lane").is_in(lanes.implode()))
        .group_by("step")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("step")
    )
    ends = spans["end_ns"].to_list()
    ends[:-1] = [min(end, start) for end, start in zip(ends, spans["start_ns"][1:].to_list(), strict=False)]
    lengths_ms = [(end - start) / 1e6 for start, end in zip(spans["start_ns"].to_list(), ends, strict=True)]
    cards = table.filter(source="network cards")
    assert cards["step"].to_list() == spans["step"].to_list()
    assert cards["sent_bytes"].to_list() == pytest.approx([4 * 500 * length for length in lengths_ms])
    assert cards["received_bytes"].to_list() == pytest.approx([4 * 3000 * length for length in lengths_ms])
    assert cards["sent_peak_bytes_per_s"].to_list() == pytest.approx([500_000.0] * len(cards))
    switch = table.filter(source="IB switch 9")
    assert switch["sent_bytes"].to_list() == pytest.approx([1000 * length for length in lengths_ms])
    assert switch["received_bytes"].null_count() == len(switch)
    sent = result.training.transfers.join(
        result.training.lanes.select(sender="lane", machine="machine"), on="sender"
    ).join(result.training.lanes.select(receiver="lane", to="machine"), on="receiver")
    away = sent.filter(pl.col("machine") == machine, pl.col("to") != machine)
    assert cards["message_bytes"].sum() == away["size_bytes"].sum()


def test_parts_have_the_same_bytes(recorded: Path, with_network: PipelineResult, tmp_path: Path) -> None:
    nsys_pp.extract(recorded, tmp_path / "parts")
    of_parts = nsys_pp.pipeline(tmp_path / "parts")
    tables = [result.tables(["network"])["network"] for result in (with_network, of_parts)]
    assert len(tables[0]) > 4
    assert_frame_equal(tables[0], tables[1], rel_tol=1e-9)


@pytest.fixture(scope="module")
def result() -> PipelineResult:
    return nsys_pp.pipeline([PIPELINE], flops_per_step=1e13)


def test_utilisation_is_flops_over_time_and_peak(result: PipelineResult) -> None:
    table = result.tables(["utilisation"])["utilisation"]
    assert table["span_ns"].to_list() == result.tables(["steps"])["steps"]["span_ns"].to_list()
    for row in table.rows(named=True):
        rate = 1e13 / (row["span_ns"] / 1e9) / 4
        assert row["tflops_per_gpu_s"] == pytest.approx(rate / 1e12)
        assert row["mfu_fraction"] == pytest.approx(rate / 989.4e12)
    assert any("989.4 TFLOP/s of bf16" in note for note in result.work_notes())


def test_an_unknown_gpu_has_no_utilisation(result: PipelineResult) -> None:
    assert result.work is not None
    work = structs.replace(result.work, gpus=(*result.work.gpus[:-1], "NVIDIA A10G"))
    other = replace(result, work=work)
    table = UTILISATION_TABLE.build(other.training, work)
    assert table["mfu_fraction"].null_count() == len(table)
    assert "the peak of `NVIDIA A10G` for bf16 is unknown: no utilisation" in other.work_notes()


def test_gpus_that_were_not_recorded_count(result: PipelineResult) -> None:
    assert result.work is not None
    work = structs.replace(result.work, gpu_count=8)
    whole, half = (UTILISATION_TABLE.build(result.training, each) for each in (result.work, work))
    assert (half["mfu_fraction"] * 2).to_list() == pytest.approx(whole["mfu_fraction"].to_list())
    assert any("4 of 8 GPUs were recorded" in note for note in replace(result, work=work).work_notes())


def test_options_that_contradict_each_other_are_refused() -> None:
    for options in ({"model": "layers=1"}, {"flops_per_step": -1.0}, {"data_type": "int3"}):
        with pytest.raises(OptionError):
            nsys_pp.pipeline([PIPELINE], **options)
    with pytest.raises(OptionError, match="exclude each other"):
        nsys_pp.pipeline([PIPELINE], flops_per_step=1.0, model="layers=1,hidden=1,sequence=1,batch=1")


@settings(deadline=None, max_examples=50)
@given(
    BUBBLES,
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(1, 20), st.integers(0, 1)), max_size=10
    ),
)
def test_other_threads_are_those_of_the_definition(
    drawn: list[tuple[int, int]], calls: list[tuple[int, int, int, int]]
) -> None:
    bubbles = place_after_gaps(drawn)
    last = bubbles[-1][1]
    apart: list[tuple[int, int, int, int]] = []
    reached: dict[int, int] = {}
    for thread, start, length, name in sorted(calls):
        begin = max(start, reached.get(thread, 0))
        apart.append((thread, begin, begin + length, name))
        reached[thread] = begin + length
    words = ("read", "sem_wait")
    tables: dict[str, list[Row]] = {
        "StringIds": strings(*words, "worker 1", "worker 22", "main"),
        "ThreadNames": [
            {"globalTid": THREAD, "nameId": 4, "priority": 0},
            {"globalTid": THREAD + 1, "nameId": 2, "priority": 0},
            {"globalTid": THREAD + 2, "nameId": 3, "priority": 0},
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(last, last + 1, 1)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [op(last, last + 9, 1, shortName=0, demangledName=0)],
        "OSRT_API": [
            os_call(start, end, nameId=name, globalTid=THREAD + thread) for thread, start, end, name in apart
        ]
        + [os_call(0, last, nameId=1)],  # of the launching thread: not another one
    }
    report = build_from(tables, bubble_hosts._HOST_GROUPS)
    frame = pl.DataFrame(
        [(7, "host", PROCESS, 0, start, end) for start, end in bubbles], schema=BUBBLE_SCHEMA, orient="row"
    )
    found = sum_host_times(report, frame).filter(pl.col("activity") == "other thread")
    inside = {moment for start, end in bubbles for moment in range(start, end)}
    titles = {1: "worker *", 2: "worker *", 3: "(no name)"}
    times: dict[str, int] = {}
    threads: dict[str, set[int]] = {}
    for thread, start, end, name in apart:
        key = f"{titles[thread]}: {words[name]}()"
        own = len(inside & set(range(start, end)))
        if own:
            times[key] = times.get(key, 0) + own
            threads.setdefault(key, set()).add(thread)
    sizes = {
        title: len({thread for thread, *_ in apart if titles[thread] == title}) for title in titles.values()
    }
    expected = {key: (time // sizes[key.split(":")[0]], len(threads[key])) for key, time in times.items()}
    assert {row["name"]: (row["time_ns"], row["count"]) for row in found.iter_rows(named=True)} == expected


@pytest.mark.slow
def test_parts_have_means_of_windows_of_bounded_number(tmp_path: Path) -> None:
    report = write_bulk_report(tmp_path / "report.sqlite", kernels=1_000, ranges=1_000)
    [(end_ns,)] = select(report, "SELECT max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    nsys_pp.extract(report, tmp_path / "bare.nspart")
    add_metrics(report, rows=2 * MOST_WINDOWS, end_ns=end_ns)
    nsys_pp.extract(report, tmp_path / "report.nspart")
    frames = read_part(tmp_path / "report.nspart", (), version="", optional=PART_FRAMES).frames
    assert MOST_WINDOWS / 2 < len(frames["metric_windows"]) <= MOST_WINDOWS
    assert len(frames["metric_families"]) <= 20 * len(METRICS)
    assert (tmp_path / "report.nspart").stat().st_size < report.stat().st_size / 3
    tables = [
        nsys_pp.pipeline(path).tables(["metrics"])["metrics"] for path in (report, tmp_path / "report.nspart")
    ]
    joined = tables[0].join(tables[1], on=["metric", "group", "item"], suffix="_of_part", nulls_equal=True)
    assert len(joined) == len(tables[0])
    steps = joined.filter(pl.col("group").is_in(["steps", "families"]))
    assert len(steps) > len(METRICS)
    assert steps["mean"].to_list() == pytest.approx(steps["mean_of_part"].to_list(), rel=1e-3)
    assert (joined["peak"] <= joined["peak_of_part"]).all()
    edit(report, "DROP TABLE GPU_METRICS", "DROP TABLE TARGET_INFO_GPU_METRICS")
    nsys_pp.extract(report, tmp_path / "dropped.nspart")
    assert (tmp_path / "dropped.nspart").read_bytes() == (tmp_path / "bare.nspart").read_bytes()


USUAL_MHZ, LOW_MHZ = 1980, 1400


def add_clocks(folder: Path, result: PipelineResult, low: dict[int, set[int] | None]) -> None:
    """Add the clock of each lane's GPU to the report of its process: low in steps of lanes, or in all (None)."""
    training, run = result.training, result.run
    for at, recorded in enumerate(run.inputs):
        clock = run.clocks.clocks[at]
        rows = []
        for lane, gpu in training.lanes.filter(report=at).select("lane", "gpu").iter_rows():
            chosen = low.get(lane, set())
            kind = (1 << 56) + int(gpu.removeprefix("GPU "))
            first = USUAL_MHZ if chosen is not None else LOW_MHZ
            steps = training.steps.filter(lane=lane).select("step", "start_ns", "end_ns").rows()
            edges = {0: first} | {clock.to_report(end): first for _, _, end in steps}
            edges |= {
                clock.to_report(start): LOW_MHZ if chosen is None or step in chosen else USUAL_MHZ
                for step, start, _ in steps
            }
            rows += [(time, kind, 0, value * 1_000_000) for time, value in edges.items()]
        with closing(sqlite3.connect(folder / recorded.path.relative_to(PIPELINE))) as connection, connection:
            connection.executescript(DDL)
            connection.executemany("INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?)", sorted(rows))
            kinds = {row[1] for row in rows}
            connection.executemany(
                "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 1, 'GPU Metrics', 0, 'GPC Clock Frequency [MHz]')",
                [(kind,) for kind in kinds],
            )


def notes_of(tmp_path: Path, plain: PipelineResult, low: dict[int, set[int] | None]) -> list[str]:
    folder = tmp_path / "pipeline"
    shutil.copytree(PIPELINE, folder)
    add_clocks(folder, plain, low)
    result = nsys_pp.pipeline(folder)
    assert result.metric_notes() == []
    result.tables(["metrics"])
    done = run_command("pipeline", folder, "--table", "step_metrics")
    notes = result.metric_notes()
    assert all(note in done.stderr.replace("\n", " ") for note in notes)
    return notes


@pytest.mark.slow
def test_a_clock_that_falls_in_a_step_is_noted(result: PipelineResult, tmp_path: Path) -> None:
    steps = result.training.steps["step"].unique().sort().to_list()
    assert len(steps) >= 3
    (note,) = notes_of(tmp_path, result, {2: {steps[1]}})
    assert "rank 2" in note
    assert f"fell from 1,980 MHz, the median of its steps, to 1,400 MHz in step {steps[1]};" in note
    assert "nsys does not record why" in note


def test_a_gpu_with_a_lower_clock_than_others_is_noted(result: PipelineResult, tmp_path: Path) -> None:
    (note,) = notes_of(tmp_path, result, {1: None})
    assert "rank 1" in note
    assert "is 1,400 MHz, the median of all GPUs 1,980 MHz" in note
