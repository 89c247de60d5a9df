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

CASES = sorted((Path(__file__).parent / "verdicts").glob("*.toml"))


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


# relative to something that is no whole: an excess, noise, a change, or time of several GPUs and streams at once
_NO_SHARES = {"excess_fraction", "noise_fraction", "change_fraction", "least_fraction"}


def test_no_share_of_a_table_is_above_its_whole(shared_report: Path) -> None:
    """A range, a step or a GPU cannot hold more than all of it; sums of concurrent kernels have no shares of time."""
    try:
        tables = nsys_pp.pipeline([shared_report]).tables()
    except NsysPPError:
        return
    for name, table in tables.items():
        for column in table.columns:
            if column.endswith("_fraction") and column not in _NO_SHARES:
                values = table[column].drop_nulls().drop_nans()
                assert values.is_between(-1e-9, 1 + 1e-9).all(), f"{name}.{column}: {values.to_list()}"


def find(lines: list[str], expected: dict[str, Any]) -> bool:
    chosen = lines if expected["at"] == 0 else lines[expected["at"] - 1 : expected["at"]]
    for line in chosen:
        if found := re.search(expected["words"], line):
            value = expected.get("value")
            return value is None or abs(float(found[1]) - value) <= expected["tolerance"]
    return False


def test_every_shared_report_has_a_case(shared_reports: list[Path]) -> None:
    assert {path.stem for path in CASES} == {path.stem for path in shared_reports}
