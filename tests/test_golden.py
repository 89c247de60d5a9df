"""Golden texts: what `nsys-pp pipeline` prints of each shared report, looked at when it was written.

`python -m tests.test_golden` writes them again; the difference is then looked at, too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nsys_pp
from nsys_pp.errors import MissingDataError
from tests.cli.calls import call
from tests.conftest import find_shared_reports
from tests.sql import select

FOLDER = Path(__file__).parent / "golden_texts"


def golden_path(report: Path) -> Path:
    """Name the golden text of a report: its owner and the name of its file, without the hash."""
    return FOLDER / f"{re.sub(r'__[0-9a-f]{6}$', '', report.stem)}.txt"


def print_report(report: Path) -> str:
    """Print what a log would show: tables, then notes; the report is named without its folder."""
    done = call("pipeline", report)
    text = f"{done.stdout}\n{done.stderr}".replace(str(report), report.name)
    return "".join(f"{line.rstrip()}\n" for line in text.strip().splitlines())


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for report in find_shared_reports():
        golden_path(report).write_text(print_report(report))


def test_every_shared_report_has_a_golden_text(shared_reports: list[Path]) -> None:
    assert {golden_path(report) for report in shared_reports} == {*FOLDER.glob("*.txt")}


def test_a_shared_report_is_told_as_its_golden_text_has_it(shared_report: Path) -> None:
    """And answered exactly if it has GPU work."""
    assert print_report(shared_report) == golden_path(shared_report).read_text()
    if not _has_gpu_work(shared_report):
        with pytest.raises(MissingDataError, match="has no GPU operations"):
            nsys_pp.pipeline([shared_report])
        return
    tables = nsys_pp.pipeline([shared_report]).tables(["steps", "lanes", "gaps"])
    assert tables["steps"].height > 0
    assert tables["lanes"].height > 0
    assert tables["steps"]["bubble_fraction"].is_between(0, 1).all()
    assert (tables["gaps"]["length_ns"] > 0).all()  # a gap is cut where a step begins


def _has_gpu_work(report: Path) -> bool:
    names = {name for (name,) in select(report, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    kinds = {f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")}
    return any(select(report, f"SELECT 1 FROM {name} LIMIT 1") for name in kinds & names)


if __name__ == "__main__":
    main()
