"""The harness itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importer import Importer, ImporterError

JSON = b'[{"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "name": "first"}]'


def test_values_of_every_kind(importer: Importer) -> None:
    assert importer.query(
        b"", "SELECT 1 AS i, 0.5 AS r, 'a' AS s, NULL AS n UNION ALL SELECT -2, 1.5, '', NULL"
    ).rows() == [(1, 0.5, "a", None), (-2, 1.5, "", None)]


def test_more_rows_than_one_batch_holds(importer: Importer) -> None:
    sql = (
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999) SELECT i, 'x' || "
        "i AS t FROM n"
    )
    found = importer.query(b"", sql)
    assert (found["i"].to_list(), found["t"][-1]) == (list(range(100_000)), "x99999")


def test_each_trace_replaces_the_one_before(importer: Importer, tmp_path: Path) -> None:
    assert importer.query(JSON, "SELECT name FROM slice").item() == "first"
    assert importer.query(None, "SELECT name FROM slice").item() == "first"
    path = tmp_path / "t.json"
    path.write_bytes(JSON.replace(b"first", b"second"))
    assert importer.query(path, "SELECT name FROM slice").item() == "second"
    assert importer.query([JSON[:20], JSON[20:]], "SELECT name FROM slice").item() == "first"


def test_errors_are_raised_and_do_not_stick(importer: Importer) -> None:
    with pytest.raises(ImporterError, match="no_such_thing"):
        importer.query(b"", "SELECT * FROM no_such_thing")
    with pytest.raises(ImporterError):
        importer.load(b"this is no trace at all")
    assert importer.query(b"", "SELECT 1 AS a").item() == 1
