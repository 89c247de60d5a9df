"""What point-to-point kernels send and receive, against what the simulator knows of them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fixtures import simulate
from fixtures.recording.export import write_report
from nsys_pp.frames.report import REQUESTS, Report
from nsys_pp.frames.training import JOBS, MESSAGES
from nsys_pp.model import build_report
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import read_report
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.messages import find_messages
from tests.training.simulated_reports import (
    SimulatedReport,
    build_message_jobs,
    read_simulated_report,
    read_truth,
)

SMALL = "--steps 2 --layers 1 --micro-batches 4 --brief-truth"


def messages_of(known: SimulatedReport, *, with_requests: bool = True) -> pl.DataFrame:
    report = known.report
    return find_messages(
        LaunchedOps(gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=known.launches),
        requests=known.requests if with_requests else REQUESTS.to_frame(),
        jobs=known.jobs,
    )


def launched_ops_of(report: Report) -> LaunchedOps:
    launches = match_launches(report.api_calls, report.gpu_ops)
    return LaunchedOps(gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=launches)


def true_messages(truth: dict[str, pl.DataFrame], report: str) -> pl.DataFrame:
    zero_ns = truth["clocks"].filter(report=report)["capture_utc_ns"].item()
    sides = [
        truth["messages"].select(
            report=f"{side}_report",
            verb=pl.lit(side),
            direction="kind",
            micro_batch="micro_batch",
            start_ns=pl.col(f"{side}_start_ns") - zero_ns,
            end_ns=pl.col(f"{side}_end_ns") - zero_ns,
        )
        for side in ("send", "receive")
    ]
    return pl.concat(sides).filter(report=report)


ORDER = ["start_ns", "end_ns", "verb"]
TOLD = ["start_ns", "end_ns", "verb", "direction", "micro_batch"]


@pytest.mark.parametrize("with_requests", [True, False], ids=["NCCL's ranges", "names"])
@pytest.mark.parametrize("names", ["plain", "torch", "zero-bubble"])
def test_every_kernel_tells_its_verb_direction_and_micro_batch(
    tmp_path: Path, names: str, with_requests: bool
) -> None:
    simulate.main([str(tmp_path), *SMALL.split(), "--pp", "3", "--machines", "3", "--names", names])
    truth = read_truth(tmp_path)
    for report in truth["clocks"]["report"]:
        found = messages_of(read_simulated_report(tmp_path, report, truth), with_requests=with_requests)
        expected = true_messages(truth, report).sort(ORDER)
        assert found.schema == MESSAGES
        assert found["start_ns"].is_sorted()
        assert found["source"].cast(pl.String).unique().to_list() == ["NCCL" if with_requests else "name"]
        text = found.with_columns(pl.col("verb", "direction").cast(pl.String)).sort(ORDER)
        assert text.select(TOLD).equals(expected.select(TOLD))


@pytest.mark.parametrize("with_requests", [True, False], ids=["NCCL's ranges", "names"])
def test_a_grouped_kernel_sends_and_receives(tmp_path: Path, with_requests: bool) -> None:
    simulate.main([str(tmp_path), *SMALL.split(), "--pp", "3", "--machines", "3", "--grouped-messages"])
    truth = read_truth(tmp_path)
    for report in truth["clocks"]["report"]:
        found = messages_of(read_simulated_report(tmp_path, report, truth), with_requests=with_requests)
        expected = true_messages(truth, report).sort(ORDER)
        text = found.with_columns(pl.col("verb").cast(pl.String)).sort(ORDER)
        assert text.select(ORDER).equals(expected.select(ORDER))
        both = found.filter(pl.len().over("op_id") == 2)
        assert len(both) > 0
        assert both["micro_batch"].null_count() == len(both)


def test_payloads_tell_peers_and_bytes(tmp_path: Path) -> None:
    payload = "--pp 3 --machines 3 --schema 3.25.0 --nccl-payload --init-communicators"
    simulate.main([str(tmp_path), *SMALL.split(), *payload.split()])
    truth = read_truth(tmp_path)
    for report in truth["clocks"]["report"]:
        found = messages_of(read_simulated_report(tmp_path, report, truth))
        assert (
            found.select("communicator", "rank", "peer", "size_bytes").null_count().sum_horizontal().item()
            == 0
        )
        assert (found["peer"] - found["rank"]).abs().max() == 1


def test_the_innermost_message_around_a_launch_names_it(tmp_path: Path) -> None:
    ranges = [
        {"start": 0, "end": 1000, "name": "send_forward_7"},
        {"start": 10, "end": 100, "name": "layer"},
        {"start": 20, "end": 30, "name": "recv_backward_3"},
        {"start": 200, "end": 300, "name": "recv_backward_4"},
        {"start": 0, "end": 1000, "name": "recv_backward_9", "tid": 1001},
    ]
    at = {40: ("send", 7), 25: ("receive", 3), 210: ("receive", 4), 400: ("send", 7), 1500: (None, None)}
    calls = [{"start": start, "end": start + 2, "correlation": start} for start in at]
    kernels = [
        {"start": 2000 + start, "end": 2001 + start, "correlation": start, "name": "ncclDevKernel_SendRecv"}
        for start in at
    ]
    path = write_report(tmp_path / "r.sqlite", ranges=ranges, api_calls=calls, kernels=kernels)
    report = build_report(read_report(path, need=frozenset({"ranges", "ops"})))
    jobs = build_message_jobs(report.ranges)
    keys = dict(zip(report.ranges["name"].cast(pl.String), report.ranges["range_id"], strict=True))
    jobs = jobs.with_columns(
        outer_id=pl.when(pl.col("name").cast(pl.String).is_in(["recv_backward_3", "recv_backward_4"])).then(
            keys["send_forward_7"]
        )
    )
    found = find_messages(launched_ops_of(report), requests=REQUESTS.to_frame(), jobs=jobs)
    told = zip(found["start_ns"] - 2000, found["verb"].cast(pl.String), found["micro_batch"], strict=True)
    assert {start: (verb, micro_batch) for start, verb, micro_batch in told} == at


def test_a_kernel_that_nothing_names_has_one_row_without_a_verb(tmp_path: Path) -> None:
    kernels = [{"start": 0, "end": 5, "name": "ncclKernel_SendRecv"}, {"start": 9, "end": 11, "name": "gemm"}]
    path = write_report(tmp_path / "r.sqlite", kernels=kernels)
    report = build_report(read_report(path, need=frozenset({"ranges", "ops"})))
    found = find_messages(launched_ops_of(report), requests=REQUESTS.to_frame(), jobs=JOBS.to_frame())
    assert found.select("start_ns", "verb", "source").rows() == [(0, None, None)]
