"""Registry of output formats for the jobs of a training.

To add a format, write its function in a module of its own and add one line to `_EXPORTERS`:
`nsys-pp pipeline --format NAME` and the library offer it. The function is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from nsys_pp.output.exporter import Exporter, ExportOptions, ExportResult, accept_folder, file_writer
from nsys_pp.registry import import_on_call

if TYPE_CHECKING:
    from nsys_pp.frames.training import Training


def _build_chart(name: str, description: str, *, shows_verdict: bool = False) -> Exporter:
    """Build the exporter of a chart format; a page shows the findings."""

    def write(training: Training, path: Path, options: ExportOptions) -> ExportResult:
        from nsys_pp.output.chart import CHARTS
        from nsys_pp.output.chart.apart import bring_near

        def write_stream(training: Training, stream: BinaryIO, options: ExportOptions) -> None:
            shown = {"verdict": options.verdict} if shows_verdict else {}
            CHARTS[name](bring_near(training), stream, title=options.title or path.stem, **shown)

        return file_writer(write_stream)(training, path, options)

    return Exporter(
        name=name,
        description=description,
        suffixes=(f".{name}",),
        options=frozenset({"title", "verdict"} if shows_verdict else {"title"}),
        needs_jobs=False,
        write=write,
    )


_EXPORTERS = (
    _build_chart("html", "chart as a page to zoom and search in", shows_verdict=True),
    _build_chart("svg", "chart as a vector picture"),
    _build_chart("png", "chart as a picture"),
    Exporter(
        name="paddle",
        description="the two files of Paddle's timeline tool",
        is_folder=True,
        options=frozenset({"devices"}),
        write=import_on_call("nsys_pp.output.other.paddle:export_paddle"),
        check=accept_folder,
    ),
    Exporter(
        name="steptask",
        description="copies of the reports, each with a table `StepTaskInfo`, and a database per rank named as in msprof-analyze",
        is_folder=True,
        options=frozenset({"sources"}),
        write=import_on_call("nsys_pp.output.other.step_task_files:export_step_tasks"),
        check=import_on_call("nsys_pp.output.other.step_tasks:check_step_tasks"),
    ),
)
EXPORTERS: Mapping[str, Exporter] = {exporter.name: exporter for exporter in _EXPORTERS}
"""All formats by name, in the order of help texts."""


def find_exporter(path: Path) -> Exporter | None:
    """Find the format of an output by its suffix; None if no format has this suffix.

    >>> find_exporter(Path("run.html")).name, find_exporter(Path("run.pftrace"))
    ('html', None)
    """
    for exporter in EXPORTERS.values():
        if path.suffix in exporter.suffixes:
            return exporter
    return None
