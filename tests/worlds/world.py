"""One world: simulated into a temporary folder, analysed without and with `--layout`, and scored."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TypeVar

from fixtures import options, simulate
from nsys_pp.errors import NsysPPError
from tests.worlds.draw import draw_world
from tests.worlds.findings import Findings, analyse
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
        return self.clocks is not None and self.clocks.holds

    @property
    def has_known_clocks(self) -> bool:
        """Whether all bounds are known, below 1 ms, and hold."""
        return self.clocks is not None and self.clocks.holds and max(self.clocks.bounds_ns) < _KNOWN_NS

    @property
    def command(self) -> str:
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
                score.steps = options.build_parser().parse_args([name, *arguments]).steps
                simulate_world(name, score.arguments)
            _score(score, folder, only)
        except NsysPPError as refusal:
            score.refused = str(refusal)
            score.has_jobs = bool(Truth(folder).table("jobs")["is_recorded"].any())
        except (Exception, SystemExit) as failure:
            where = traceback.extract_tb(failure.__traceback__)[-1]
            score.error = f"{type(failure).__name__}: {failure} ({Path(where.filename).name}:{where.lineno})"
    score.seconds = perf_counter() - began
    return score


def simulate_world(name: str, arguments: list[str]) -> None:
    """Simulate a world; with streams of their own for messages where it deadlocks otherwise."""
    try:
        simulate.main([name, *arguments])
    except RuntimeError:
        if "--message-streams" not in arguments:
            raise
        at = arguments.index("--message-streams")
        del arguments[at : at + 2]
        simulate.main([name, *arguments])


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


_Score = TypeVar("_Score")


def map_seeds(score: Callable[[int], _Score], seeds: Sequence[int], processes: int) -> Iterator[_Score]:
    """Score some seeds, in order, in processes of their own if there are several."""
    if processes == 1:
        yield from map(score, seeds)
        return
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(score, seeds)
