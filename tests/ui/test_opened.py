"""What Perfetto's UI shows of a merged run as soon as it is opened, without a click."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nsys_pp
from tests.importer.parts import PartMissingError
from tests.ui.screenshot import Shot, perfetto_screenshot

FIXTURES = Path(__file__).parents[2] / "fixtures" / "pipeline"

# Rows that are in view, from top to bottom, as the page shows their names; `slices` of the row's tracks.
IN_VIEW = """(async () => {
  const rows = [];
  const walk = (node) => {
    for (const child of node.children) {
      rows.push({ name: child.name, uri: child.uri, is_open: !child.collapsed, has_children: child.hasChildren });
      if (!child.collapsed) walk(child);
    }
  };
  walk(app.trace.workspace);
  const result = await app.trace.engine.query(
    "SELECT count(*) AS n FROM slice WHERE track_id IN (SELECT id FROM track WHERE ltrim(name) GLOB 'rank *')");
  return { rows, text: document.body.innerText, start: Number(app.trace.traceInfo.start),
           job_slices: Number(result.firstRow({ n: 0 }).n) };
})()"""


def open_trace(trace: Path, picture: Path) -> dict[str, Any]:
    try:
        found = perfetto_screenshot(trace, picture, Shot(script=IN_VIEW))
    except PartMissingError as error:
        pytest.skip(str(error))
    assert found["errors"] == []
    value: dict[str, Any] = found["value"]
    return value


def test_steps_bubbles_and_the_jobs_of_all_ranks_are_in_view(tmp_path: Path) -> None:
    trace = tmp_path / "run.pftrace"
    nsys_pp.merge([FIXTURES], trace)
    found = open_trace(trace, tmp_path / "run.png")
    rows = [row for row in found["rows"] if row["name"] != "System"]
    assert [row["name"].strip() for row in rows] == [
        "steps",
        *(f"bubble of stage {stage}" for stage in range(4)),
        *(f"rank {rank} · stage {rank}" for rank in range(4)),
    ]
    assert all(row["uri"] for row in rows)
    shown = found["text"].split("\n")
    assert "rank 2 · stage 2" in shown, "spaces before a name do not show"
    assert found["job_slices"] > 100
    assert 0 <= found["start"] < 10**12, "times count from the start of the run"
