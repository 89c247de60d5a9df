"""`nsys-pp compare`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.simulate import main as simulate
from tests.cli.calls import assert_refused, call

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
TABLES = ["steps", "bubbles", "stages", "kinds", "families", "kernels"]

pytestmark = pytest.mark.usefixtures("reports_read_once")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of one program, of which the second has more micro-batches."""
    folder = tmp_path_factory.mktemp("runs")
    for name, count in (("a", "4"), ("b", "8")):
        options = f"--pp 2 --machines 1 --steps 4 --layers 1 --micro-batches {count} --no-truth"
        simulate([str(folder / name), *options.split()])
    return folder / "a", folder / "b"


def as_json(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    done = call("compare", *arguments, "--format", "json")
    assert done.code == code, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_run_is_the_same_as_itself() -> None:
    found = as_json(PIPELINE, PIPELINE, "--fail-on", "step>0%", "--fail-on", "bubble>0%")
    assert [*found] == ["tables", "failures", "notes"]
    assert [*found["tables"]] == TABLES
    assert {row["verdict"] for rows in found["tables"].values() for row in rows} == {"same"}
    assert found["failures"] == []


def test_what_got_slower_is_printed(runs: tuple[Path, Path]) -> None:
    done = call("compare", *runs)
    assert done.code == 0, done
    lines = done.stdout.splitlines()
    (step,) = (line for line in lines if line.split()[-5:] == ["span", "on", "all", "lanes", "step"])
    assert "slower" in step
    row = as_json(*runs)["tables"]["steps"][0]
    assert step.split()[:2] == [f"{row[run] / 1e6:.3f}" for run in "ab"]
    assert "Steps" in lines
    assert "Kernels" in lines


def test_one_row_more_is_a_row() -> None:
    lines = call("compare", PIPELINE, PIPELINE, "--limit", "2").stdout.splitlines()
    assert lines[4].endswith("… 1 more row")
    assert "… 2 more rows" in call("compare", PIPELINE, PIPELINE, "--limit", "1").stdout


def test_a_gate_that_fails_ends_with_four(runs: tuple[Path, Path]) -> None:
    done = call("compare", *runs, "--fail-on", "step>10%", "--fail-on", "step>1000%")
    assert done.code == 4
    assert done.stderr.count("failed: ") == 1
    assert "failed: `step>10%`: step went from" in done.stderr
    assert len(as_json(*runs, "--fail-on", "step>10%", code=4)["failures"]) == 1
    back = call("compare", *reversed(runs), "--fail-on", "step>10%")
    assert back.code == 0, "what got faster fails no limit from above"


def test_markdown_has_all_rows(runs: tuple[Path, Path]) -> None:
    done = call("compare", *runs, "--format", "markdown")
    assert done.stdout.count("## ") == len(TABLES)
    assert done.stdout.startswith("## Steps\n\n| A | B | Unit |")


def test_an_invalid_gate_is_refused() -> None:
    assert_refused(call("compare", PIPELINE, PIPELINE, "--fail-on", "bubble"), "invalid gate `bubble`")
    assert_refused(call("compare", PIPELINE, PIPELINE, "--fail-on", "luck>5%"), "unknown metric `luck`")


def test_a_run_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert_refused(call("compare", PIPELINE, tmp_path / "none"), "does not exist")


def test_two_runs_are_needed() -> None:
    assert call("compare", PIPELINE).code == 2
