"""Natural order of names."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from nsys_pp.arrays.names import natural_key
from tests.cli.calls import call

NINES = "9" * 5000  # Python converts no text of more than 4,300 digits to a number
REPORTS = sorted((Path(__file__).parents[2] / "fixtures" / "pipeline").rglob("*.sqlite"))[:2]


def test_numbers_of_any_length() -> None:
    names = [f"node{NINES}a", f"node{NINES}", "node10", "node2", "node", NINES, ""]
    assert sorted(names, key=natural_key) == ["", NINES, "node", "node2", "node10", *sorted(names[:2])]


def test_names_of_machines_of_any_length(tmp_path: Path) -> None:
    paths = []
    for number, report in enumerate(REPORTS):
        path = Path(shutil.copy(report, tmp_path / f"{number}.sqlite"))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'",
                [f"node{number}{NINES}"],
            )
            assert connection.execute("SELECT changes()").fetchone() == (1,)
        paths.append(path)
    for command in (["merge", "-o", tmp_path / "run.pftrace"], ["pipeline"], ["summary"], ["align"]):
        done = call(*command, *paths)
        assert done.code == 0, done.stderr
