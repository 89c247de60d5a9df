"""Reports whose rows are in another order: exports promise none, and what is concluded does not depend on it."""

from __future__ import annotations

import json
import math
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calls import call
from tests.conftest import REPOSITORY, find_shared_reports

FIXTURES = [*sorted((REPOSITORY / "fixtures" / "pipeline").rglob("rank0.sqlite"))]
FEW = (
    "NERSC",  # lists four GPUs with one ordinal
    "quasiben__cudf-groupby",
    "hpcgroup",
    "argonne-lcf__lineprofiling_seq_parallel_fp32-ranks8-nodes2-T1_0",
)
COMMANDS = ("project --ops all -o - --format json", "summary --json", "pipeline --table all --json")


def shuffle_rows(source: Path, target: Path, seed: int) -> None:
    """Copy a report with the rows of each table in random order."""
    shutil.copyfile(source, target)
    draw = random.Random(seed).random
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.create_function("draw", 0, draw)
        made = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        for name, sql in made:
            connection.execute(f'ALTER TABLE "{name}" RENAME TO ordered')
            connection.execute(sql)
            connection.execute(f'INSERT INTO "{name}" SELECT * FROM ordered ORDER BY draw()')
            connection.execute("DROP TABLE ordered")


def forget_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace the ids of ranges, which are numbers of rows, and by which `project` sorts, by what they are of."""
    columns = ("name", "start_ns", "end_ns", "thread_id")
    name_of = {row["range_id"]: [row[column] for column in columns] for row in rows}
    for row in rows:
        parent = row.pop("parent_id")
        row["parent"] = name_of.get(parent, parent is not None)
        del row["range_id"]
    return sorted(rows, key=json.dumps)


def are_equal(a: object, b: object) -> bool:
    """Sums of floating-point numbers in another order may differ in the last digits."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(are_equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(are_equal, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12)
    return a == b


def read_outputs(report: Path) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    for command in COMMANDS:
        name, *options = command.split()
        done = call(name, report, *options)
        text = done.stdout.replace(str(report.parent), "")
        outputs[name] = json.loads(text) if text else None
        outputs[f"notes of {name}"] = done.stderr.replace(str(report.parent), "")
    if outputs["project"] is not None:
        outputs["project"] = forget_rows(outputs["project"]["tables"]["projections"])
    return outputs


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            path,
            id=path.stem,
            marks=[] if path in FIXTURES or path.name.startswith(FEW) else [pytest.mark.slow],
        )
        for path in (*FIXTURES, *find_shared_reports())
    ],
)
def test_the_order_of_rows_does_not_matter(source: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    a, b = (tmp_path / folder / source.name for folder in "ab")
    shutil.copyfile(source, a)
    shuffle_rows(source, b, seed=1)
    expected, found = read_outputs(a), read_outputs(b)
    for name, output in expected.items():
        assert are_equal(output, found[name]), name
