"""Steps of a recipe: workers extract a part of each report, then commands process all parts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsys_pp_recipe.options import forward_options

Commands = Sequence[Sequence[str]]
Done = Sequence["subprocess.CompletedProcess[str]"]
CAPTURE = {
    "stdin": subprocess.DEVNULL,
    "stdout": subprocess.PIPE,
    "stderr": subprocess.STDOUT,
    "encoding": "utf-8",
    "errors": "replace",
}
OUTPUT_TYPES = {  # extension of an output -> its type in the list of results; nsys knows only Notebook
    ".pftrace": "Trace",
    ".html": "Page",
    ".parquet": "Table",
    ".csv": "Table",
    ".nspart": "Part",
}
_SKIPPED = 3  # exit status of nsys-pp for skipped reports


class WorkError(Exception):
    """An error that the user can fix, with the message of nsys-pp."""


@dataclass(frozen=True)
class Step:
    """A command of nsys-pp that processes all parts.

    Attributes:
        command: Its name.
        output: File in the folder of results; empty: the folder itself, for tables.
        is_optional: Continue if it fails: a run without jobs has no pipeline.
    """

    command: str
    output: str = ""
    is_optional: bool = False


@dataclass(frozen=True)
class Plan:
    """The steps of a recipe.

    Attributes:
        detail: Default level of detail of parts.
        steps: Commands in order; the recipe has the options of the first.
    """

    detail: str
    steps: tuple[Step, ...]


MERGE = Plan(
    "kernels",
    (
        Step("merge", "run.pftrace"),
        Step("chart", "pipeline.html", is_optional=True),
        Step("pipeline", is_optional=True),
    ),
)
PIPELINE = Plan("jobs", (Step("pipeline"), Step("chart", "pipeline.html", is_optional=True)))
# Reports without GPU work have parts of detail cpu only.
SUMMARY = Plan("cpu", (Step("summary"),))


@dataclass(frozen=True)
class Worker:
    """Execution of commands.

    Attributes:
        nsys_pp: Command line prefix of nsys-pp.
        nsys: The nsys that exports reports; None: nsys-pp searches for one.
        run_all: Function that runs commands on workers in parallel, and returns their results in order.
        log: Function that logs a line with a level ("info" or "warning").
    """

    nsys_pp: Sequence[str]
    nsys: str | None
    run_all: Callable[[Commands], Done]
    log: Callable[[str, str], None]


def run_plan(
    plan: Plan,
    reports: Iterable[str],
    parsed: object,
    folder: Path,
    worker: Worker,
    *,
    csv: bool,
    keep_parts: bool,
) -> None:
    """Extract parts of reports, and process them.

    Reports that cannot be extracted are passed to the following commands, which report the error or read them.

    Args:
        plan: The steps.
        reports: Paths.
        parsed: The parsed options of the recipe.
        folder: Folder of results; an absolute path, writable by all workers.
        worker: Execution of commands.
        csv: Also write tables as CSV.
        keep_parts: Keep the parts, in a folder `parts`.

    Raises:
        WorkError: A command failed.
    """
    paths = sort_reports(reports)
    export = [] if worker.nsys is None else [f"--nsys={worker.nsys}"]
    options = forward_options(parsed, "extract")
    if not any(option.startswith("--detail=") for option in options):
        options = [f"--detail={plan.detail}", *options]
    parts = [folder / "parts" / str(number) / f"{path.stem}.nspart" for number, path in enumerate(paths)]
    for part in parts:
        part.parent.mkdir(parents=True)
    extract = [*worker.nsys_pp, "extract", *export, *options]
    commands = [
        [*extract, f"--output={part}", "--", str(path)] for path, part in zip(paths, parts, strict=True)
    ]
    inputs = []
    for path, part, done in zip(paths, parts, worker.run_all(commands), strict=True):
        if done.returncode != 0:
            worker.log("warning", f"{path} was not extracted: {_first_line(done.stdout)}")
        inputs.append(str(path if done.returncode else part))
    for step in plan.steps:
        start = [*worker.nsys_pp, step.command, *export, *forward_options(parsed, step.command)]
        output = f"--output={folder / step.output}"
        forms = [[]] if step.output else [["--format=parquet"], *[["--format=csv"]] * csv]
        for form in forms:
            if not _run_step(step, [*start, output, *form, "--", *inputs], worker):
                break
    if not keep_parts:
        shutil.rmtree(folder / "parts")


def sort_reports(reports: Iterable[str]) -> list[Path]:
    """Return reports in the natural order of nsys-pp, each replaced by its SQLite export if there is one.

    Other exports are ignored: folders of tables may come from recipes, which export only some tables.
    """
    paths = sorted((Path(os.path.abspath(report)) for report in reports), key=_natural_key)
    return [_find_export(path) for path in paths]


def list_outputs(folder: Path, *, without: str) -> dict[str, str]:
    """Return the type of each file in the folder of results and below, by its path in there, in order of paths.

    Args:
        folder: The folder of results.
        without: A file in it that is listed already.
    """
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {file: OUTPUT_TYPES.get(Path(file).suffix, "File") for file in files if file != without}


def _find_export(report: Path) -> Path:
    export = report.with_suffix(".sqlite")
    try:
        is_fresh = export.stat().st_mtime_ns >= report.stat().st_mtime_ns
    except OSError:
        return report
    return export if is_fresh else report


def _natural_key(path: Path) -> list[list[tuple[str, int]]]:
    return [
        [(text, int(digits or -1)) for text, digits in re.findall(r"(\D*)(\d*)", name)] for name in path.parts
    ]


def _run_step(step: Step, command: Sequence[str], worker: Worker) -> bool:
    """Run a step; False if it is optional and has no result."""
    done = subprocess.run(command, check=False, **CAPTURE)  # type: ignore[call-overload]
    if done.returncode in (0, _SKIPPED):
        for line in done.stdout.splitlines():
            worker.log("warning" if line.startswith("skipped ") else "info", line)
        return True
    if step.is_optional and done.returncode == 1 and "Error: " in done.stdout:
        worker.log("info", f"no {step.command}: {_first_line(done.stdout)}")
        return False
    raise WorkError(f"nsys-pp {step.command} failed: {done.stdout.strip()}")


def _first_line(text: str) -> str:
    """Return the error message of an output, or its last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line[len("Error: ") :] for line in lines if line.startswith("Error: ")]
    return (errors or lines[-1:] or ["no output"])[0]
