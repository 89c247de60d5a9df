"""What a command says on stderr, and what is kept of it for its result."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, Literal

import click

from nsys_pp.errors import NsysPPError

Level = Literal["info", "warning", "error"]
_KEY = "nsys_pp.record"


@dataclass(slots=True)
class Record:
    """What is known of a command that runs."""

    in_json: bool = False  # how lines are written
    began_s: float = field(default_factory=time.monotonic)
    started: str = field(default_factory=lambda: _now())
    notes: list[str] = field(default_factory=list)
    skipped: list[tuple[Path, NsysPPError]] = field(default_factory=list)
    outputs: list[Path] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)  # wall seconds
    _phase: tuple[str, float] | None = None

    def enter(self, phase: str | None) -> None:
        """Begin a phase of the work, which ends the one before."""
        now = time.monotonic()
        if self._phase is not None:
            name, since = self._phase
            if name == phase:
                return
            self.phases[name] = self.phases.get(name, 0.0) + now - since
        self._phase = None if phase is None else (phase, now)


def current_record() -> Record:
    """Give the record of the command that runs."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return Record()
    record: Record = ctx.meta.setdefault(_KEY, Record())
    return record


def begin_record(ctx: click.Context, *, in_json: bool) -> Record:
    """Start a new one."""
    record = ctx.meta[_KEY] = Record(in_json=in_json)
    return record


def say(
    message: str,
    *,
    event: str,
    level: Level = "info",
    before: str = "",
    facts: Mapping[str, Any] | None = None,
    record: Record | None = None,
    file: IO[str] | None = None,
) -> None:
    """Say something on stderr: a line, or with `--log-format json` an object.

    Args:
        message: What a person reads.
        event: What a program goes by.
        level: How bad it is.
        before: What stands before the message in a line.
        facts: What else a program may want to know.
        record: Of the command, where another thread says something for it.
        file: Likewise, what is stderr there.
    """
    record = record or current_record()
    line = before + message
    if record.in_json:
        told = {"time": _now(), "level": level, "event": event, "message": message, **(facts or {})}
        line = json.dumps(told, ensure_ascii=False)
    click.echo(line, file=file, err=file is None)


def say_wrote(message: str, *paths: Path) -> None:
    """Say what was written, and keep it for the result."""
    current_record().outputs.extend(paths)
    say(message, event="wrote", facts={"outputs": describe_outputs(paths)})


def note(message: str) -> None:
    """Say what is doubtful."""
    current_record().notes.append(message)
    say(message, event="note", level="warning", before="note: ")


def describe_outputs(paths: tuple[Path, ...] | list[Path]) -> list[dict[str, Any]]:
    """Put outputs into plain types."""
    return [{"path": str(path), "bytes": path.stat().st_size if path.is_file() else None} for path in paths]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
