"""Runs that pictures are drawn from: fixtures, and simulated runs with causes that these lack."""

from __future__ import annotations

import sqlite3
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

import nsys_pp
from fixtures.recording.overheads import turn_calls_into_overhead
from fixtures.simulate import main as simulate
from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.read import read_report

_SHAPE = ["--layers", "1", "--micro-batches", "4", "--brief-truth", "--seed", "2"]
RUNS = {
    # a rank without a report: peers of messages, and members of collectives, are not known
    "missing": [*_SHAPE, "--pp", "4", "--dp", "2", "--steps", "3", "--missing-ranks", "3"],
    # copies before each job, parameters gathered at the end of a step, late data in one step
    "varied": [
        *(*_SHAPE, "--pp", "2", "--dp", "2", "--steps", "4", "--stall", "11=8", "--offload"),
        *("--sharded-optimizer", "--no-norm", "--stage-costs", "1,1.4"),
    ],
    # `lose_messages` removes events from it
    "lost": [*_SHAPE, "--pp", "2", "--steps", "3", "--no-norm", "--free-running"],
    # a stall of a host, which becomes a flush of nsys
    "held": [*_SHAPE, "--pp", "2", "--steps", "3", "--no-norm", "--host", "--host-stall", "1,11=3"],
}
ROOT = Path(__file__).parent.parent.parent


def make_run(name: str, folder: Path) -> Path:
    """Return the folder of a run; runs that are no fixture are simulated."""
    if name not in RUNS:
        return ROOT / "fixtures" / name
    run = folder / name
    if not run.exists():
        simulate([*RUNS[name], str(run)])
        if name == "lost":
            _lose_messages(next(run.rglob("rank1.sqlite")))
        if name == "held":
            turn_calls_into_overhead(next(run.rglob("rank1.sqlite")), least_ns=1_000_000)
    return run


def _lose_messages(report: Path) -> None:
    """Remove the kernels of messages from a report, as where nsys lost their events."""
    with sqlite3.connect(report) as database:
        database.execute(
            "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE shortName IN"
            " (SELECT id FROM StringIds WHERE value LIKE '%SendRecv%')"
        )
    database.close()


@cache
def _analyse(path: Path) -> nsys_pp.PipelineResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notes on missing ranks
        return nsys_pp.pipeline(path)


@dataclass(frozen=True)
class Run:
    """A run with its analysis, and the events of single reports on the common clock."""

    path: Path

    @property
    def result(self) -> nsys_pp.PipelineResult:
        """The analysis of the run."""
        return _analyse(self.path)

    @cache  # noqa: B019 - a run is a path, and there are five
    def read(self, lane: int) -> Report:
        """Read the report of a lane."""
        paths = [recorded.path for recorded in self.result.run.inputs]
        report = self.result.training.lanes.filter(lane=lane)["report"].item()
        return build_report(read_report(paths[report]))

    def align(self, lane: int, times_ns: np.ndarray) -> np.ndarray:
        """Move times of a lane's report to the common clock, by the jobs, whose times are known on both."""
        jobs = self.result.training.jobs.filter(pl.col("lane") == lane, pl.col("host_start_ns").is_not_null())
        ranges = self.read(lane).ranges.select("range_id", report_ns="start_ns")
        pairs = jobs.join(ranges, on="range_id").sort("report_ns")
        offsets = (pairs["host_start_ns"] - pairs["report_ns"]).to_numpy().astype(np.float64)
        moved = np.interp(
            times_ns.astype(np.float64), pairs["report_ns"].to_numpy().astype(np.float64), offsets
        )
        aligned: np.ndarray = times_ns + np.rint(moved).astype(np.int64)
        return aligned

    @cache  # noqa: B019
    def operations(self, lane: int) -> pl.DataFrame:
        """Return the operations of a lane on the common clock, with the start of their launch."""
        report = self.read(lane)
        calls = report.api_calls.select("process_key", "correlation_id", launch_ns="start_ns")
        ops = report.gpu_ops.join(
            calls, on=["process_key", "correlation_id"], how="left", maintain_order="left"
        )
        return ops.with_columns(
            pl.Series(name, self.align(lane, ops[name].fill_null(0).to_numpy()))
            for name in ("start_ns", "end_ns", "launch_ns")
        )
