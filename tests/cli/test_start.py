"""Start of the command line: help and version import click alone, a command imports what it uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from fixtures.recording.export import write_report
from nsys_pp.cli import main
from tests.cli.calls import environment
from tests.patience import PATIENCE_S

_LIST_MODULES = (
    "import sys; from nsys_pp.cli import main; main(sys.argv[1:], standalone_mode=False);"
    " print(*sys.modules, file=sys.stderr)"
)


def imported_by(*arguments: str | Path) -> set[str]:
    """List the modules that a process has imported at the end of a command."""
    done = subprocess.run(
        [sys.executable, "-c", _LIST_MODULES, *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("words", [[], *([name] for name in main.commands)], ids=" ".join)
def test_help_imports_no_library(words: list[str]) -> None:
    modules = imported_by(*words, "--help")
    assert "click" in modules
    assert not modules & {"polars", "numpy", "rich", "sqlite_utils", "bokeh"}
    stages = {"nsys_pp.read", "nsys_pp.commands", "nsys_pp.training"}
    assert not modules & stages


def test_the_list_of_commands_imports_no_options_of_one() -> None:
    assert "msgspec" not in imported_by("--help")


def test_a_trace_of_perfetto_imports_no_renderer_of_tables(tmp_path: Path) -> None:
    report = Path(__file__).parent.parent.parent / "fixtures" / "clocks" / "node1" / "rank0.sqlite"
    log = tmp_path / "modules"
    modules = imported_by("merge", report, "-o", tmp_path / "run.pftrace")
    assert {"polars", "nsys_pp.output.perfetto.trace"} <= modules, log
    unused = ("rich", "sqlite_utils", "bokeh", "distributed", "multiprocessing.pool", "nsys_pp.output.chrome")
    assert not modules & {*unused, "nsys_pp.executors.pool"}
    assert not [
        name for name in modules if name.startswith(("nsys_pp.tables.summary", "nsys_pp.output.chart"))
    ]


def test_a_projection_in_a_file_imports_no_renderer_of_tables(tmp_path: Path) -> None:
    report = Path(__file__).parent.parent.parent / "fixtures" / "clocks" / "node1" / "rank0.sqlite"
    modules = imported_by("project", report, "-o", tmp_path / "ranges.parquet")
    assert {"polars", "nsys_pp.projection.ranges"} <= modules
    assert "rich" not in modules


def test_a_trace_of_a_report_without_jobs_imports_no_findings(tmp_path: Path) -> None:
    rows = [{"start": 30, "end": 60, "correlation": 1, "name": "gemm"}]
    write_report(
        tmp_path / "report.sqlite", api_calls=[{"start": 10, "end": 12, "correlation": 1}], kernels=rows
    )
    modules = imported_by("merge", tmp_path / "report.sqlite", "-o", tmp_path / "run.pftrace")
    tables = {name for name in modules if name.startswith("nsys_pp.tables.")}
    assert tables == {"nsys_pp.tables.registry"}  # their names


def test_the_list_of_commands_has_the_first_lines_of_their_docstrings() -> None:
    context = click.Context(main, max_content_width=100, terminal_width=100)
    formatter = context.make_formatter()
    main.format_commands(context, formatter)
    listed = [line.split(maxsplit=1) for line in formatter.getvalue().splitlines()[1:]]
    assert listed == [[name, command.get_short_help_str(100)] for name, command in main.commands.items()]
