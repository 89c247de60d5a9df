"""Databases of ranks: the names that msprof-analyze looks for, and the jobs of each rank on one clock."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from nsys_pp.errors import OutputError
from nsys_pp.output.other.step_tasks import STEP_TASKS, write_rank_databases
from tests.training.expected_training import expected_training

TRAINING = expected_training()
# what msprof-analyze 8 searches: folders whose names end so, at most five levels deep, and databases in their
# output
FOLDER = re.compile(r".*ascend_pt$")
DATABASE = re.compile(r"^ascend_pytorch_profiler(?:_(\d+))?\.db$")


def test_each_rank_has_a_database_where_msprof_analyze_looks(tmp_path: Path) -> None:
    written = write_rank_databases(TRAINING, tmp_path, force=False)
    ranks = TRAINING.lanes["rank"].drop_nulls().unique().sort().to_list()
    assert [int(DATABASE.match(path.name)[1]) for path, _ in written] == ranks  # type: ignore[index]
    assert sorted(path for path, _ in written) == sorted(tmp_path.rglob("*.db"))
    for path, _ in written:
        assert path.parent.name == "ASCEND_PROFILER_OUTPUT"
        assert FOLDER.match(path.parent.parent.name)
        assert path.parent.parent.parent == tmp_path


def test_jobs_of_all_ranks_are_on_one_clock(tmp_path: Path) -> None:
    for path, count in write_rank_databases(TRAINING, tmp_path, force=False):
        with closing(sqlite3.connect(path)) as database:
            assert [row[1] for row in database.execute("PRAGMA table_info(StepTaskInfo)")] == [*STEP_TASKS]
            rows = database.execute("SELECT startNs, endNs, rank FROM StepTaskInfo").fetchall()
        assert len(rows) == count
        (rank,) = {row[2] for row in rows}
        lane = TRAINING.lanes.filter(rank=rank)["lane"].item()
        own = TRAINING.jobs.filter(pl.col("lane") == lane)
        spans = set(own.select("start_ns", "end_ns").rows())
        assert {row[:2] for row in rows} <= spans


def test_databases_that_exist_are_replaced_only_by_force(tmp_path: Path) -> None:
    ((path, _), *_) = write_rank_databases(TRAINING, tmp_path, force=False)
    before = path.read_bytes()
    with pytest.raises(OutputError, match=re.escape(str(path))):
        write_rank_databases(TRAINING, tmp_path, force=False)
    assert path.read_bytes() == before
    write_rank_databases(replace(TRAINING, jobs=TRAINING.jobs.clear()), tmp_path, force=True)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM StepTaskInfo").fetchone() == (0,)


def test_without_ranks_there_are_no_databases(tmp_path: Path) -> None:
    unknown = TRAINING.lanes.with_columns(rank=pl.lit(None, pl.Int64))
    assert write_rank_databases(replace(TRAINING, lanes=unknown), tmp_path, force=False) == []
    assert [*tmp_path.iterdir()] == []
