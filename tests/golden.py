"""Golden texts: what `nsys-pp pipeline` prints of each shared report, looked at when it was written.

`python -m tests.golden` writes them again; the difference is then looked at, too.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.calls import call
from tests.conftest import find_shared_reports

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
    """Write all golden texts."""
    FOLDER.mkdir(exist_ok=True)
    for report in find_shared_reports():
        golden_path(report).write_text(print_report(report))


if __name__ == "__main__":
    main()
