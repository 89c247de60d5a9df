"""Output formats for the jobs of a training: their contract, and all of them.

To add a format, write its function in a module of its own and add one line to `EXPORTERS`:
`nsys-pp pipeline --format NAME` and the library offer it. The function is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from nsys_pp.errors import describe_path
from nsys_pp.frames.verdict import NO_VERDICT, Verdict
from nsys_pp.output.files import check_output, open_output, replace_file
from nsys_pp.registry import import_on_call

if TYPE_CHECKING:
    from nsys_pp.frames.clock import Clock
    from nsys_pp.frames.training import Training


class ExportSource(Struct, frozen=True, kw_only=True):
    """A report of the run, for formats that need its file or its own time.

    Attributes:
        path: The report.
        report: Its number in `LANES.report`; of a later capture of an nsys session, that of the first one.
        clock: Maps its times onto those of the training.
        window_ns: Start and end of its time in the training; other captures of the session have the rest.
    """

    path: Path
    report: int
    clock: Clock
    window_ns: tuple[int, int]


class ExportOptions(Struct, frozen=True, kw_only=True):
    """Options of an export; each format reads `force` and its `Exporter.options`.

    Attributes:
        force: Replace files that exist.
        title: Heading of the output. Default: the name of the output without its suffix.
        verdict: Findings on the run.
        has_all_steps: A picture draws all steps, not only one of them (`choose_step`).
        devices: Include only these GPUs, in this order (index per machine, as in nvidia-smi).
        sources: The reports of the run.
    """

    force: bool = False
    title: str | None = None
    verdict: Verdict = NO_VERDICT
    has_all_steps: bool = False
    devices: tuple[int, ...] | None = None
    sources: tuple[ExportSource, ...] = ()


class ExportedFile(Struct, frozen=True, kw_only=True):
    """A file that an export has written.

    Attributes:
        path: The file.
        row_count: Number of jobs in it.
        source: The report that the file belongs to; None if it belongs to the run.
    """

    path: Path
    row_count: int
    source: Path | None = None


class ExportResult(Struct, frozen=True, kw_only=True):
    """The files of an export.

    Attributes:
        files: In the order of writing.
        notes: Missing or inferred facts, in sentences.
        hint: One sentence about opening the files; "" if none is needed.
    """

    files: tuple[ExportedFile, ...]
    notes: tuple[str, ...] = ()
    hint: str = ""


def accept_folder(path: Path, *, inputs: Sequence[Path], force: bool) -> None:
    """Accept any folder; its files are checked when they are written."""


class Exporter(Struct, frozen=True, kw_only=True):
    """An output format for the jobs of a training.

    Attributes:
        name: Value of `--format`.
        write: Writes the output atomically.
        suffixes: File suffixes that select the format; empty if only `name` selects it.
        is_folder: The output is a folder of files.
        options: Those of devices, sources and verdict in `ExportOptions` that the format reads.
        needs_jobs: A training without jobs is an error.
        check: Function of the output, and the keywords `inputs` (all of them) and `force`: refuses an invalid
            output before any work. It raises `OutputError` or `ReportError`.
    """

    name: str
    write: Callable[[Training, Path, ExportOptions], ExportResult]
    suffixes: tuple[str, ...] = ()
    is_folder: bool = False
    options: frozenset[str] = field(default_factory=frozenset)
    needs_jobs: bool = True
    check: Callable[..., None] = check_output


def _build_chart(name: str, draw: Callable[..., None]) -> Exporter:

    def write(training: Training, path: Path, options: ExportOptions) -> ExportResult:
        from nsys_pp.output.chart.content import choose_step, list_named_lanes, select_step

        step, count, notes = choose_step(training, options.verdict), training.step_count, []
        if name != "html" and step is not None and not options.has_all_steps:
            named = list_named_lanes(training.lanes, options.verdict.findings)
            training = select_step(training, step, named=named)
            notes = [f"only step {step} is drawn; `--steps` names others"] * (count > 1)
            notes += training.notes
        with replace_file(path, force=options.force) as target, open_output(target) as stream:
            title = options.title or describe_path(path.stem)
            draw(training, stream, title=title, verdict=options.verdict)
        files = (ExportedFile(path=path, row_count=len(training.jobs)),)
        return ExportResult(files=files, notes=tuple(notes))

    return Exporter(
        name=name,
        suffixes=(f".{name}",),
        options=frozenset({"verdict"}),
        needs_jobs=False,
        write=write,
    )


CHARTS = ("html", "svg", "png")

# By name, in the order of help texts.
EXPORTERS: Mapping[str, Exporter] = {
    one.name: one
    for one in (
        _build_chart("html", import_on_call("nsys_pp.output.chart.page:write_html")),
        _build_chart("svg", import_on_call("nsys_pp.output.chart.picture:write_svg")),
        _build_chart("png", import_on_call("nsys_pp.output.chart.picture:write_png")),
        Exporter(  # the two files of Paddle's timeline tool
            name="paddle",
            is_folder=True,
            options=frozenset({"devices"}),
            write=import_on_call("nsys_pp.output.other.paddle:export_paddle"),
            check=accept_folder,
        ),
        Exporter(  # copies of reports with a table `StepTaskInfo`, and databases like those of msprof-analyze
            name="steptask",
            is_folder=True,
            options=frozenset({"sources"}),
            write=import_on_call("nsys_pp.output.other.step_tasks:export_step_tasks"),
            check=import_on_call("nsys_pp.output.other.step_tasks:plan_step_tasks"),
        ),
    )
}


# Steps, jobs and messages alone, for `whatif`: `merge` writes traces with the rows of reports.
_TRACE = Exporter(
    name="trace",
    suffixes=(".pftrace",),
    write=import_on_call("nsys_pp.output.perfetto.jobs:export_trace"),
)


def find_exporter(path: Path) -> Exporter | None:
    """Find the format of an output by its suffix; None if no format has this suffix.

    >>> find_exporter(Path("run.html")).name, find_exporter(Path("run.csv"))
    ('html', None)
    """
    return next((one for one in (*EXPORTERS.values(), _TRACE) if path.suffix in one.suffixes), None)


TRACE_FORMATS = ("perfetto", "chrome")


def infer_trace_format(output: Path) -> str:
    """Return the format of a trace by its file name.

    >>> infer_trace_format(Path("run.json.gz")), infer_trace_format(Path("run.pftrace"))
    ('chrome', 'perfetto')
    """
    return "chrome" if output.name.endswith((".json", ".json.gz")) else "perfetto"
