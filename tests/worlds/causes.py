"""Time per cause of bubble, and steps, against the truth."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from tests.training.unsplit import split_either
from tests.worlds.findings import Findings
from tests.worlds.jobs import list_found_jobs, list_true_jobs, match_jobs
from tests.worlds.truth import Truth

_NAMES = {"optimizer": "compute", "pause": "compute"}
_KEY = ["report", "pid", "true_step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScore:
    """One step of one lane, complete in truth and in the findings."""

    rank: int
    step: int
    is_whole: bool  # all lanes of the run recorded it
    position: str  # "first", "middle", "last" or "only" of the steps that are complete in truth
    points: dict[str, float]  # cause -> found minus true time, in percent of the step; after `split_either`
    bubble_points: float  # found minus true bubble, likewise
    length_points: float  # found minus true length
    true_ns: dict[str, int]  # cause -> true time
    found_ns: dict[str, int]

    @property
    def worst(self) -> tuple[float, str]:
        """The largest time in points that a cause has without reason, and the cause; "unknown" has none."""
        return max((value, name) for name, value in self.points.items() if name != "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseScore:
    """Steps of all lanes of a world."""

    steps: list[StepScore] = field(default_factory=list)
    lacking: int = 0  # complete in truth, and not found
    called_partial: int = 0  # complete in truth, and found as partial
    called_complete: int = 0  # cut in truth, and found as complete
    misnumbered: int = 0  # steps of lanes whose number is not that of the same true step on other lanes


def score_causes(findings: Findings, truth: Truth, ranks: int) -> CauseScore:
    """Compare the sums of causes, step by step, for steps that are complete in both; `ranks`: of the run."""
    processes = truth.table("processes").select("report", "rank", "pid")
    true_steps = truth.table("steps").join(processes, on=["report", "rank"]).rename({"step": "true_step"})
    found_steps = _match_steps(findings, truth)
    joined = true_steps.join(found_steps, on=_KEY, how="left")
    is_true, is_found = pl.col("is_recorded"), pl.col("is_partial").not_()
    both = joined.filter(is_true & is_found.fill_null(False))
    return CauseScore(
        steps=_compare(
            both.with_columns(is_whole=pl.col("true_step").is_in(_whole_steps(true_steps, ranks))),
            _sum_found(findings),
            _sum_true(truth, processes),
            _positions(true_steps),
        ),
        lacking=len(joined.filter(is_true & pl.col("is_partial").is_null())),
        called_partial=len(joined.filter(is_true & pl.col("is_partial").fill_null(False))),
        called_complete=len(joined.filter(~is_true & is_found.fill_null(False))),
        misnumbered=_count_misnumbered(found_steps),
    )


def _match_steps(findings: Findings, truth: Truth) -> pl.DataFrame:
    """Match the steps of each lane with true ones, by most of their jobs: lane, step, `_KEY`, is_partial, start_ns, end_ns."""
    matched = match_jobs(list_found_jobs(findings), list_true_jobs(truth)).drop_nulls(["true_step", "step"])
    counts = matched.group_by("lane", "step", *_KEY).len().sort("len", "true_step", descending=[True, False])
    best = counts.unique(["lane", "step"], keep="first", maintain_order=True)
    best = best.unique(_KEY, keep="first", maintain_order=True)
    return best.join(
        findings.training.steps.select("lane", "step", "start_ns", "end_ns", "is_partial"),
        on=["lane", "step"],
    ).select("lane", "step", *_KEY, "is_partial", found_length_ns=pl.col("end_ns") - pl.col("start_ns"))


def _count_misnumbered(steps: pl.DataFrame) -> int:
    """Count the steps of lanes that have another number than the same true step has on most lanes."""
    counts = steps.group_by("true_step", "step").len()
    return int((counts.group_by("true_step").agg(pl.col("len").sum() - pl.col("len").max()))["len"].sum())


def _whole_steps(true_steps: pl.DataFrame, ranks: int) -> list[int]:
    """List the steps that all ranks recorded."""
    counts = true_steps.filter("is_recorded").group_by("true_step").len()
    return counts.filter(pl.col("len") == ranks)["true_step"].to_list()


def _positions(true_steps: pl.DataFrame) -> dict[tuple[int, int], str]:
    """Return the position of each complete step of a rank among its complete steps."""
    positions = {}
    for (rank,), part in true_steps.filter("is_recorded").group_by("rank"):
        numbers = part["true_step"].sort().to_list()
        for number in numbers:
            edge = "first" if number == numbers[0] else "last" if number == numbers[-1] else "middle"
            positions[rank, number] = "only" if len(numbers) == 1 else edge
    return positions


def _sum_found(findings: Findings) -> dict[tuple[int, int], dict[str, int]]:
    """Sum the causes of the library by lane and its number of the step."""
    return _sum(findings.training.lane_states, "lane")


def _sum_true(truth: Truth, processes: pl.DataFrame) -> dict[tuple[int, int], dict[str, int]]:
    """Sum the true causes by rank and step."""
    return _sum(truth.table("causes").join(processes, on=["report", "rank"]), "rank")


def _sum(frame: pl.DataFrame, owner: str) -> dict[tuple[int, int], dict[str, int]]:
    duration = pl.col("end_ns") - pl.col("start_ns")
    cause = pl.col("cause").cast(pl.String).replace(_NAMES)
    sums: dict[tuple[int, int], dict[str, int]] = {}
    for number, step, name, total in (
        frame.group_by(owner, "step", cause.alias("cause")).agg(duration.sum()).iter_rows()
    ):
        sums.setdefault((number, step), {})[name] = total
    return sums


def _compare(
    both: pl.DataFrame,
    found: dict[tuple[int, int], dict[str, int]],
    true: dict[tuple[int, int], dict[str, int]],
    positions: dict[tuple[int, int], str],
) -> list[StepScore]:
    scores = []
    for row in both.sort("rank", "true_step").iter_rows(named=True):
        key = row["rank"], row["true_step"]
        of_found, of_true = found.get((row["lane"], row["step"]), {}), true[key]
        length = row["end_ns"] - row["start_ns"]
        split = split_either(of_found, of_true)
        names = sorted(split.keys() | of_true.keys())
        points = {name: 100 * (split.get(name, 0) - of_true.get(name, 0)) / length for name in names}
        bubbles = [
            100 * (sum(sums.values()) - sums.get("compute", 0)) / sum(sums.values()) if sums else 0.0
            for sums in (of_found, of_true)
        ]
        scores.append(
            StepScore(
                rank=row["rank"],
                step=row["true_step"],
                is_whole=row["is_whole"],
                position=positions[key],
                points=points,
                bubble_points=bubbles[0] - bubbles[1],
                length_points=100 * (row["found_length_ns"] - length) / length,
                true_ns=of_true,
                found_ns=of_found,
            )
        )
    return scores
