"""What a command says on stderr: lines of its log, errors with hints, skipped inputs.

And the record of it for `--result`.

Names of hosts, GPUs, processes and files may contain control characters: an escape sequence could change the
title of the terminal, hide a line or move the cursor, and a line break could imitate a line of nsys-pp. So
they are escaped.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import click

from nsys_pp.errors import REPORT_IT, NsysPPError, UnforeseenError

if TYPE_CHECKING:
    import polars as pl

    from nsys_pp.frames.verdict import Verdict

Level = Literal["info", "warning", "error"]
_KEY = "nsys_pp.record"
# C0 and C1 controls; line and paragraph separators; marks that change the direction of the text after them
_CONTROLS = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_IN_LINES = re.compile(f"[{_CONTROLS}]")
_IN_TEXT = re.compile(f"(?![\n\t])[{_CONTROLS}]")
_ON_SCREENS = re.compile(f"(\x1b\\[[0-9;]*m)|(?!\n)[{_CONTROLS}]")


def escape_line(text: str) -> str:
    r"""Escape control characters, also line breaks.

    >>> escape_line("node\x1b]0;x\x07\nError: none")
    'node\\x1b]0;x\\x07\\nError: none'
    """
    return _IN_LINES.sub(_escape, text)


def escape_text(text: str) -> str:
    """Escape control characters but line breaks and tabs: for tracebacks."""
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


def begin_record(ctx: click.Context, *, in_json: bool, shows_tracebacks: bool) -> Record:
    """Start the record of a command."""
    record = ctx.meta[_KEY] = Record(in_json=in_json, shows_tracebacks=shows_tracebacks)
    return record


def log(
    message: str,
    *,
    event: str,
    level: Level = "info",
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
        fields = {"time": _now(), "level": level, "event": event, "message": message, **(facts or {})}
        line = json.dumps(fields, ensure_ascii=False)
    click.echo(line, file=file, err=file is None)


def print_error(message: str, hint: str | None) -> None:
    """Print an error and its hint."""
    click.echo(f"Error: {escape_line(message)}", err=True)
    if hint:
        click.echo(f"\nhint: {escape_text(hint)}", err=True)


def log_output(message: str, *paths: Path) -> None:
    """Log written files, and record them."""
    current_record().outputs.extend(paths)
    log(message, event="wrote", facts={"outputs": describe_outputs(paths)})


def log_notes(messages: Sequence[str]) -> None:
    """Log notes about uncertain results, and record them."""
    current_record().notes.extend(messages)
    for message in messages:
        log(message, event="note", level="warning", prefix="note: ")


def log_skipped(skipped: Sequence[tuple[Path, NsysPPError]]) -> None:
    """List the skipped inputs that are not listed yet: before the verdict, as it lacks them."""
    record = current_record()
    skipped = [entry for entry in skipped if entry not in record.skipped]
    record.skipped.extend(skipped)
    for path, error in skipped:
        facts = {"path": str(path), "reason": error.message, "hint": error.hint}
        log(f"skipped {path}: {error.message}", event="skipped", level="warning", facts=facts)
        if isinstance(error, UnforeseenError):
            log_traceback(error.details)
    if any(isinstance(error, UnforeseenError) for _, error in skipped):
        log(REPORT_IT, event="hint", prefix="hint: ")


def log_traceback(details: str) -> None:
    """Log the traceback of an unforeseen error, if `--debug` asks for it."""
    if details and current_record().shows_tracebacks:
        log(details.rstrip(), event="traceback", level="error")


def record_rows(row_counts: pl.DataFrame | None) -> None:
    """Record the counts of rows (`RUN_ROW_COUNTS`)."""
    current_record().row_counts = row_counts


def record_verdict(verdict: Verdict) -> None:
    """Record the findings of an analysis."""
    current_record().verdict = verdict.to_dicts()


def log_verdict(verdict: Verdict) -> None:
    """Log the findings of an analysis, one line each, and record them."""
    record_verdict(verdict)
    for finding in verdict.findings:
        log(finding.line, event="finding", facts={"kind": finding.kind, "gain_ns": finding.gain_ns})


def describe_outputs(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return path and size of each output, as plain types."""
    return [{"path": str(path), "bytes": path.stat().st_size if path.is_file() else None} for path in paths]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
