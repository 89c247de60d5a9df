"""The verdict of simulated runs with one fault or none: what is named, how surely, and what it costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import polars as pl
import pytest

import nsys_pp
from fixtures.recording.metrics import add_clocks
from fixtures.recording.overheads import Overhead, add_overheads, turn_calls_into_overhead
from fixtures.serving.engines import ENGINES
from fixtures.serving.reports import write_reports
from fixtures.serving.simulate import draw_serving, serve
from fixtures.simulate import main as simulate
from nsys_pp.frames.training import CAUSE, Training
from nsys_pp.frames.verdict import MOST_LINES, Finding, Verdict
from nsys_pp.tables.analysis import Evidence
from nsys_pp.tables.noise import to_float
from nsys_pp.tables.verdict import (
    build_verdict,
    describe_families,
    find_exposed_communication,
    find_long_steps,
)
from nsys_pp.tables.words import format_time
from tests.sql import add_rows, edit, select
from tests.training.expected_training import leave_out_events, simulate_training

_RUN = "--pp 2 --steps 6 --micro-batches 4 --jitter 0.01 --layers 2 --no-truth"


_USUAL = 1_700.0


Clock = Callable[[int, int], float]  # of a rank in a step, in MHz


def run(folder: Path, options: str, seed: int, base: str = _RUN) -> Path:
    simulate([*f"{base} {options} --seed {seed}".split(), str(folder)])
    return folder


def record_clocks(folder: Path, clock: Clock) -> None:
    """Add the clock of its GPU to the report of each rank: it changes where the steps begin on the host."""
    for path in sorted(folder.rglob("rank*.sqlite")):
        rank = int(path.stem.removeprefix("rank"))
        steps = select(
            path,
            "SELECT n.start, coalesce(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId"
            " WHERE coalesce(n.text, s.value) LIKE 'step\\_%' ESCAPE '\\' ORDER BY n.start",
        )
        [(gpu, last)] = select(path, "SELECT max(deviceId), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL")
        knots = [(0, _USUAL), *((start, clock(rank, int(name.split("_")[1]))) for start, name in steps)]
        add_clocks(path, {gpu: [*knots, (last + 1_000_000, _USUAL)]}, seed=rank)


def of_kind(folder: Path, kind: str) -> list[Finding]:
    return [found for found in nsys_pp.pipeline(folder).verdict.findings if found.kind == kind]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(5))
def test_a_rank_that_is_slow_as_its_clock_fell_has_this_cause(tmp_path: Path, seed: int) -> None:
    rng = Random(f"clock {seed}")
    rank, factor, since = rng.randrange(4), rng.uniform(1.15, 1.5), rng.choice([None, 12, 13])
    options = f"--dp 2 --slow-rank {rank}={factor:.3f}" + (f" --slow-since {since}" if since else "")
    folder = run(tmp_path, options, rng.randrange(10**6))
    record_clocks(folder, lambda of, step: _USUAL / factor if of == rank and step >= (since or 0) else _USUAL)
    [found] = of_kind(folder, "straggler")
    assert found.label == f"rank {rank}", found.line
    assert f"; its SM clock was {_USUAL / factor:,.0f} of 1,700 MHz" in _round(found.line, _USUAL / factor)
    assert found.confidence != "guess"


def _round(line: str, value: float) -> str:
    """Replace a clock within 2 % of a value, as means of samples are, by the value."""
    words = line.split(" ")
    for at, word in enumerate(words):
        number = word.replace(",", "")
        if number.isdigit() and words[at + 1 : at + 2] in (["of"], ["MHz"]):
            for exact in (value, _USUAL):
                if abs(int(number) / exact - 1) < 0.02:
                    words[at] = f"{exact:,.0f}"
    return " ".join(words)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "clock"),
    [
        ("another rank", lambda rank, step: 1_200.0 if rank == 2 else _USUAL),
        ("all ranks alike", lambda rank, step: 1_200.0),
        ("before it is slow, too", lambda rank, step: 1_200.0 if rank == 3 else _USUAL),
        ("steps in which it is not slow", lambda rank, step: 1_200.0 if rank == 3 and step < 13 else _USUAL),
    ],
)
def test_a_clock_that_falls_elsewhere_is_not_blamed(tmp_path: Path, name: str, clock: Clock) -> None:
    folder = run(tmp_path, "--dp 2 --slow-rank 3=1.3 --slow-since 13", 60_502)
    record_clocks(folder, clock)
    found = nsys_pp.pipeline(folder).verdict.findings
    assert found[0].label == "rank 3", name
    assert not [f.line for f in found if "clock was" in f.text or f.kind == "gpu_clock"], name


def test_clocks_of_all_gpus_that_fall_are_a_finding(tmp_path: Path) -> None:
    folder = run(tmp_path, "--dp 2 --slow-rank=-1=1.25 --slow-since 13", 60_505)
    record_clocks(folder, lambda rank, step: _USUAL / 1.25 if step >= 13 else _USUAL)
    [found] = of_kind(folder, "gpu_clock")
    assert (found.confidence, found.since_step) == ("likely", 13)
    assert "4 of 4 GPUs compute" in found.text
    assert "SM clocks were 1,360 of 1,700 MHz" in _round(found.text, 1_360.0)


_RUN_HOSTS = "--pp 2 --dp 2 --steps 5 --micro-batches 4 --jitter 0.01 --layers 2 --host --no-truth"


class Stall(NamedTuple):
    report: Path
    start: int
    end: int
    thread: int


def stall(folder: Path, seed: int, call: str) -> Stall:
    """Simulate a run in which the host of rank 2 is in a call for 30 ms of step 12."""
    run(folder, "--host-stall 2,12=30", seed, _RUN_HOSTS)
    report = next(folder.rglob("rank2.sqlite"))
    where = "WHERE end - start > 10000000"
    start, end, thread = select(report, f"SELECT start, end, globalTid FROM OSRT_API {where}")[0]
    edit(report, f"UPDATE OSRT_API SET nameId = :name {where}", name=add_string(report, call))
    return Stall(report, start, end, thread)


def add_string(report: Path, text: str) -> int:
    [(number,)] = select(report, "SELECT max(id) + 1 FROM StringIds")
    add_rows(report, "StringIds (id, value)", [(number, text)])
    return int(number)


def copy_rows(report: Path, table: str, changes: Iterable[dict[str, int]]) -> None:
    """Append copies of the first row of a table, each with changes."""
    columns = [name for (name,) in select(report, f"SELECT name FROM pragma_table_info('{table}')")]
    some = dict(zip(columns, select(report, f"SELECT * FROM {table} LIMIT 1")[0], strict=True))
    add_rows(report, table, [[*(some | change).values()] for change in changes])


def test_short_calls_are_summed_and_their_stack_is_named(tmp_path: Path) -> None:
    stalled = stall(tmp_path, 19_203, "read")
    report = edit(
        stalled.report,
        "DELETE FROM OSRT_API WHERE end - start > 10000000",
        "CREATE TABLE IF NOT EXISTS OSRT_CALLCHAINS (id, symbol, module, stackDepth)",
    )
    call = {"globalTid": stalled.thread, "nameId": add_string(report, "fsync"), "callchainId": 1}
    edges = range(stalled.start, stalled.end + 1, (stalled.end - stalled.start) // 100)
    # 80 of 100 pieces of the stall, none of which is a large part of it
    pieces = [(start, end) for at, (start, end) in enumerate(pairwise(edges)) if at % 5]
    copy_rows(report, "OSRT_API", ({"start": start, "end": end, **call} for start, end in pieces))
    for depth, name in enumerate(("fsync", "save_checkpoint", "train")):
        row = (1, add_string(report, name), add_string(report, "python"), depth)
        add_rows(report, "OSRT_CALLCHAINS (id, symbol, module, stackDepth)", [row])
    nsys_pp.extract(tmp_path, tmp_path.parent / f"{tmp_path.name}-parts")
    line = of_kind(tmp_path, "host")[0].line
    assert of_kind(tmp_path.parent / f"{tmp_path.name}-parts", "host")[0].line == line
    assert "in `fsync()`" in line
    assert "called from `save_checkpoint < train`" in line


pytestmark = pytest.mark.filterwarnings("ignore:nsys held the threads")  # the note above 2 %


_STALL_NS = 30_000_000


def turn(folder: Path, *, thread_offset: int = 0) -> list[Overhead]:
    """Replace the stalls of all reports by flushes; return these."""
    return [
        overhead
        for path in sorted(folder.rglob("*.sqlite"))
        for overhead in turn_calls_into_overhead(
            path, least_ns=_STALL_NS // 2, thread_offset=thread_offset, name="CUPTI Buffer flush"
        )
    ]


def list_bubbles(result: nsys_pp.PipelineResult, cause: str) -> int:
    length = pl.col("end_ns") - pl.col("start_ns")
    return int(result.training.lane_states.filter(cause=cause).select(length.sum()).item())


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_a_stall_in_a_flush_is_not_blamed_on_the_program(tmp_path: Path, seed: int) -> None:
    rank, step = (2 + 3 * seed) % 4, 12 + seed % 2
    folder = run(tmp_path, f"--host-stall {rank},{step}=30", 19_100 + seed, _RUN_HOSTS)
    [before] = of_kind(folder, "host")
    [overhead] = turn(folder)
    result = nsys_pp.pipeline(folder)
    kinds = [found.kind for found in result.verdict.findings]
    assert kinds[0] == "profiler", result.verdict.lines
    assert "host" not in kinds
    finding = result.verdict.findings[0]
    assert (finding.label, finding.step, finding.confidence) == (f"rank {rank}", step, "certain")
    assert "`CUPTI Buffer flush`" in finding.text
    assert finding.value_ns == pytest.approx(overhead.end - overhead.start, rel=0.01)
    assert list_bubbles(result, "profiler") == pytest.approx(overhead.end - overhead.start, rel=0.01)
    assert finding.gain_ns <= before.gain_ns * 1.05
    table = result.tables(["overhead"])["overhead"].filter(name="CUPTI Buffer flush")
    assert table["time_ns"].to_list() == [overhead.end - overhead.start]


def test_a_flush_beside_a_cuda_call_of_the_late_thread_is_a_guess(tmp_path: Path) -> None:
    folder = run(tmp_path, "--host-stall 2,12=30", 19_112, _RUN_HOSTS)
    [overhead] = turn(folder, thread_offset=77)
    report = next(folder.rglob("rank2.sqlite"))
    meanwhile = {"start": overhead.start, "end": overhead.end, "globalTid": overhead.thread - 77}
    copy_rows(report, "CUPTI_ACTIVITY_KIND_RUNTIME", [meanwhile | {"correlationId": 1 << 30}])
    finding = nsys_pp.pipeline(folder).verdict.findings[0]
    assert (finding.kind, finding.confidence, finding.label) == ("host", "guess", "rank 2")
    assert "nsys flushed its buffers on another thread meanwhile" in finding.text


@pytest.mark.slow
def test_flushes_while_gpus_compute_are_no_finding(tmp_path: Path) -> None:
    folder = run(tmp_path, "--pace-us 1", 19_113, _RUN_HOSTS)
    training = nsys_pp.pipeline(folder).training
    for path in sorted(folder.rglob("*.sqlite")):
        rows = select(path, "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE end - start > 100000")
        (thread,) = select(path, "SELECT DISTINCT globalTid FROM OSRT_API")[0]
        add_overheads(path, [Overhead(start, end, thread) for start, end in rows])
    result = nsys_pp.pipeline(folder)
    assert "profiler" not in [found.kind for found in result.verdict.findings]
    assert list_bubbles(
        nsys_pp.PipelineResult(training=training, run=result.run, skipped=result.skipped),
        "host",
    ) - list_bubbles(result, "host") == list_bubbles(result, "profiler")
    assert len(result.tables(["overhead"])["overhead"])


def test_lost_events_are_a_line(tmp_path: Path) -> None:
    folder = run(tmp_path, "", 19_114, _RUN_HOSTS)
    report = edit(
        next(folder.rglob("rank1.sqlite")),
        "CREATE TABLE IF NOT EXISTS DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text, globalPid)",
        "INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 1, 1, 3, 'Not all CUDA events might have been collected.', 0)",
    )
    with pytest.warns(UserWarning, match="but every recorded launch has its kernel"):  # nsys does not know it
        assert not of_kind(folder, "losses")
    edit(report, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = 9")
    with pytest.warns(UserWarning, match="Not all CUDA events"):
        [found] = of_kind(folder, "losses")
    assert found.line == (
        "Events of rank 1 are missing (`Not all CUDA events might have been collected`): its gaps and sums may be wrong."
    )


_HEALTHY = "--steps 4 --micro-batches 4 --jitter 0.01"


def verdict(options: str) -> Verdict:
    return build_verdict(simulate_training(options))


def first(options: str) -> Finding:
    return verdict(options).findings[0]


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("shape", ["--dp 2", "--pp 2 --dp 2 --tp 2", "--pp 1 --dp 4", "--schedule zb-h1"])
def test_of_a_healthy_run_no_rank_is_named(shape: str, seed: int) -> None:
    found = verdict(f"{_HEALTHY} {shape} --seed {13_000_000 + seed}").findings
    assert not [finding for finding in found if finding.subject in ("rank", "machine", "link", "step")]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(
            "--dp 2 --slow-rank 5=1.25",
            "Rank 5 (stage 2, node10 GPU 1) computes 25 % longer than its peers, in all 4 steps",
            id="rank",
        ),
        pytest.param(
            "--dp 2 --slow-rank 5=1.25 --slow-since 12",
            "Likely: rank 5 (stage 2, node10 GPU 1) computes 25 % longer than its peers, since step 12",
            id="since",
        ),
        pytest.param(
            "--dp 1 --slow-rank 1=1.3",
            "Rank 1 (stage 1, node2 GPU 1) computes 29 % longer than the other stages",
            id="stage",
        ),
        pytest.param(
            "--dp 2 --order pp-tp-dp --machines 2 --machine-factors 1,1.3",
            "All 4 ranks of",
            id="machine",
        ),
        pytest.param("--dp 2 --host-stall 2,12=30", "The host of rank 2 (", id="stall"),
        pytest.param("--dp 2 --steps 1 --host-stall 2,10=120", "The host of rank 2 (", id="only step"),
        pytest.param("--stall 11=40 --dp 1", "Rank 0 (", id="data"),
        pytest.param(
            "--micro-batches 8 --slow-link 2,4=8",
            "Messages rank 2 -> rank 4 (node2 GPU 2 -> node10 GPU 0) need",
            id="link",
        ),
    ],
)
def test_the_injected_fault_is_the_first_line(options: str, words: str) -> None:
    assert first(f"{_HEALTHY} {options}").line.startswith(words)


def test_a_fault_has_its_evidence() -> None:
    found = first(f"{_HEALTHY} --dp 2 --slow-rank 5=1.25 --slow-since 12")
    assert (found.kind, found.subject, found.label, found.lane, found.stage) == (
        "straggler",
        "rank",
        "rank 5",
        5,
        2,
    )
    assert (found.since_step, found.step, found.sample_count) == (12, None, 8)
    assert found.excess_fraction == pytest.approx(0.25, abs=0.02)
    assert found.noise_fraction is not None
    assert found.noise_fraction < 0.1


def _cut_every_step(training: Training) -> Training:
    """Mark every step as cut on some lanes: 11 on all but one, 12 on that one, all others on all; cut ones are shorter."""
    cut = pl.when(step=11).then(pl.col("lane") > 0).when(step=12).then(pl.col("lane") == 0).otherwise(True)
    lost = pl.when("is_partial").then((pl.col("end_ns") - pl.col("start_ns")) // 3).otherwise(0)
    steps = training.steps.with_columns(is_partial=cut).with_columns(end_ns=pl.col("end_ns") - lost)
    return replace(training, steps=steps)


def test_a_step_that_fewer_lanes_cut_is_no_long_step() -> None:
    """Captures begin and end at different times, and every step is cut on some lane: all of them count as complete."""
    training = simulate_training("--steps 5 --micro-batches 4 --jitter 0.01 --dp 2")
    evidence = Evidence(_cut_every_step(training))
    spans = dict(evidence.spans.iter_rows())
    assert spans[12] > 1.3 * spans[13]
    assert not find_long_steps(evidence, [])
    longer = pl.when(step=12).then(pl.col("end_ns") - pl.col("start_ns")).otherwise(0)
    steps = training.steps.with_columns(end_ns=pl.col("end_ns") + longer)
    (found,) = find_long_steps(Evidence(replace(training, steps=steps)), [])
    assert found.step == 12


def test_work_of_cut_steps_is_compared_by_micro_batch_alone() -> None:
    """A capture that has more of a step than others has more work of it, too."""
    training = simulate_training("--steps 5 --micro-batches 4 --jitter 0.01 --dp 2")
    columns = ["lane", "step", "micro_batch"]
    numbered = Evidence(training).own_compute.sort(columns)
    cut = _cut_every_step(training)
    assert Evidence(cut).own_compute.sort(columns).equals(numbered)
    unknown = pl.lit(None, pl.Int64)
    unnumbered = Evidence(replace(cut, jobs=cut.jobs.with_columns(micro_batch=unknown))).own_compute
    without = Evidence(replace(cut, jobs=cut.jobs.clear())).own_compute
    whole = cut.steps.filter(~pl.col("is_partial")).sort("lane", "step").select("lane", "step").rows()
    assert len(whole) == len(training.lanes)
    for own in (unnumbered, without):
        assert own.sort("lane", "step").select("lane", "step").rows() == whole


def test_without_findings_the_first_line_is_a_sentence() -> None:
    found = verdict(_HEALTHY + " --layers 4")
    assert found.lines[0] == "No finding beyond noise in 4 steps."
    assert [finding.kind for finding in found.findings] == ["none", "bubble", "clocks"]


@pytest.mark.parametrize(
    ("bound_ns", "groups", "line", "words"),
    [
        (8_000, 1, -1, "Clocks agree within 8.0 us."),
        (
            *(30_000_000, 1, -1),
            "Clocks agree within 30.0 ms: waits and transfers between them are uncertain.",
        ),
        (None, 1, -1, "The error of the clocks is unknown"),
        (None, 2, 0, "2 groups of clocks, not comparable with each other"),
    ],
)
def test_groups_of_clocks_come_first_and_their_error_last(
    bound_ns: int | None, groups: int, line: int, words: str
) -> None:
    training = simulate_training(_HEALTHY)
    lanes = training.lanes.with_columns(
        clock=pl.int_range(pl.len(), dtype=pl.UInt32),
        clock_group=(pl.col("lane") % groups).cast(pl.UInt32),
        bound_ns=pl.lit(bound_ns, pl.Int64),
    )
    assert build_verdict(replace(training, lanes=lanes)).lines[line].startswith(words)


def test_there_are_at_most_five_lines_by_descending_gain() -> None:
    found = verdict(
        f"{_HEALTHY} --dp 2 --steps 6 --micro-batches 8 --slow-rank 5=1.2 --host-stall 2,12=30 --stall 14=30"
        " --slow-link 0,2=8 --stage-costs 1,1,1,1.2"
    )
    assert len(found.findings) == MOST_LINES
    gains = [finding.gain_ns for finding in found.findings if finding.kind not in ("bubble", "clocks")]
    assert gains == sorted(gains, reverse=True)


def test_a_training_in_which_nothing_happened_has_no_findings() -> None:
    empty = leave_out_events(simulate_training(_HEALTHY))
    found = build_verdict(empty)
    assert {finding.kind for finding in found.findings} <= {"clocks", "none"}
    assert found.lines[0].startswith("No finding in the capture, ")
    assert build_verdict(replace(empty, lanes=empty.lanes.clear())) == Verdict()


@pytest.mark.slow
def test_the_gain_of_a_rank_that_becomes_slow_is_what_the_healthy_run_lacks(tmp_path: Path) -> None:
    """Truth: the same run without the fault, whose random numbers are the same."""
    options = "--pp 2 --dp 2 --tp 2 --steps 10 --micro-batches 4 --layers 2 --machines 2 --jitter 0.02 --brief-truth"
    spans = []
    for name, fault in (("healthy", ""), ("slow", "--slow-rank 1=1.24 --slow-since 15")):
        simulate([str(tmp_path / name), *options.split(), *fault.split(), "--seed", "7001"])
        steps = pl.read_parquet(tmp_path / name / "truth" / "steps.parquet")
        length = (pl.col("end_ns") - pl.col("start_ns")).median()
        spans.append(steps.group_by("step").agg(length=length).sort("step")["length"])
    true_ns = (spans[1] - spans[0])[5:].mean()
    training = nsys_pp.pipeline(sorted((tmp_path / "slow").rglob("*.sqlite"))).training
    found = build_verdict(training).findings[0]
    assert found.since_step is not None
    assert isinstance(true_ns, float)
    # names alone do not tell the peers of all messages, so the largest gain is open
    of_steps = f"of its steps of {format_time(to_float(spans[1][5:].median()))}"
    words = re.search(
        rf"since step 15, in all kernel families alike \(([\d.]+) ms to ([\d.]+) ms {of_steps}", found.text
    )
    assert words is not None
    assert float(words[1]) == pytest.approx(true_ns / 1e6, rel=0.1)
    assert found.gain_ns == pytest.approx(2.5e5 * (float(words[1]) + float(words[2])), rel=0.01)


def test_what_some_ranks_do_between_steps_is_told_of_these(tmp_path: Path) -> None:
    """The ranks of one stage write checkpoints; the others wait for them inside their steps."""
    options = "--pp 3 --dp 2 --schedule interleaved --steps 6 --micro-batches 3 --layers 1 --names paddle"
    more = "--sync event --lag-steps 1 --checkpoint-every 1 --seed 97000082 --brief-truth"
    simulate([str(tmp_path), *options.split(), *more.split()])
    found = nsys_pp.pipeline(tmp_path).verdict.findings[0]
    assert found.kind == "between"
    assert " on rank 0 and rank 1, of it 0 % compute" in found.text
    assert "in range `save_checkpoint`" in found.text


def test_missing_ranks_have_a_line_and_others_stay_certain() -> None:
    training = simulate_training(f"{_HEALTHY} --dp 2 --slow-rank 5=1.25")
    whole = replace(training, lanes=training.lanes.with_columns(run_size=pl.lit(8, pl.Int64)))
    assert build_verdict(whole) == build_verdict(training)
    last = replace(training, lanes=training.lanes.with_columns(run_size=pl.lit(10, pl.Int64)))
    found = build_verdict(last)
    line = "8 of 10 ranks: ranks 8 and 9 are missing, and waits for them are unknown."
    assert found.lines[-2:] == [line, build_verdict(training).lines[-1]]
    assert found.findings[0].confidence == "certain"
    unknown = last.lanes.with_columns(rank=pl.when(pl.col("lane") > 0).then("rank"))
    assert line not in build_verdict(replace(last, lanes=unknown)).lines


def test_communication_that_may_be_waiting_is_not_certain() -> None:
    """A single rank of a run knows no other side: all of its communication may be waiting."""
    training = simulate_training(f"{_HEALTHY} --dp 2")
    for cause, confidence in (("message_transfer", "certain"), ("message", "likely")):
        renamed = pl.col("cause").cast(pl.String).replace({"message_wait": cause}).cast(CAUSE)
        states = training.lane_states.with_columns(cause=renamed)
        (found,) = find_exposed_communication(Evidence(replace(training, lane_states=states)), [])
        assert found.confidence == confidence
    assert "waits for other ranks included" in found.text


def test_a_layout_that_the_jobs_contradict_comes_first_and_leaves_guesses(tmp_path: Path) -> None:
    folder = run(tmp_path, "--dp 2 --slow-rank 1=1.3", 61)
    right, wrong = (
        nsys_pp.pipeline(folder, layout=layout).verdict.findings for layout in ("pp=2,dp=2", "pp=4")
    )
    assert "stages" not in {finding.kind for finding in right}
    assert (wrong[0].kind, wrong[0].confidence) == ("stages", "likely")
    assert "`--layout` contradicts the jobs" in wrong[0].text
    assert {one.confidence for one in wrong[1:] if one.kind not in ("missing", "losses", "clocks")} == {
        "guess"
    }


def test_a_single_report_that_communicates_has_missing_peers(tmp_path: Path) -> None:
    folder = run(tmp_path, "--dp 2", 62)
    for path in sorted(folder.rglob("*.sqlite"))[1:]:
        path.unlink()
    (found,) = of_kind(folder, "missing")
    assert "waits for them are unknown" in found.text


def test_other_numbers_of_kernels_are_named_instead_of_families() -> None:
    found = describe_families(_with_kernels({"gemm": 130}, count=11), [0], [1, 2], [0])
    assert found == ", with 10 % more kernels"


def test_an_excess_in_whole_graphs_is_a_guess() -> None:
    """Such a graph may hold collectives, in which the fast rank waits for the slow one."""
    training = simulate_training(f"{_HEALTHY} --dp 2 --slow-rank 5=1.25")
    rows = [
        {"lane": lane, "step": step, "kind": "graph", "name": "CUDA graph 7", "is_communication": False}
        | {
            "job_kind": "forward",
            "count": 10,
            "total_ns": 1250 if lane == 5 else 1000,
            "min_ns": 1,
            "max_ns": 1000,
        }
        for lane, step in training.steps.select("lane", "step").iter_rows()
    ]
    in_graphs = replace(training, kernels=pl.DataFrame(rows, schema=training.kernels.schema))
    found = build_verdict(in_graphs).findings[0]
    assert build_verdict(training).findings[0].confidence == "certain"
    assert (found.label, found.confidence) == ("rank 5", "guess")
    assert "in CUDA graphs traced as a whole" in found.text


def _with_kernels(slow: dict[str, int], count: int = 10) -> Evidence:
    """Return evidence with kernels of three lanes of a step, each of 100 ns; those of lane 0 as given."""
    names = {
        "gemm": "ampere_sgemm_128x64_tn",
        "flash_fwd": "flash_fwd_kernel",
        "layer_norm": "layer_norm_kernel",
    }
    rows = [
        {
            "lane": lane,
            "step": 0,
            "kind": "kernel",
            "name": names[name],
            "full_name": None,
            "is_communication": False,
            "job_kind": "forward",
            "count": count if lane == 0 else 10,
            "total_ns": 1000 if lane else 10 * slow.get(name, 100),
            "min_ns": 1,
            "max_ns": 1000,
        }
        for lane in range(3)
        for name in names
    ]
    training = simulate_training(_HEALTHY)
    return Evidence(replace(training, kernels=pl.DataFrame(rows, schema=training.kernels.schema)))


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(16))
def test_batches_are_not_called_long_for_their_requests(tmp_path: Path, seed: int) -> None:
    """Prefills take as long as their requests; simulated serving has no rank that computes longer than another."""
    serving = draw_serving(17_000_000 + seed)
    write_reports(tmp_path, serving, serve(serving, 17_000_000 + seed))
    training = nsys_pp.pipeline([tmp_path]).training
    found = build_verdict(training).findings
    decodes = training.batches.group_by("step").agg((pl.col("kind") == "decode").all()).filter("kind")
    for finding in found:
        assert finding.kind != "straggler" or finding.confidence == "guess", finding
        if finding.kind == "step":
            assert finding.step in decodes["step"].to_list()
            assert "compute" not in finding.text


_IDLE_NS = 20_000_000


_WITH_KINDS = [name for name in ENGINES if name != "triton"]


def find(folder: Path, engine: str, seed: int, kind: str | None) -> list[Finding]:
    serving = draw_serving(seed, engine=engine)
    load = replace(serving.load, idle=None if kind is None else (kind, _IDLE_NS), late_sync=False)
    serving = replace(serving, load=load)
    write_reports(folder, serving, serve(serving, seed))
    return list(nsys_pp.pipeline(folder).verdict.findings)


@pytest.mark.few(3)
@pytest.mark.parametrize("engine", _WITH_KINDS)
def test_a_server_that_waits_for_requests_is_not_blamed(tmp_path: Path, engine: str) -> None:
    found = find(tmp_path, engine, 9_100, "prefill")
    [requests] = [finding for finding in found if finding.kind == "requests"]
    assert (requests.confidence, requests.gain_ns, requests.value_ns is None) == ("guess", 0, False)
    # no finding blames the waits: each is 20 ms, in runs of some ms
    blamed = [finding for finding in found if finding.kind in ("host", "idle", "step", "profiler")]
    assert all(finding.gain_ns < _IDLE_NS / 40 for finding in blamed), [finding.line for finding in blamed]


@pytest.mark.few(2)
@pytest.mark.parametrize("engine", _WITH_KINDS)
def test_a_host_that_waits_while_requests_run_is_blamed(tmp_path: Path, engine: str) -> None:
    found = find(tmp_path, engine, 9_101, "decode")
    assert "requests" not in {finding.kind for finding in found}
    assert found[0].kind in ("idle", "host"), [finding.line for finding in found]
    assert found[0].gain_ns > _IDLE_NS / 40


def test_a_step_that_goes_on_without_work_is_told(tmp_path: Path) -> None:
    folder = run(tmp_path, "--pp 1 --dp 1 --machines 1 --checkpoint-every 1", 3)
    (report,) = folder.rglob("*.sqlite")
    edit(report, "UPDATE NVTX_EVENTS SET end = end + 10000000 WHERE text LIKE 'step%'")
    (found,) = (one for one in nsys_pp.pipeline(folder).verdict.findings if one.kind == "idle")
    assert found.text.startswith("the GPU has no work left 19 % of a step"), found


@pytest.mark.filterwarnings("ignore:.*no operation is shared")
def test_a_lane_without_steps_is_compared_with_none(tmp_path: Path) -> None:
    """A capture is longer than any step: it is no long step, and its bubble is none of the steps."""
    folder = run(tmp_path, "--pp 1 --dp 2 --machines 2", 19_115)
    (report,) = folder.rglob("rank1.sqlite")
    kept = "(correlationId * 7919) % 97 >= 80"  # no part repeats
    edit(report, "DELETE FROM NVTX_EVENTS", f"DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE NOT {kept}")
    result = nsys_pp.pipeline(folder)
    sources = result.training.steps.group_by("lane", "source").len().sort("lane")
    assert sources.rows() == [(0, "range", 6), (1, "capture", 1)]
    texts = {found.kind: found.text for found in result.verdict.findings}
    assert texts.keys() == {"none", "bubble", "coverage", "clocks"}
    (whole,) = folder.rglob("rank0.sqlite")
    alone = nsys_pp.pipeline(whole).verdict.findings
    assert texts["bubble"] == next(found.text for found in alone if found.kind == "bubble")
    assert re.search(r"6 steps hold .*on GPUs without known steps", texts["coverage"])
    assert "no steps found on rank 1; it is not compared with steps of others" in result.training.notes[0]
    assert result.tables(["lanes"])["lanes"]["step_count"].to_list() == [6, 1]
