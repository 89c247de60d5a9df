"""Verdicts of real reports against what SQL says of them.

Each file has what a performance engineer should be told first, found by SQL before the verdict was looked at, as patterns
with their values, and what must not be said. `at`: the line of the verdict, 0 for any.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import nsys_pp
from nsys_pp.errors import NsysPPError

CASES = sorted(Path(__file__).parent.glob("*.toml"))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem.split("__")[0] + path.stem[-7:])
def test_the_first_lines_say_what_sql_says(case: Path, shared_reports: list[Path]) -> None:
    told = tomllib.loads(case.read_text())
    (report,) = (path for path in shared_reports if path.name == told["report"])
    if "refused" in told:
        with pytest.raises(NsysPPError, match=told["refused"]):
            nsys_pp.pipeline([report])
        return
    lines = nsys_pp.pipeline([report]).verdict.lines
    shown = "\n".join(lines)
    for expected in told["lines"]:
        assert find(lines, expected), f"{expected}\n{shown}"
    for pattern in told["never"]:
        assert not re.search(pattern, shown), f"{pattern}\n{shown}"


def find(lines: list[str], expected: dict[str, Any]) -> bool:
    chosen = lines if expected["at"] == 0 else lines[expected["at"] - 1 : expected["at"]]
    for line in chosen:
        if found := re.search(expected["words"], line):
            value = expected.get("value")
            return value is None or abs(float(found[1]) - value) <= expected["tolerance"]
    return False


def test_every_shared_report_has_a_case(shared_reports: list[Path]) -> None:
    assert {path.stem for path in CASES} == {path.stem for path in shared_reports}
