"""Messages that only `--layout` tells apart: unpaired without it, and all paired with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import nsys_pp
from fixtures.simulate import main as simulate

pytestmark = pytest.mark.usefixtures("reports_read_once")


def test_slices_in_lockstep_are_paired_with_a_layout_only(tmp_path: Path) -> None:
    slices = "--pp 2 --tp 2 --sequence-parallel --jitter 0.001"
    simulate([str(tmp_path), "--no-truth", *f"{slices} --steps 2 --layers 1 --micro-batches 8".split()])
    unknown = nsys_pp.pipeline([tmp_path]).training
    assert unknown.transfers.is_empty()
    assert any("128 sends and receives" in note and "--layout" in note for note in unknown.notes)
    known = nsys_pp.pipeline([tmp_path], layout="pp=2,tp=2")
    assert len(known.training.transfers) == 64
    assert known.training.transfers["doubtful"].null_count() == 64
    assert known.tables(["links"])["links"]["message_count"].to_list() == [16] * 4
