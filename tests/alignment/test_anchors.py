"""Anchors against the truth of the simulator."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fixtures import simulate
from fixtures.recording.export import Session, write_report
from nsys_pp.alignment.clocks import align_clocks
from nsys_pp.frames.clock import ANCHORS
from tests.alignment.cluster import to_trace_ns
from tests.projection.test_launches import nccl
from tests.training.expected_training import survey


def true_anchors(folder: Path, name: str) -> pl.DataFrame:
    """List the true shared operations of one report, on the report's clock."""
    truth = {
        table: pl.read_parquet(folder / "truth" / f"{table}.parquet") for table in ("collectives", "messages")
    }
    sides = [
        truth["messages"].select(
            report=f"{side}_report",
            kind=pl.lit(side),
            correlation=f"{side}_correlation_id",
            start=f"{side}_start_ns",
            end=f"{side}_end_ns",
        )
        for side in ("send", "receive")
    ]
    collectives = truth["collectives"].select(
        "report", kind=pl.lit("collective"), correlation="correlation_id", start="start_ns", end="end_ns"
    )
    clock = pl.read_parquet(folder / "truth" / "clocks.parquet").row(
        by_predicate=pl.col("report") == name, named=True
    )
    return (
        pl.concat([collectives, *sides])
        .filter(pl.col("report") == name, pl.col("correlation").is_not_null())
        .with_columns((pl.col("start", "end") - clock["capture_utc_ns"]) * (1 + clock["drift_ppb"] / 1e9))
        .sort(pl.col("start").round(), "end")
    )


RUNS = {
    "as committed": "--pp 3 --dp 2 --machines 3 --skew-us 5",
    "tensor parallel": "--pp 2 --tp 2 --dp 2 --machines 2 --skew-us 5 --sequence-parallel --sharded-optimizer",
    "NCCL's payload": "--pp 2 --dp 2 --machines 2 --schema 3.25.0 --nccl-payload --init-communicators",
    "windows": "--pp 2 --dp 2 --machines 2 --window-ms 20 --drift-ppm random:100",
    "zero bubble": "--pp 4 --machines 2 --schedule zb-h1 --buffered-bytes 100000000",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_anchors_are_what_ranks_did_together(tmp_path: Path, options: str) -> None:
    common = "--steps 2 --layers 1 --micro-batches 4 --brief-truth"
    simulate.main([str(tmp_path), *options.split(), *common.split()])
    for path in sorted(tmp_path.glob("*/*.sqlite")):
        anchors = survey(path).frames["anchors"]
        expected = true_anchors(tmp_path, path.relative_to(tmp_path).as_posix())
        assert anchors.schema == ANCHORS
        assert len(anchors) == len(expected) > 8
        assert anchors["start_ns"].is_sorted()
        anchors = anchors.sort("start_ns", "end_ns")
        assert ((anchors["start_ns"] - expected["start"]).abs() <= 2).all()
        assert ((anchors["end_ns"] - expected["end"]).abs() <= 2).all()
        assert anchors["kind"].cast(pl.String).to_list() == expected["kind"].to_list()


def test_a_payload_tells_communicators_and_peers(tmp_path: Path) -> None:
    options = (
        "--pp 2 --dp 2 --machines 2 --steps 2 --layers 1 --schema 3.25.0 --nccl-payload --init-communicators"
    )
    simulate.main([str(tmp_path), *options.split(), "--brief-truth"])
    truth = pl.read_parquet(tmp_path / "truth" / "collectives.parquet")
    for path in sorted(tmp_path.glob("*/*.sqlite")):
        anchors = survey(path).frames["anchors"]
        of_report = truth.filter(pl.col("report") == path.relative_to(tmp_path).as_posix()).sort("start_ns")
        collectives = anchors.filter(pl.col("kind") == "collective")
        assert collectives["communicator"].to_list() == of_report["communicator"].to_list()
        assert (set(anchors["channel"]), anchors["rank"].null_count()) == ({"communicator"}, 0)
        messages = anchors.filter(pl.col("kind") != "collective")
        assert (messages["peer"] == 1 - messages["rank"]).all()


def test_a_group_is_what_was_asked_for_since_the_last_launch(tmp_path: Path) -> None:
    """PyTorch's batched send and receive: the kernel starts when the group ends."""
    ranges = [
        nccl(0, 5, "ncclGroupStart"),
        nccl(10, 15, "ncclSend"),
        nccl(20, 25, "ncclRecv"),
        nccl(30, 60, "ncclGroupEnd"),
        nccl(100, 105, "ncclGroupStart"),
        nccl(110, 115, "ncclSend"),
        nccl(130, 160, "ncclGroupEnd"),
        nccl(200, 240, "ncclRecv"),
    ]
    calls = [{"start": at, "end": at + 10, "correlation": at} for at in (40, 140, 210)]
    kernels = [
        {"start": at + 20, "end": at + 50, "correlation": at, "name": "ncclDevKernel_SendRecv"}
        for at in (40, 140, 210)
    ]
    path = write_report(tmp_path / "r.sqlite", ranges=ranges, api_calls=calls, kernels=kernels)
    assert survey(path).frames["anchors"]["kind"].to_list() == ["send_receive", "send", "receive"]


def test_only_what_all_ranks_end_together_ties_clocks(tmp_path: Path) -> None:
    names = {
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL": "collective",
        "ncclKernel_AllGather_RING_LL_Sum_int8_t": "collective",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL": "collective",
        "ncclDevKernel_Broadcast_RING_LL": None,
        "ncclDevKernel_Reduce_Sum_f32_RING_LL": None,
        "ncclDevKernel_SendRecv": "send_receive",
        "gemm": None,
    }
    kernels = [{"start": 10 * i, "end": 10 * i + 5, "name": name} for i, name in enumerate(names)]
    anchors = survey(write_report(tmp_path / "r.sqlite", kernels=kernels)).frames["anchors"]
    assert dict(anchors.select(pl.col("name", "kind").cast(pl.String)).rows()) == {
        name: kind for name, kind in names.items() if kind
    }


def test_barriers_of_mpi_tie_clocks(tmp_path: Path) -> None:
    options = "--pp 2 --dp 2 --machines 2 --steps 3 --layers 1 --mpi --launcher ompi --brief-truth"
    simulate.main([str(tmp_path), *options.split()])
    for path in sorted(tmp_path.glob("*/*.sqlite")):
        anchors = survey(path).frames["anchors"].filter(pl.col("kind") == "mpi")
        assert (anchors["name"].cast(pl.String).unique().to_list(), len(anchors)) == (["MPI_Barrier of 4"], 3)


def test_a_report_without_communication_has_none(tmp_path: Path) -> None:
    path = write_report(tmp_path / "r.sqlite", session=Session())
    assert survey(path).frames["anchors"].equals(ANCHORS.to_frame())


def test_the_collective_that_two_hosts_share_ends_at_one_time(shared_reports: list[Path]) -> None:
    pair = [path for path in shared_reports if path.name.startswith("argonne")]
    if len(pair) != 2:
        pytest.skip("the two reports of two hosts are not there")
    parts = [survey(path) for path in pair]
    anchors = [part.frames["anchors"] for part in parts]
    sessions = [part.facts.session for part in parts]
    ends = [int(frame["end_ns"][0]) for frame in anchors]
    as_recorded = [end + (one.utc_epoch_ns or 0) for end, one in zip(ends, sessions, strict=True)]
    assert abs(as_recorded[0] - as_recorded[1]) == 112_972
    alignment = align_clocks(sessions, anchors)
    assert alignment.clocks["collective_count"].to_list() == [1, 1]
    assert (
        abs(
            to_trace_ns(alignment.report_clocks[0], ends[0])
            - to_trace_ns(alignment.report_clocks[1], ends[1])
        )
        <= 1
    )
    assert alignment.clocks["bound_ns"].min() >= 100_000  # type: ignore[operator]  # one operation is weak evidence
