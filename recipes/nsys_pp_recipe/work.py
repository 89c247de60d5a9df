"""What recipes do: each report becomes a part, wherever workers are, and parts become results here."""

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
_SKIPPED = 3  # nsys-pp ends so where it left out reports that it was told to leave out


class WorkError(Exception):
    """What a user can fix, in the words of nsys-pp."""


@dataclass(frozen=True)
class Step:
    """A command of nsys-pp that makes results of all parts.

    Attributes:
        command: Its name.
        output: A file in the folder of results; empty: the folder, for tables.
        is_extra: Results are of use without it: where nothing is known to be a job there is no pipeline to show.
    """

    command: str
    output: str = ""
    is_extra: bool = False


@dataclass(frozen=True)
class Work:
    """What a recipe does.

    Attributes:
        detail: What parts show, if nothing is asked for.
        steps: In this order; the options of the first are those of the recipe.
    """

    detail: str
    steps: tuple[Step, ...]


MERGE = Work(
    "kernels",
    (
        Step("merge", "run.pftrace"),
        Step("chart", "pipeline.html", is_extra=True),
        Step("pipeline", is_extra=True),
    ),
)
PIPELINE = Work("jobs", (Step("pipeline"), Step("chart", "pipeline.html", is_extra=True)))
# parts of detail cpu are made of reports without GPU work, too
SUMMARY = Work("cpu", (Step("summary"),))


@dataclass(frozen=True)
class Worker:
    """Who does the work.

    Attributes:
        nsys_pp: The start of every command.
        nsys: The nsys that exports reports; None: nsys-pp looks for one.
        run_all: Runs commands where workers are, all at once; keeps their order.
        tell: Takes a line for the user: its level ("info" or "warning") and text.
    """

    nsys_pp: Sequence[str]
    nsys: str | None
    run_all: Callable[[Commands], Done]
    tell: Callable[[str, str], None]


def do_work(
    work: Work,
    reports: Iterable[str],
    parsed: object,
    folder: Path,
    worker: Worker,
    *,
    csv: bool,
    keep_parts: bool,
) -> None:
    """Make parts of reports and results of parts.

    What cannot be made a part is left to the commands that put parts together: they say what is wrong with it,
    or take it as it is.

    Args:
        work: What to do.
        reports: Paths.
        parsed: The parsed options of the recipe.
        folder: For results; an absolute path, which all workers can write to.
        worker: Who does it.
        csv: Also write tables as CSV.
        keep_parts: Keep the parts, in a folder `parts`.

    Raises:
        WorkError: A command failed.
    """
    paths = arrange(reports)
    export = [] if worker.nsys is None else [f"--nsys={worker.nsys}"]
    asked = forward_options(parsed, "extract")
    if not any(word.startswith("--detail=") for word in asked):
        asked = [f"--detail={work.detail}", *asked]
    parts = [folder / "parts" / str(number) / f"{path.stem}.nspart" for number, path in enumerate(paths)]
    for part in parts:
        part.parent.mkdir(parents=True)
    extract = [*worker.nsys_pp, "extract", *export, *asked]
    commands = [
        [*extract, f"--output={part}", "--", str(path)] for path, part in zip(paths, parts, strict=True)
    ]
    inputs = []
    for path, part, done in zip(paths, parts, worker.run_all(commands), strict=True):
        if done.returncode != 0:
            worker.tell("warning", f"no part was made of {path}: {_first_line(done.stdout)}")
        inputs.append(str(path if done.returncode else part))
    for step in work.steps:
        start = [*worker.nsys_pp, step.command, *export, *forward_options(parsed, step.command)]
        output = f"--output={folder / step.output}"
        forms = [[]] if step.output else [["--format=parquet"], *[["--format=csv"]] * csv]
        for form in forms:
            if not _run_step(step, [*start, output, *form, "--", *inputs], worker):
                break
    if not keep_parts:
        shutil.rmtree(folder / "parts")


def arrange(reports: Iterable[str]) -> list[Path]:
    """List reports as nsys-pp lists those of a folder: in natural order, and by their exports where these lie beside.

    Only SQLite exports are taken: folders of tables beside reports may be of recipes, which export what they need alone.
    """
    paths = sorted((Path(os.path.abspath(report)) for report in reports), key=_natural_key)
    return [_choose(path) for path in paths]


def _choose(report: Path) -> Path:
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
    """Run a step, and say whether it had anything to show."""
    done = subprocess.run(command, check=False, **CAPTURE)  # type: ignore[call-overload]
    if done.returncode in (0, _SKIPPED):
        for line in done.stdout.splitlines():
            worker.tell("warning" if line.startswith("skipped ") else "info", line)
        return True
    if step.is_extra and done.returncode == 1 and "Error: " in done.stdout:
        worker.tell("info", f"no {step.command}: {_first_line(done.stdout)}")
        return False
    raise WorkError(f"nsys-pp {step.command} failed: {done.stdout.strip()}")


def _first_line(text: str) -> str:
    """Give the line that says what is wrong."""
    lines = [line for line in text.splitlines() if line.strip()]
    telling = [line[len("Error: ") :] for line in lines if line.startswith("Error: ")]
    return (telling or lines[-1:] or ["it said nothing"])[0]
