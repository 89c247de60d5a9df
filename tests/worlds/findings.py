"""Results of the library on a world, on the clocks of the reports: comparable with the truth whatever the alignment."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

import nsys_pp
from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.ids import pid
from nsys_pp.frames.training import Training
from nsys_pp.run.inputs import Batch
from nsys_pp.run.run import Run


@dataclass(frozen=True)
class Findings:
    """The training of a world, as `nsys-pp pipeline` finds it."""

    folder: Path
    result: PipelineResult

    @property
    def training(self) -> Training:
        """Frames of the training, on the trace's clock."""
        return self.result.training

    @cached_property
    def reports(self) -> list[str]:
        """The name of each report, as in the truth."""
        return [recorded.path.relative_to(self.folder).as_posix() for recorded in self.result.run.inputs]

    @property
    def clocks(self) -> Mapping[str, Clock]:
        """The clock of each report, onto the trace's clock."""
        return dict(zip(self.reports, self.result.run.clocks.clocks, strict=True))

    @cached_property
    def clock_table(self) -> pl.DataFrame:
        """`CLOCKS`, one row per report: `report` is its name."""
        names = dict(enumerate(self.reports))
        table = self.result.run.clocks.table.rename({"reports": "report"}).explode("report")
        return table.with_columns(pl.col("report").replace_strict(names, return_dtype=pl.String))

    @cached_property
    def lanes(self) -> pl.DataFrame:
        """`LANES`; `report` is its name, and there is a column `pid`."""
        return self.training.lanes.with_columns(
            pl.col("report").replace_strict(dict(enumerate(self.reports)), return_dtype=pl.String),
            pid=pid(pl.col("process_key")),
        )

    def on_reports(self, frame: pl.DataFrame, lane: str, *columns: str, prefix: str = "") -> pl.DataFrame:
        """Replace times of the trace by times of the report of a lane; add `report` and `pid` of the lane."""
        lanes = self.lanes.select(pl.col("lane").alias(lane), report="report", pid="pid")
        joined = frame.join(lanes, on=lane, how="left", maintain_order="left")
        reports = joined["report"].to_numpy()
        moved = {name: joined[name].to_numpy().copy() for name in columns}
        for name, clock in self.clocks.items():
            rows = reports == name
            for times in moved.values():
                times[rows] = clock.to_report_times(times[rows])
        named = joined.with_columns(pl.Series(name, times) for name, times in moved.items())
        return named.rename({"report": f"{prefix}report", "pid": f"{prefix}pid"})


def analyse(folder: Path, *, layout: str | None = None, reuse: Findings | None = None) -> Findings:
    """Analyse the reports of a world.

    Args:
        folder: Folder of the reports.
        layout: As `--layout`.
        reuse: Findings of the same folder: the reports are not read again.

    Raises:
        NsysPPError: The library refuses the reports.
    """
    options: nsys_pp.RunOptions = {} if layout is None else {"layout": layout}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if reuse is None:
            return Findings(folder, nsys_pp.pipeline([folder], **options))
        inputs = reuse.result.run.inputs
        run = Run(Batch([recorded.path for recorded in inputs], options), options, read=lambda _: inputs)
        return Findings(folder, PipelineResult(training=run.training, run=run, skipped=run.skipped))
