"""Runs on a real Dask cluster: every output is what it is without one, to the byte."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

import nsys_pp
from nsys_pp.errors import ReportError
from nsys_pp.frames.part import PartOptions
from nsys_pp.run.inputs import Input, survey_input
from tests.cli.calls import run
from tests.executors.cluster import Cluster

pytest.importorskip("distributed")
PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def merge_both(cluster: Cluster, folder: Path, inputs: Any, **options: Any) -> list[nsys_pp.MergeResult]:
    """Merge here and on the cluster; the outputs are equal, and nothing else is left."""
    results = []
    for name, scheduler in (("here", None), ("there", cluster.file)):
        (folder / name).mkdir()
        output = folder / name / "run.pftrace"
        results.append(nsys_pp.merge(inputs, output, dask_scheduler=scheduler, **options))
    here, there = (files_of(folder / name) for name in ("here", "there"))
    assert here.keys() == there.keys()
    assert here == there
    return results


@pytest.mark.parametrize(
    "options",
    [
        {"max_events": 1000},
        {"split": "machine"},
        {"split": "rank", "detail": "cpu"},
        {"split": "step"},
        {"split": "machine", "detail": "jobs"},
        {"start_ns": 1_000_000, "end_ns": 500_000_000},
    ],
    ids=str,
)
def test_traces_are_the_same(cluster: Cluster, tmp_path: Path, options: dict[str, Any]) -> None:
    here, there = merge_both(cluster, tmp_path, PIPELINE, **options)
    assert [file.title for file in here.files] == [file.title for file in there.files]
    assert [file.size_bytes for file in here.files] == [file.size_bytes for file in there.files]
    assert (here.slices, here.events, here.gpus) == (there.slices, there.events, there.gpus)
    assert there.files or "start_ns" in options


def test_traces_of_parts_are_the_same(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    nsys_pp.extract(PIPELINE, tmp_path / "parts")
    for split in ("none", "machine"):
        (tmp_path / split).mkdir()
        merge_both(cluster, tmp_path / split, tmp_path / "parts", split=split)


@pytest.mark.filterwarnings("ignore:of 4 ranks, rank 0 has no report")
def test_broken_reports_are_skipped(cluster: Cluster, tmp_path: Path) -> None:
    shutil.copytree(PIPELINE, tmp_path / "reports", ignore=shutil.ignore_patterns("truth"))
    broken = tmp_path / "reports" / "node2" / "rank0.sqlite"
    broken.write_bytes(broken.read_bytes()[:50_000])
    results = merge_both(cluster, tmp_path, tmp_path / "reports", split="machine", keep_going=True)
    for result in results:
        assert [path for path, _ in result.skipped] == [broken]
        assert "is truncated" in result.skipped[0][1].message
        assert len(result.files) == 2


def test_a_part_that_is_damaged_where_it_is_written_is_an_error(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    nsys_pp.extract(PIPELINE, tmp_path / "parts")
    damaged = tmp_path / "parts" / "rank2.nspart"
    data = bytearray(damaged.read_bytes())
    data[1000] ^= 0xFF  # in its blocks, which come first
    damaged.write_bytes(data)
    errors = []
    for name, scheduler in (("here", None), ("there", cluster.file)):
        (tmp_path / name).mkdir()
        output = tmp_path / name / "run.pftrace"
        with pytest.raises(ReportError) as raised:
            nsys_pp.merge(tmp_path / "parts", output, split="machine", dask_scheduler=scheduler)
        errors.append((raised.value.message, raised.value.hint))
        assert not list((tmp_path / name).iterdir())
    assert errors[0] == errors[1]
    assert f"`{damaged}` is damaged" in errors[0][0]


def test_limits_of_reports_hold_for_them_alone(cluster: Cluster, tmp_path: Path) -> None:
    """With limits, each call has a process of its own below the worker."""
    merge_both(cluster, tmp_path, PIPELINE, split="machine", report_timeout_s=600.0, memory_bytes=1 << 33)


def test_tables_are_the_same(cluster: Cluster) -> None:
    line = ("pipeline", PIPELINE, "--table", "steps,host,network,metrics", "--format", "json")
    here, there = run(*line), run(*line, "--dask-scheduler", cluster.file)
    assert here.code == there.code == 0, there.stderr
    assert here.stdout == there.stdout
    assert len(here.stdout) > 1000


def test_an_input_is_compressed_where_it_is_sent() -> None:
    path = PIPELINE / "node2" / "rank0.sqlite"
    own = survey_input(path, PartOptions(), nsys=None, with_training=True, with_density=True)
    data = pickle.dumps(own)
    assert len(data) < sum(len(pickle.dumps(frame)) for frame in own.part.frames.values()) / 2
    received: Input = pickle.loads(pickle.dumps(pickle.loads(data)))  # and sent on
    assert {*received.part.frames} == {*own.part.frames}
    assert len(received.part.frames) == len(own.part.frames)
    for name, frame in own.part.frames.items():
        assert_frame_equal(received.part.frames[name], frame)
    assert "none" not in received.part.frames
    assert received.part.encoded == own.part.encoded
    assert received.part.facts == own.part.facts
    assert (received.path, received.identity.path) == (own.path, own.identity.path)
    assert received.identity.fingerprint == own.identity.fingerprint
    assert_frame_equal(received.identity.devices, own.identity.devices)
