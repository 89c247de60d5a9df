"""One world: simulated into a temporary folder, analysed without and with `--layout`, and scored."""

from __future__ import annotations

import contextlib
import io
import traceback
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import polars as pl

import nsys_pp
from fixtures import options, simulate
from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.training import Training
from nsys_pp.run.batch import Batch
from nsys_pp.run.run import Run
from tests.worlds.draw import draw_world
from tests.worlds.scores import (
    CauseScore,
    ClockScore,
    JobScore,
    PairScore,
    RangeScore,
    StragglerScore,
    Truth,
    score_causes,
    score_clocks,
    score_jobs,
    score_pairs,
    score_ranges,
    score_stragglers,
)

_PID_SHIFT, _PID_MASK = 24, 0xFF_FFFF


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
        names = dict(enumerate(self.reports))
        return self.training.lanes.with_columns(
            pl.col("report").replace_strict(names, return_dtype=pl.String),
            pid=pl.Series([_pid(key) for key in self.training.lanes["process_key"]], dtype=pl.Int64),
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
        batch = Batch([recorded.path for recorded in inputs], options)
        run = Run(batch, options, read=lambda _: inputs)
        return Findings(folder, PipelineResult(training=run.training, run=run, skipped=run.skipped))


def _pid(process_key: int) -> int:
    return process_key >> _PID_SHIFT & _PID_MASK


QUESTIONS = ("clocks", "pairs", "causes", "jobs", "stragglers", "ranges")


_KNOWN_NS = 1_000_000


PLAIN, LAYOUT = "plain", "layout"


@dataclass(slots=True, kw_only=True)
class WorldScore:
    """Scores of one world; None and absent keys: not asked for, or refused."""

    seed: int
    arguments: list[str]
    steps: int = 0
    seconds: float = 0.0
    error: str = ""  # the simulator or the library failed
    refused: str = ""  # the library refused the reports, in a sentence
    has_jobs: bool = True  # some job is recorded; else a refusal is right
    clocks: ClockScore | None = None
    pairs: dict[str, PairScore] = field(default_factory=dict)  # by PLAIN and LAYOUT
    jobs: dict[str, JobScore] = field(default_factory=dict)
    causes: CauseScore | None = None
    stragglers: StragglerScore | None = None
    ranges: RangeScore | None = None

    @property
    def has_right_clocks(self) -> bool:
        """Whether all bounds hold."""
        return self.clocks is not None and self.clocks.holds

    @property
    def has_known_clocks(self) -> bool:
        """Whether all bounds are known, below 1 ms, and hold."""
        return self.clocks is not None and self.clocks.holds and max(self.clocks.bounds_ns) < _KNOWN_NS

    @property
    def command(self) -> str:
        """The command line of the simulator."""
        return f"python -m fixtures.simulate OUT {' '.join(self.arguments)}"


def run_seed(seed: int, only: Collection[str] = QUESTIONS) -> WorldScore:
    """Run the world of a seed. Processes find this function by its module, which they cannot in `__main__`."""
    return run_world(seed, draw_world(seed), only)


def run_world(seed: int, arguments: Sequence[str], only: Collection[str] = QUESTIONS) -> WorldScore:
    """Simulate a world, analyse it and score it; failures are part of the score."""
    score = WorldScore(seed=seed, arguments=list(arguments))
    began = perf_counter()
    with TemporaryDirectory(prefix="world-") as name:
        folder = Path(name)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                chosen = options.build_parser().parse_args([name, *arguments])
                score.steps = chosen.steps
                _simulate(name, score)
            _score(score, folder, only)
        except NsysPPError as refusal:
            score.refused = str(refusal)
            score.has_jobs = bool(Truth(folder).table("jobs")["is_recorded"].any())
        except (Exception, SystemExit) as failure:
            where = traceback.extract_tb(failure.__traceback__)[-1]
            score.error = f"{type(failure).__name__}: {failure} ({Path(where.filename).name}:{where.lineno})"
    score.seconds = perf_counter() - began
    return score


def _simulate(name: str, score: WorldScore) -> None:
    """Simulate a world; with streams of their own for messages where it deadlocks otherwise."""
    try:
        simulate.main([name, *score.arguments])
    except RuntimeError:
        if "--message-streams" not in score.arguments:
            raise
        at = score.arguments.index("--message-streams")
        del score.arguments[at : at + 2]
        simulate.main([name, *score.arguments])


def _score(score: WorldScore, folder: Path, only: Collection[str]) -> None:
    chosen = options.build_parser().parse_args([str(folder), *score.arguments])
    truth, findings = Truth(folder), analyse(folder)
    score.clocks = score_clocks(findings, truth)
    if "causes" in only:
        score.causes = score_causes(findings, truth, chosen.stages * chosen.replicas * chosen.tensor)
    if "stragglers" in only:
        score.stragglers = score_stragglers(findings, truth, chosen)
    if "ranges" in only:
        score.ranges = score_ranges(truth)
    ways: dict[str, Findings] = {PLAIN: findings}
    if {"pairs", "jobs"} & set(only):
        sizes = {"pp": chosen.stages, "dp": chosen.replicas, "tp": chosen.tensor, "order": chosen.order}
        layout = ",".join(f"{axis}={size}" for axis, size in sizes.items())
        ways[LAYOUT] = analyse(folder, layout=layout, reuse=findings)
    for way, found in ways.items():
        if "pairs" in only:
            score.pairs[way] = score_pairs(found, truth)
        if "jobs" in only:
            score.jobs[way] = score_jobs(found, truth, chosen)
