"""Charts of runs with a clock that was never set."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from nsys_pp.errors import NsysPPError
from nsys_pp.output.chart.content import bring_near
from nsys_pp.units import NS_PER_DAY
from tests.cli.calls import call

PIPELINE = Path(__file__).parents[3] / "fixtures" / "pipeline"


@pytest.fixture(scope="module")
def unset(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return four reports of a run; the clock of the third was never set."""
    folder = tmp_path_factory.mktemp("run")
    reports = [Path(shutil.copy(source, folder)) for source in sorted(PIPELINE.glob("*/rank*.sqlite"))]
    with closing(sqlite3.connect(reports[2])) as connection, connection:
        connection.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs % 1000000000")
    return reports


@pytest.mark.parametrize("suffix", ["html", "svg", "png"])
def test_a_lane_whose_clock_was_never_set_is_drawn_apart(
    unset: list[Path], tmp_path: Path, suffix: str
) -> None:
    output = tmp_path / f"run.{suffix}"
    done = call("chart", *unset, "-o", output, "--clock", "utc")
    assert done.code == 0
    (note,) = [line for line in done.stderr.splitlines() if "as if it was never set" in line]
    assert "days from that of most others" in note
    assert output.stat().st_size > 10_000


@pytest.mark.filterwarnings("ignore:.*are they of one run")
def test_the_lane_begins_with_the_others_and_is_otherwise_unchanged(unset: list[Path]) -> None:
    training = nsys_pp.pipeline(unset, clock="utc").training
    near = bring_near(training)
    starts = near.steps.group_by("lane").agg(pl.col("start_ns").min())["start_ns"]
    assert int(starts.max()) - int(starts.min()) < NS_PER_DAY  # type: ignore[arg-type]
    for name in ("steps", "jobs", "lane_states", "ideal"):
        before, after = getattr(training, name), getattr(near, name)
        assert before.drop("start_ns", "end_ns", strict=False).columns
        moved = (after["start_ns"] - before["start_ns"]).drop_nulls()
        by_lane = pl.DataFrame({"lane": before["lane"], "moved": after["start_ns"] - before["start_ns"]})
        assert moved.n_unique() == (2 if len(moved) else 0)
        assert (by_lane.drop_nulls().group_by("lane").agg(pl.col("moved").n_unique())["moved"] == 1).all()
        assert ((after["end_ns"] - after["start_ns"]) == (before["end_ns"] - before["start_ns"])).all()
    assert bring_near(near) is near


def test_usual_runs_are_unchanged() -> None:
    training = nsys_pp.pipeline(sorted(PIPELINE.glob("*/rank*.sqlite"))).training
    assert bring_near(training) is training


def test_events_of_one_lane_that_are_months_apart_are_refused_in_words(tmp_path: Path) -> None:
    report = Path(shutil.copy(PIPELINE / "node2" / "rank0.sqlite", tmp_path))
    with closing(sqlite3.connect(report)) as connection, connection:
        connection.execute(
            'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + ?'
            ' WHERE "end" = (SELECT max("end") FROM CUPTI_ACTIVITY_KIND_KERNEL)',
            [200 * NS_PER_DAY],
        )
    with pytest.raises(NsysPPError, match="its events are 200 days apart"):
        nsys_pp.chart([report], tmp_path / "run.html")
