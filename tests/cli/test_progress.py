"""Bars and lines of progress."""

from __future__ import annotations

import io
import json
import sys
import time

import pytest
from rich.console import Console

from nsys_pp.cli.log import Record
from nsys_pp.cli.progress import _ProgressLines, build_bar, estimate_left
from nsys_pp.progress import Share


def render_bar(width: int, activity: str, counts: str) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    bar = build_bar(console)
    bar.add_task(activity, total=100, counts=counts, completed=25)
    lines = console.render_lines(bar.make_tasks_table(bar.tasks))
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


@pytest.mark.parametrize("width", [72, 80, 119, 120, 200])
@pytest.mark.parametrize("counts", ["read 104.0 MiB of 162.0 MiB", "encoded 1,900,544 of 2,000,009 rows", ""])
def test_a_bar_cuts_the_name_alone(width: int, counts: str) -> None:
    (line,) = render_bar(width, f"drawing {'long' * 60}.sqlite", counts)
    assert len(line) <= width
    assert counts in line
    assert line.endswith("-:--:-- left")  # without a speed, the time is unknown
    assert "drawing lo" in line
    assert "…" in line
    assert ("elapsed" in line) is (width >= 120)


def test_markup_in_names_is_text() -> None:
    assert "drawing [red]x" in render_bar(120, "drawing [red]x", "")[0]


@pytest.mark.parametrize(
    ("total", "texts"),
    [
        (1, ["drawing a: read 1 MiB, 25%, about", "s left"]),
        (4, ["drawing a: read 1 MiB, 1 of 4 (", "/s), about"]),
    ],
)
def test_lines_have_the_time_that_is_left(total: int, texts: list[str]) -> None:
    stderr = io.StringIO()
    lines = _ProgressLines(Record(), stderr)
    lines.update("drawing a", Share.of(0, total, doing="drawing"))
    time.sleep(0.01)
    lines.update("drawing a: read 1 MiB", Share.of(1 if total > 1 else 0, total, doing="drawing", value=0.25))
    lines.write()
    assert all(text in stderr.getvalue() for text in texts), stderr.getvalue()


def test_each_count_of_a_phase_has_a_rate_of_its_own() -> None:
    """A divided run is written in two counts of one name: the overview by its reports, then its traces."""
    stderr = io.StringIO()
    lines = _ProgressLines(Record(in_json=True), stderr)
    for done, total in [(60, 64), (63, 64), (0, 8), (7, 8), (6, 8)]:
        lines.update("writing", Share.of(done, total, doing="writing"))
        time.sleep(0.01)
        lines.write()
    facts = [json.loads(line) for line in stderr.getvalue().splitlines()]
    assert [(fact["done"], fact["total"]) for fact in facts] == [(60, 64), (63, 64), (0, 8), (7, 8), (6, 8)]
    assert [fact["rate_per_s"] > 0 for fact in facts] == [False, True, False, True, True]
    assert all(fact["rate_per_s"] >= 0 for fact in facts)


def test_time_left() -> None:
    assert estimate_left(0.25, 5.0) == pytest.approx(15.0)
    assert estimate_left(0.0, 5.0) is None
    assert estimate_left(1.0, 5.0) is None
    assert estimate_left(sys.float_info.min, 5.0) is None
