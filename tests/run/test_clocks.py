"""Clocks of a run do not depend on the order in which its reports are named: a shell lists rank10 before rank2."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl

import nsys_pp
from fixtures import simulate

# Few operations tie the machines, and many alignments are as likely: bounds are of milliseconds, or of a step.
_RUN = (
    "--seed 18600011 --pp 2 --dp 2 --tp 3 --order tp-pp-dp --steps 2 --micro-batches 15 --layers 1 --schedule zb-h1"
    " --chunks 2 --names megatron --autograd fill --free-running --sharded-optimizer --init-communicators --skew-us 2.91"
    " --stage-costs 0.76,1.3 --jitter 0.000934 --pace-us 26.5 --small-ops 3 --lead-collectives 2 --zero-grad none"
    " --events waits --varied-hosts --machine-ranks 3,9 --capture-steps 10:11 --machines 2 --folders machine"
    " --offsets-ms 2.43 --drift-ppm random:28.1 --utc-error-us 20.9 --schema 3.7.2 --no-truth"
)
_VALUES = ["machine", "group", "source", "offset_ns", "drift_ppm", "bound_ns"]


def align(inputs: list[Path]) -> pl.DataFrame:
    """Align reports or parts; a row per report, in order of their names."""
    result = nsys_pp.align(inputs)
    clocks = result.clocks.explode("reports").sort("reports")
    firsts = result.clocks["reports"].list.first()
    assert firsts.to_list() == firsts.sort().to_list()
    return clocks.select(*_VALUES, name=pl.Series([path.stem for path in result.paths])).sort("name")


def test_clocks_do_not_depend_on_the_order_of_reports(tmp_path: Path) -> None:
    simulate.main([str(tmp_path / "run"), *_RUN.split()])
    reports = sorted((tmp_path / "run").rglob("*.sqlite"))
    expected = align([tmp_path / "run"])
    assert align(reports).equals(expected)
    parts = [part.output for part in nsys_pp.extract(reports, tmp_path / "parts", detail="jobs").parts]
    for seed in range(3):
        random.Random(seed).shuffle(parts)
        assert align(parts).equals(expected)
