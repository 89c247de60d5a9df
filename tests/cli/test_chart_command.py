"""`nsys-pp chart`: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.calls import assert_refused, call

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
STARTS = {"html": b"<!doctype html>", "svg": b"<", "png": b"\x89PNG"}

pytestmark = pytest.mark.usefixtures("reports_read_once")


@pytest.mark.parametrize("format", [*STARTS])
def test_the_ending_says_what_is_drawn(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"x.{format}"
    done = call("chart", PIPELINE, "-o", path, "--title", "Run <7>")
    assert done.code == 0, done
    assert path.read_bytes()[:15].lower().startswith(STARTS[format].lower())
    assert done.stdout == ""
    assert f"Wrote {path}" in done.stderr
    assert "on 4 lanes in 3 steps." in done.stderr
    assert_refused(call("chart", PIPELINE, "-o", path), "exists")
    assert call("chart", PIPELINE, "-o", path, "--force").code == 0


def test_a_format_counts_whatever_the_ending(tmp_path: Path) -> None:
    assert call("chart", PIPELINE, "-o", tmp_path / "x", "--format", "svg").code == 0
    assert b"<svg" in (tmp_path / "x").read_bytes()


def test_steps_can_be_chosen(tmp_path: Path) -> None:
    done = call("chart", PIPELINE, "-o", tmp_path / "x.svg", "--steps", "11:12")
    assert "in 1 step." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-o", "-"], "a chart cannot be printed"),
        (["-o", "x.pdf"], "unknown extension of `x.pdf`; expected .html, .svg or .png"),
        (["-o", "x"], "unknown extension of `x`"),
        (["--format", "pdf"], "is not one of"),
        (["--steps", "3:3"], "empty steps"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(arguments: list[str], says: str) -> None:
    done = call("chart", PIPELINE, *arguments)
    assert done.code == 2
    assert says in done.stderr


@pytest.mark.parametrize("command", ["chart", "pipeline"])
def test_the_page_has_the_findings(tmp_path: Path, command: str) -> None:
    path = tmp_path / "x.html"
    done = call(command, PIPELINE, "-o", path, "--format", "html", "--result", tmp_path / "x.json")
    assert done.code == 0, done
    page = path.read_text()
    assert '"verdict":["No finding beyond noise in 3 steps.","Bubble 30 %, ideal for 1F1B' in page
    if command == "chart":
        findings = json.loads((tmp_path / "x.json").read_text())["verdict"]
        assert [finding["kind"] for finding in findings] == ["none", "bubble", "clocks"]
