"""Doubtful pairs of a simulated run: every output shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

import nsys_pp
from fixtures.simulate import main as simulate
from nsys_pp.frames.training import DOUBTFUL_TEXTS
from tests.cli.calls import call
from tests.importer.importer import Importer
from tests.importer.readback import read_flows, slices_by_track

COUNT = 64

pytestmark = pytest.mark.usefixtures("reports_read_once")


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tensor slices in lockstep: only the order of ranks distinguishes them."""
    folder = tmp_path_factory.mktemp("doubtful")
    slices = "--pp 2 --tp 2 --sequence-parallel --jitter 0.001"
    simulate([str(folder), "--no-truth", *f"{slices} --steps 2 --layers 1 --micro-batches 8".split()])
    return folder


@pytest.fixture(scope="module")
def laid_out() -> dict[str, str]:
    return {"layout": "pp=2,tp=2"}


def test_notes_and_links_count_doubtful_pairs(doubtful: Path, laid_out: dict[str, str]) -> None:
    result = nsys_pp.pipeline([doubtful])
    assert result.training.transfers["doubtful"].to_list() == COUNT * ["lane"]
    notes = [note for note in result.training.notes if "paired with doubt" in note]
    assert notes == [f"{COUNT} messages are paired with doubt: {DOUBTFUL_TEXTS['lane']}; specify `--layout`"]
    links = result.tables(["links"])["links"]
    assert links.select("message_count", "doubtful_count", "timed_count").rows() == [(16, 16, 0)] * 4
    assert links.select("median_transfer_ns", "is_slow").rows() == [(None, False)] * 4
    certain = nsys_pp.pipeline([doubtful], **laid_out)  # type: ignore[arg-type]
    assert certain.training.transfers["doubtful"].null_count() == COUNT
    assert certain.tables(["links"])["links"]["doubtful_count"].to_list() == [0] * 4


def test_doubtful_pairs_have_a_column_in_the_terminal_if_there_are_any(
    doubtful: Path, laid_out: dict[str, str]
) -> None:
    options = ("pipeline", doubtful, "--table", "links")
    wide: dict[str, str | None] = {"COLUMNS": "200"}
    assert "Doubtful" in call(*options, env=wide).stdout
    assert "Doubtful" not in call(*options, "--layout", laid_out["layout"], env=wide).stdout


def test_arrows_of_doubtful_pairs_have_the_reason(doubtful: Path, tmp_path: Path, importer: Importer) -> None:
    trace = tmp_path / "run.pftrace"
    assert call("merge", doubtful, "-o", trace).code == 0
    slices = slices_by_track(importer, trace)
    reasons = {row["slice_id"]: row["args"].get("doubtful") for row in slices.iter_rows(named=True)}
    arrows = [
        (reasons[out], reasons[into])
        for out, into in read_flows(importer)
        if reasons[out] is not None or reasons[into] is not None
    ]
    assert arrows == [("lane", "lane")] * COUNT
    chart = tmp_path / "run.html"
    assert call("chart", doubtful, "-o", chart).code == 0
    assert DOUBTFUL_TEXTS["lane"] in chart.read_text()
