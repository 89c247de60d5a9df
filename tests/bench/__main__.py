"""Measure the figures of `figures.py`: `python -m tests.bench --write docs/performance.md`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.figures import FIGURES, Figure

_BEGIN, _END = "<!-- figures -->", "<!-- end -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line for each figure, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", default="", help="Words of the figures to measure. Default: all.")
    parser.add_argument("--write", type=Path, help="Markdown file whose table gets the measured values.")
    chosen = parser.parse_args(arguments)
    measured: dict[str, float] = {}
    for figure in FIGURES:
        if chosen.only in figure.work:
            with TemporaryDirectory(prefix="bench-") as name:
                measured[figure.work] = figure.measure(Path(name))
            print(_row(figure, _format(measured[figure.work])), flush=True)
    if chosen.write is not None:
        _write(chosen.write, measured)
    return 0


def _row(figure: Figure, value: str) -> str:
    return f"| {figure.work} | {value} {figure.unit} | {figure.at_most:g} | {figure.aim:g} |"


def _format(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _write(path: Path, measured: dict[str, float]) -> None:
    """Replace the measured rows of the table; the others stay as they are."""
    before, rest = path.read_text().split(_BEGIN)
    table, after = rest.split(_END)
    known = {row.split("|")[1].strip(): row for row in table.splitlines() if row.count("|") > 2}
    today = date.today().isoformat()
    rows = [
        f"{_row(figure, _format(measured[figure.work]))} {today} |"
        if figure.work in measured
        else known.get(figure.work, f"{_row(figure, 'not measured')} |")
        for figure in FIGURES
    ]
    head = ["", "", "| work | measured | at most | aim | on |", "|---|--:|--:|--:|---|"]
    path.write_text(before + _BEGIN + "\n".join([*head, *rows]) + "\n\n" + _END + after)


if __name__ == "__main__":
    sys.exit(main())
