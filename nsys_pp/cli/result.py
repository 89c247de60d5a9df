"""What a command says on stderr, and how it ends.

Lines of its log, errors with hints, skipped inputs, counts of rows (`--explain-rows`), and the record of all
for `--result`. Ctrl-C and SIGTERM clean up and end the process, by force if necessary.

Names of hosts, GPUs, processes and files may contain control characters: an escape sequence could change the
title of the terminal, hide a line or move the cursor, and a line break could imitate a line of nsys-pp. So
they are escaped.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import click

from nsys_pp.errors import (
    ENDINGS,
    REPORT_IT,
    NsysPPError,
    OptionError,
    UnforeseenError,
    describe_path,
    describe_unforeseen,
    escape_bytes,
    explain_os_error,
)

if TYPE_CHECKING:
    import polars as pl

    from nsys_pp.frames.verdict import Verdict


_KEY = "nsys_pp.record"

# C0 and C1 controls; line and paragraph separators; marks that change the direction of the text after them
_CONTROLS = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_IN_LINES = re.compile(f"[{_CONTROLS}]")
_IN_TEXT = re.compile(f"(?![\n\t])[{_CONTROLS}]")
_ON_SCREENS = re.compile(f"(\x1b\\[[0-9;]*m)|(?!\n)[{_CONTROLS}]")


def escape_line(text: str) -> str:
    r"""Escape control characters, also line breaks.

    >>> escape_line("node\x1b]0;x\x07\nError: none")
    'node\\x1b]0;x\\x07\\nError: none'
    """
    return _IN_LINES.sub(_escape, escape_bytes(text))


def escape_text(text: str) -> str:
    """Escape control characters but line breaks and tabs: for tracebacks, and formats of data."""
    return _IN_TEXT.sub(_escape, text)


def escape_screen(text: str) -> str:
    """Escape control characters but line breaks and the colors that the renderer of the screen writes."""
    return _ON_SCREENS.sub(lambda match: match[0] if match[1] else _escape(match), text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


@dataclass(slots=True)
class Record:
    """The record of a running command."""

    in_json: bool = False  # format of the log lines
    shows_tracebacks: bool = False  # of unforeseen errors
    began_s: float = field(default_factory=time.monotonic)
    started: str = field(default_factory=lambda: _now())
    notes: list[str] = field(default_factory=list)
    skipped: list[tuple[Path, NsysPPError]] = field(default_factory=list)
    outputs: list[Path] = field(default_factory=list)
    verdict: list[dict[str, Any]] | None = None  # None: the command has none
    row_counts: pl.DataFrame | None = None  # `RUN_ROW_COUNTS`; None: the command has none, or failed
    phases: dict[str, float] = field(default_factory=dict)  # wall seconds
    _phase: tuple[str, float] | None = None

    def enter(self, phase: str | None) -> None:
        """Begin a phase and end the previous one."""
        now = time.monotonic()
        if self._phase is not None:
            name, since = self._phase
            if name == phase:
                return
            self.phases[name] = self.phases.get(name, 0.0) + now - since
        self._phase = None if phase is None else (phase, now)


def current_record() -> Record:
    """Return the record of the running command."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return Record()
    record: Record = ctx.meta.setdefault(_KEY, Record())
    return record


def log(
    message: str,
    *,
    event: str,
    level: Literal["info", "warning", "error"] = "info",
    prefix: str = "",
    facts: Mapping[str, Any] | None = None,
    record: Record | None = None,
    file: IO[str] | None = None,
) -> None:
    """Write a line to stderr; with `--log-format json`, an object.

    Args:
        message: Text for people.
        event: Kind of line, for programs.
        level: Severity.
        prefix: Text in front of the message, in lines only.
        facts: Further keys of the object.
        record: Record of the command, required from other threads.
        file: Stream instead of stderr, required from other threads.
    """
    record = record or current_record()
    line = prefix + (escape_text(message) if event == "traceback" else escape_line(message))
    if record.in_json:
        fields = {
            "time": _now(),
            "level": level,
            "event": event,
            "message": escape_bytes(message),
            **(facts or {}),
        }
        line = json.dumps(fields)
    click.echo(line, file=file, err=file is None)


def print_error(message: str, hint: str | None) -> None:
    """Print an error and its hint."""
    click.echo(f"Error: {escape_line(message)}", err=True)
    if hint:
        click.echo(f"\nhint: {escape_line(hint)}", err=True)


def log_output(message: str, *paths: Path, event: str = "wrote") -> None:
    """Log files that were written, or are already there, and record them."""
    current_record().outputs.extend(paths)
    log(message, event=event, facts={"outputs": describe_outputs(paths)})


def log_notes(messages: Sequence[str]) -> None:
    """Log notes about uncertain results, each once, and record them."""
    notes = current_record().notes
    for message in messages:
        if (note := escape_bytes(message)) not in notes:
            notes.append(note)
            log(message, event="note", level="warning", prefix="note: ")


def log_skipped(skipped: Sequence[tuple[Path, NsysPPError]]) -> None:
    """List the skipped inputs that are not listed yet: before the verdict, as it lacks them."""
    record = current_record()
    known = {path for path, _ in record.skipped}
    skipped = [entry for entry in skipped if entry[0] not in known]
    record.skipped.extend(skipped)
    for path, error in skipped:
        log(
            f"skipped {path}: {error.message}",
            event="skipped",
            level="warning",
            facts={"path": describe_path(path), "reason": error.message, "hint": error.hint},
        )
        log_traceback(error.details)
    if any(isinstance(error, UnforeseenError) for _, error in skipped):
        log(REPORT_IT, event="hint", prefix="hint: ")


def log_traceback(details: str) -> None:
    """Log the traceback of an unforeseen error, if `--debug` asks for it."""
    if details and current_record().shows_tracebacks:
        log(details.rstrip(), event="traceback", level="error")


def begin_document(notes: Sequence[str] = (), **contents: Any) -> dict[str, Any]:
    """Return the keys of a JSON document of the running command: `contents`, and those of all documents.

    Notes are those of the record, and further ones.
    """
    record, schema = current_record(), name_schema(str(click.get_current_context().command.name))
    return {"schema": schema, **contents, **_describe_doubts(record, [*record.notes, *notes])}


def name_schema(document: str) -> str:
    """Return the schema of a JSON document; its number changes if a key goes or means something else."""
    return f"nsys-pp/{document}/1"


def _describe_doubts(record: Record, notes: Sequence[str]) -> dict[str, Any]:
    return {
        "notes": notes,
        "skipped": [
            {"path": describe_path(path), "reason": error.message, "hint": error.hint}
            for path, error in record.skipped
        ],
    }


def record_verdict(verdict: Verdict) -> None:
    """Record the findings of an analysis."""
    current_record().verdict = verdict.to_dicts()


def log_verdict(verdict: Verdict) -> None:
    """Log the findings of an analysis, one line each, and record them."""
    record_verdict(verdict)
    for finding in verdict.findings:
        log(finding.line, event="finding", facts={"kind": finding.kind, "gain_ns": finding.gain_ns})


def describe_outputs(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return path, as Python opens it, and size of each output, as plain types."""
    return [{"path": str(path), "bytes": path.stat().st_size if path.is_file() else None} for path in paths]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_PATIENCE_S = 10.0
_SOON_S = 0.02
_cause: list[int] = []  # signals, the first one first


@contextmanager
def end_on_interrupt() -> Iterator[None]:
    """Raise `KeyboardInterrupt` at Ctrl-C, SIGTERM, and SIGHUP where it is not ignored.

    Further ones are ignored to the end of the process, which removes what it has begun: batch systems send
    them to all processes of a job, also through their shell, some seconds before SIGKILL.

    Python may raise between the acquisition of a lock and the `with` that releases it, so that a
    pool of threads waits forever: after some seconds, an alarm ends the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _cause.clear()
    before = {
        ending: signal.signal(ending, _unwind)
        for ending in ENDINGS
        if ending == signal.SIGINT or signal.getsignal(ending) == signal.SIG_DFL
    }
    hook = sys.unraisablehook
    sys.unraisablehook = _raise_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if not _cause:
            for number, handler in before.items():
                signal.signal(number, handler)


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error; the interrupted code may raise another one."""
    if _cause:
        return True
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _unwind(number: int, _: object) -> None:
    _cause.append(number)
    for ending in ENDINGS:
        if signal.getsignal(ending) == _unwind:
            signal.signal(ending, signal.SIG_IGN)
    _set_alarm(_PATIENCE_S)
    raise KeyboardInterrupt


def _raise_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that occurred where no exception can be raised, in a callback of a library."""
    if _cause and unraisable.exc_type is OSError:
        return  # Python's words on a second signal, which is ignored
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
    elif hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _unwind_late)
        _set_alarm(_SOON_S)


def _unwind_late(*_: object) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _set_alarm(_PATIENCE_S)
    raise KeyboardInterrupt


def _set_alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.setitimer(signal.ITIMER_REAL, seconds)


_WITHOUT_PARTS = ("extract", "info", "project", "scrub")
_OF_NAMES = (errno.ENAMETOOLONG, errno.EACCES)


class Ending(NamedTuple):
    """What an error means for a command: its exit status, and a sentence for the user."""

    status: int
    message: str | None = None
    hint: str | None = None
    is_ours: bool = True  # printed by nsys-pp; otherwise by click, or not at all
    details: str = ""  # traceback of an unforeseen error


def explain_ending(error: BaseException) -> Ending:
    """Explain how an error ends a command."""
    if is_interrupt(error):
        number = next(iter(_cause), signal.SIGINT)  # the status is that of shells
        return Ending(128 + number, "Interrupted" if number == signal.SIGINT else "Terminated")
    if isinstance(error, NsysPPError):
        return Ending(1, error.message, error.hint, details=error.details)
    if isinstance(error, click.exceptions.Exit):
        return Ending(error.exit_code, is_ours=False)
    if isinstance(error, click.ClickException):
        return Ending(error.exit_code, error.format_message(), is_ours=False)
    if isinstance(error, OSError) and error.errno in _OF_NAMES:
        reason = explain_os_error(error)[0]
        return Ending(1, f"`{describe_path(error.filename)}`: {reason}", "choose another one")
    details = "".join(traceback.format_exception(error))
    if isinstance(error, MemoryError):
        hint = "raise the memory limit of the job, or process fewer reports at once"
        return Ending(1, "there is not enough memory", hint, details=details)
    # `| head`: click ends it; it is a `BrokenPipeError`
    is_defect = not isinstance(error, (BrokenPipeError, click.Abort, SystemExit, GeneratorExit))
    message = f"unforeseen {describe_unforeseen(error)}"
    return Ending(1, message, REPORT_IT, is_ours=is_defect, details=details if is_defect else "")


def run_recorded(ctx: click.Context, function: Callable[..., Any], options: dict[str, Any]) -> None:
    """Call the function of a command, and record its end as its options of logging ask."""
    if "log_format" not in options:
        ctx.invoke(function, **options)
        return
    in_json = options.pop("log_format") == "json"
    record = ctx.meta[_KEY] = Record(in_json=in_json, shows_tracebacks=options.pop("debug"))
    result, explains_rows = options.pop("result"), options.pop("explain_rows")
    if result is not None:
        from nsys_pp.output.files import check_output, replace_file
        from nsys_pp.output.perfetto.manifest import name_manifest

        output = options.get("output") or Path()
        outputs = [name_manifest(output), output] if output.name else []
        is_output = os.path.realpath(result) in map(os.path.realpath, outputs)
        if result.suffix != ".json" or is_output or (result.is_file() and not _is_result(result)):
            raise click.UsageError(
                f"invalid `--result {result}`; expected a .json file other than `-o`, new or of `--result`"
            )
        check_output(result, force=True)
    warnings.showwarning = lambda message, *_, **__: log_notes([str(message)])  # the group restores it
    raised: BaseException | None = None
    try:
        ctx.invoke(function, **options)
    except BaseException as error:
        raised = _name_options(ctx, error)
    ending = Ending(0) if raised is None else explain_ending(raised)
    if explains_rows and record.row_counts is not None:
        for report in list_rows(record.row_counts):
            for entry in report["tables"]:
                log(
                    f"{report['report']}: {describe_table(entry)}",
                    event="rows",
                    facts={"report": report["report"], **entry},
                )
    log_traceback(ending.details)
    if result is not None:
        try:
            if result.is_file() and not _is_result(result):
                raise NsysPPError(
                    f"`{result}` is an output of this run, and no `--result`", "choose another name"
                )
            with replace_file(result, force=True) as target:
                target.write_text(json.dumps(_describe(ctx, record, ending), indent=2) + "\n")
        except NsysPPError as refused:
            if raised is None:
                raise
            log_notes([refused.message])
    if raised is None:
        return
    if in_json and ending.is_ours:
        log(ending.message or "", event="error", level="error", facts={"hint": ending.hint})
        ctx.exit(ending.status)
    raise raised


def _is_result(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(30) in (b"", b'{\n  "schema": "nsys-pp/result/')


def _name_options(ctx: click.Context, error: BaseException) -> BaseException:
    """Return an invalid keyword of the library as wrong usage of its option, with the names of options."""
    if not isinstance(error, OptionError):
        return error
    message = error.message
    for param in ctx.command.params:
        if isinstance(param, click.Option):
            message = message.replace(f"`{param.name}`", f"`{param.opts[-1]}`")
    blamed = next((param for param in ctx.command.params if param.name == error.option), None)
    return click.UsageError(message) if blamed is None else click.BadParameter(message, ctx, blamed)


def list_rows(row_counts: pl.DataFrame) -> list[dict[str, Any]]:
    """List the rows of each table of each report as plain types; the keys are stable.

    Args:
        row_counts: `RUN_ROW_COUNTS`.

    Returns:
        For each report its path and tables: stage, our name, name in the report, rows read, used, and left
            out by
        reason. `read = used + left out` holds for each.
    """
    reports: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for stage, table, source, reason, count, report in row_counts.rows():
        tables = reports.setdefault(report, {})
        empty = {"stage": stage, "table": table, "source": source, "read": 0, "used": 0, "left_out": {}}
        entry = tables.setdefault((stage, table), empty)
        entry["read"] += count
        if reason is None:
            entry["used"] += count
        else:
            entry["left_out"][reason] = count
    return [{"report": report, "tables": [*tables.values()]} for report, tables in reports.items()]


def describe_table(entry: dict[str, Any]) -> str:
    """Format the rows of one table of `list_rows`.

    >>> rows = {"stage": "report", "table": "nvtx", "source": None, "read": 1166, "used": 1100}
    >>> describe_table({**rows, "left_out": {"without a start": 66}})
    'nvtx: 1,166 rows read, 1,100 used; left out: 66 without a start'
    """
    name = entry["source"] or entry["table"]
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in entry["left_out"].items())
    if entry["stage"] == "file":
        return f"{name}: {entry['read']:,} rows by their numbers, {entry['used']:,} there; {left_out}"
    if entry["stage"] == "projection":
        verb = {"ranges": "projected", "gpu_ops": "with their launch"}.get(name, "used")
        text = f"{name.replace('_', ' ')}: {entry['read']:,}, of these {entry['used']:,} {verb}"
    else:
        text = f"{name}: {entry['read']:,} rows read, {entry['used']:,} used"
    return f"{text}; left out: {left_out}" if left_out else text


def _describe(ctx: click.Context, record: Record, ending: Ending) -> dict[str, Any]:
    """Return the content of the result file; its keys are stable."""
    from importlib.metadata import version

    record.enter(None)
    named = [*ctx.params.get("reports", ()), ctx.params.get("a"), ctx.params.get("b")]
    named = [str(name) for name in named if name]
    return {
        "schema": name_schema("result"),
        "command": ctx.command.name,
        "version": version("nsys-pp"),
        "exit_status": ending.status,
        "error": None if ending.message is None else {"message": ending.message, "hint": ending.hint},
        "outputs": describe_outputs(record.outputs),
        "named": [*map(describe_path, named)],
        "inputs": _find_inputs(ctx, named),
        **_describe_doubts(record, record.notes),
        "verdict": record.verdict,
        "rows": None if record.row_counts is None else list_rows(record.row_counts),
        "started": record.started,
        "timings": {
            "wall_s": round(time.monotonic() - record.began_s, 3),
            "phases": [{"phase": name, "wall_s": round(wall_s, 3)} for name, wall_s in record.phases.items()],
        },
        "peak_memory_bytes": _measure_peak(),
    }


def _find_inputs(ctx: click.Context, named: list[str]) -> list[str]:
    from nsys_pp.run.inputs import list_existing_inputs

    runs = [[name] for name in named] if ctx.command.name == "compare" else [named]
    with_parts = ctx.command.name not in _WITHOUT_PARTS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the command has shown them as notes
        try:
            return [
                describe_path(path)
                for run in runs
                for path in list_existing_inputs(run, with_parts=with_parts)
            ]
        except NsysPPError:
            return []


def _measure_peak() -> dict[str, int] | None:
    """Return the peak memory of this process and of its largest worker; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    targets = {"this_process": resource.RUSAGE_SELF, "largest_worker": resource.RUSAGE_CHILDREN}
    return {name: resource.getrusage(target).ru_maxrss * unit for name, target in targets.items()}
