"""Log lines on stderr, and the record of a command for `--result`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import click
from msgspec import Struct, field

from nsys_pp.cli.escapes import escape_line, escape_text
from nsys_pp.errors import NsysPPError

if TYPE_CHECKING:
    import polars as pl

    from nsys_pp.frames.verdict import Verdict

Level = Literal["info", "warning", "error"]
_KEY = "nsys_pp.record"


class Record(Struct):
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


def log_output(message: str, *paths: Path) -> None:
    """Log written files, and record them."""
    current_record().outputs.extend(paths)
    log(message, event="wrote", facts={"outputs": describe_outputs(paths)})


def log_note(message: str) -> None:
    """Log a note about an uncertain result, and record it."""
    current_record().notes.append(message)
    log(message, event="note", level="warning", prefix="note: ")


def log_notes(messages: Sequence[str]) -> None:
    """Log several notes."""
    for message in messages:
        log_note(message)


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


def describe_outputs(paths: tuple[Path, ...] | list[Path]) -> list[dict[str, Any]]:
    """Return path and size of each output, as plain types."""
    return [{"path": str(path), "bytes": path.stat().st_size if path.is_file() else None} for path in paths]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
