"""A run: the inputs of a command, and their roster, clocks and training, each computed once, on first use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Literal

import polars as pl

from nsys_pp.frames.part import REPORT
from nsys_pp.frames.roster import Identity
from nsys_pp.frames.training import Training
from nsys_pp.progress import report_progress
from nsys_pp.roster.identity import name_paths
from nsys_pp.roster.ranks import Layout
from nsys_pp.roster.roster import build_roster, find_inconsistencies
from nsys_pp.run.batch import Batch, Skipped, leave_out_odd
from nsys_pp.run.clocks import Clocks, align_inputs
from nsys_pp.run.inputs import Input, collect_parts, drop_repeated
from nsys_pp.run.options import (
    RunOptions,
    parse_job_options,
    parse_offsets,
    parse_rank_from,
    parse_run_layout,
    parse_steps,
)
from nsys_pp.run.run_training import Captures, NumberedSteps, find_captures, find_training, number_run

JointStage = Literal["clocks", "numbered_steps", "training"]


class Run:
    """All reports of a training.

    Nothing is read before it is used: `inputs` reads the reports, `roster` and `clocks` need the inputs,
    `training` needs all of these.

    Args:
        batch: Batch of the inputs.
        options: Keywords.
        read: Reads the inputs of the run; called once.
        last_stage: Last stage that the command uses: with `keep_going`, inputs that show a defect in it are
            left out.

    Raises:
        OptionError: A value is invalid.
    """

    def __init__(
        self,
        batch: Batch,
        options: RunOptions,
        *,
        read: Callable[[Run], Sequence[Input]],
        last_stage: JointStage = "training",
    ) -> None:
        self._last_stage = last_stage
        self.batch = batch
        self.steps = parse_steps(options.get("steps"))
        self._layout = parse_run_layout(options.get("layout"))
        self._rank_from = parse_rank_from(options.get("rank_from"))
        self._clock = options.get("clock", "collectives")
        self._offsets_ns = parse_offsets(options.get("offsets"))
        self._schedule = options.get("schedule")
        self._infer_jobs = options.get("infer_jobs", False)
        self._read = read
        self.job_options = parse_job_options(options)

    def __repr__(self) -> str:
        """Return the number of inputs, if they are read."""
        return f"Run({len(self.__dict__.get('inputs', self.batch.inputs))} inputs)"

    @cached_property
    def inputs(self) -> list[Input]:
        """Inputs in order, one for each recording; warns of reports with reasons to doubt their events.

        With `keep_going`, those that show a defect in a later stage are left out.

        Raises:
            ReportError: An input cannot be read, or two are the same recording.
        """
        read = self._read(self)
        _warn_of_data(read)
        report_progress(self.batch.progress, "aligning reports", 1)
        inputs = drop_repeated(read, self.batch)
        if not self.batch.keeps_going:
            return inputs
        tried = self

        def work(some: Sequence[Input]) -> None:
            nonlocal tried
            tried = copy(self)
            tried.__dict__["inputs"] = list(some)
            getattr(tried, self._last_stage)

        kept = leave_out_odd(inputs, work, lambda odd, error: self.batch.skip(odd.path, error))
        self.__dict__.update(tried.__dict__)  # its stages are computed already
        return kept

    @cached_property
    def row_counts(self) -> pl.DataFrame:
        """Rows of all reports: read, used, and left out by reason (`RUN_ROW_COUNTS`)."""
        return collect_parts(
            [recorded.part for recorded in self.inputs], [recorded.path for recorded in self.inputs]
        )

    @cached_property
    def roster(self) -> pl.DataFrame:
        """Machines, GPUs, ranks and stages of all reports (`ROSTER`); warns of inconsistencies.

        Raises:
            NsysPPError: A rank exceeds the layout, or `rank_from` matches no file name.
        """
        identities = [recorded.identity for recorded in self.inputs]
        return build_run_roster(identities, layout=self._layout, rank_from=self._rank_from)

    @cached_property
    def clocks(self) -> Clocks:
        """Clocks of all reports, aligned; warns of clocks that cannot be compared with others.

        Raises:
            ClockError: An offset is of an unknown machine, or of years.
        """
        return align_inputs(self.inputs, self.roster, mode=self._clock, offsets_ns=self._offsets_ns)

    @cached_property
    def captures(self) -> Captures:
        """Reports that are captures of one nsys session.

        Their processes have a lane each, with the first report.
        """
        machines = dict(self.roster.select("report", "machine").iter_rows())
        return find_captures(self.inputs, [machines.get(report, "") for report in range(len(self.inputs))])

    @cached_property
    def numbered_steps(self) -> NumberedSteps:
        """Lanes and steps of all reports, without the rest of the training."""
        return number_run(self.inputs, self.roster, self.clocks, self.captures, infer_jobs=self._infer_jobs)

    @cached_property
    def training(self) -> Training:
        """Training of all reports.

        Raises:
            NsysPPError: `steps` contains none of the steps.
        """
        return find_training(
            self.inputs,
            self.clocks,
            self.captures,
            self.numbered_steps,
            schedule=self._schedule,
            steps=self.steps,
            infer_jobs=self._infer_jobs,
        )

    @cached_property
    def capture_windows(self) -> list[tuple[int, int]]:
        """Start and end of each report among the captures of its session, on the trace's clock."""
        sessions = (recorded.identity.session for recorded in self.inputs)
        starts = [
            session.time_shift_ns + int(clock.offset_ns[0])
            for session, clock in zip(sessions, self.clocks.clocks, strict=True)
        ]
        return self.captures.list_windows(starts)

    @cached_property
    def staged_roster(self) -> pl.DataFrame:
        """`roster` with the stages of the training's lanes where it has none."""
        keys = ["process_key", "device_id"]
        first = pl.Series("first", self.captures.first, dtype=pl.UInt32)
        stages = self.training.lanes.select(*keys, "stage", "stage_source", first="report")
        roster = self.roster.with_columns(first=first.gather(self.roster["report"])).join(
            stages, on=["first", *keys], how="left", maintain_order="left", suffix="_of_lane"
        )
        filled = [pl.coalesce(name, f"{name}_of_lane").alias(name) for name in ("stage", "stage_source")]
        return roster.with_columns(filled).select(self.roster.columns)

    @property
    def skipped(self) -> Skipped:
        """Skipped inputs, each with its error."""
        return self.batch.skipped


def _warn_of_data(inputs: Sequence[Input]) -> None:
    """Warn of each reason to doubt the events of some reports."""
    reports: dict[str, list[Path]] = {}
    for recorded in inputs:
        for text in recorded.part.facts.data_warnings:
            reports.setdefault(text, []).append(recorded.path)
    for text, paths in reports.items():
        warnings.warn(text.replace(REPORT, name_paths(paths)), stacklevel=5)


def build_run_roster(
    identities: Sequence[Identity], *, layout: Layout | None, rank_from: str | None
) -> pl.DataFrame:
    """Build the roster of all reports (`ROSTER`); warns of inconsistencies.

    Raises:
        NsysPPError: A rank exceeds the layout, or `rank_from` matches no file name.
    """
    roster = build_roster(identities, layout=layout, rank_from=rank_from)
    for sentence in find_inconsistencies(identities, roster, layout=layout):
        warnings.warn(sentence, stacklevel=4)
    return roster
