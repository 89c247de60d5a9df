"""A command of the program: its options, its progress on stderr, and its end.

Options come from `nsys_pp.options`. Progress is a bar on a terminal, and lines in a log.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from nsys_pp.cli.result import Record, current_record, log, log_skipped, run_recorded
from nsys_pp.options import LOGGING, OPTIONS, SECTIONS, Option
from nsys_pp.progress import Progress as Callback
from nsys_pp.progress import Share
from nsys_pp.units import format_count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar


_BAR_DELAY_S = 1.0
_LINE_INTERVAL_S = 5.0
_LEAST_SHARE = 0.02  # of a phase, before the time that is left is estimated
_WIDE = 120  # characters
_INTERVAL_VARIABLE = "NSYS_PP_LOG_SECONDS"


@contextmanager
def _show_bar() -> Iterator[Callback]:
    from rich.console import Console

    bar = build_bar(Console(stderr=True))
    task = bar.add_task("reading", total=1.0, counts="")
    phase = ("", 0)

    def update(work: str, share: float) -> None:
        nonlocal phase
        if isinstance(share, Share) and (share.doing, share.total) != phase:
            phase = share.doing, share.total
            bar.reset(task)  # each phase has a speed of its own
        activity, _, counts = work.partition(": ")
        bar.update(task, description=activity, counts=counts, completed=share)

    timer = threading.Timer(_BAR_DELAY_S, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield update
    finally:
        timer.cancel()
        bar.stop()


def build_bar(console: Console) -> Bar:
    """Build a bar of tasks that have the field `counts`.

    On a narrow console it is short and has no elapsed time; the activity, with the name of a report, is cut
    to the rest of the width. Counts and the time left are not cut.
    """
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from rich.text import Text

    class Activity(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(task.description, no_wrap=True, overflow="ellipsis")

    is_wide = console.width >= _WIDE
    times = Column(no_wrap=True, min_width=len("0:00:00"))
    return Progress(
        SpinnerColumn(),
        Activity(),
        TextColumn("{task.fields[counts]}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=30 if is_wide else 8, table_column=Column(no_wrap=True)),
        *([TimeElapsedColumn(times), TextColumn("elapsed,")] if is_wide else []),
        TimeRemainingColumn(table_column=times),
        TextColumn("left", table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
    )


@contextmanager
def _write_lines(record: Record, stderr: IO[str]) -> Iterator[Callback]:
    interval_s = _LINE_INTERVAL_S
    with suppress(KeyError, ValueError):
        interval_s = min(max(0.0, float(os.environ[_INTERVAL_VARIABLE])), threading.TIMEOUT_MAX)
    lines = _ProgressLines(record, stderr)
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(interval_s or None):  # 0: no lines
            lines.write()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield lines.update
        stop.set()
        lines.write_last()
    finally:
        stop.set()
        thread.join()


class _ProgressLines:
    """Lines about the current work.

    Counts and rate of reports, or the share of a single report, and the time left.
    """

    def __init__(self, record: Record, stderr: IO[str]) -> None:
        self._record, self._stderr = record, stderr
        self._current: tuple[str, float] = ("reading", 0.0)
        self._began_s = time.monotonic()
        self._phase: tuple[str, float, int] = ("", self._began_s, 0)  # name, begin, count at the begin
        self._total = 0  # of the phase: an overview and the traces of its folder are counted apart
        self._has_written = False

    def update(self, work: str, share: float) -> None:
        if isinstance(share, Share):
            phase, _, first = self._phase
            if share.doing != phase or share.total != self._total or share.done < first:
                self._phase = share.doing, time.monotonic(), share.done
                self._total = share.total
        self._current = work, share

    def write(self) -> None:
        self._write(*self._current, event="progress")

    def write_last(self) -> None:
        """Write the line "done", if there were others."""
        if self._has_written:
            self._write("done", 1.0, event="done")

    def _write(self, work: str, share: float, *, event: str) -> None:
        self._has_written = True
        now_s = time.monotonic()
        elapsed_s = now_s - self._began_s
        facts: dict[str, str | float] = {"share": round(float(share), 4), "elapsed_s": round(elapsed_s, 1)}
        counts = ""
        if isinstance(share, Share):
            phase, since_s, first = self._phase
            rate = (share.done - first) / max(now_s - since_s, 1e-3)
            facts |= {"doing": phase, "done": share.done, "total": share.total, "rate_per_s": round(rate, 3)}
            counts = (
                f", {share.done:,} of {share.total:,} ({_format_rate(rate)}/s)" if share.total > 1 else ""
            )
            if (left_s := estimate_left(share, now_s - since_s)) is not None:
                facts["left_s"] = round(left_s, 1)
                counts += f", {share:.0%}" if share.total == 1 else ""
                counts += f", about {left_s:.0f} s left"
        log(
            work if self._record.in_json else f"{elapsed_s:.0f} s: {work}{counts}",
            event=event,
            facts=facts,
            record=self._record,
            file=self._stderr,
        )


def _format_rate(rate: float) -> str:
    """Format a rate with two digits, or without a fraction.

    >>> _format_rate(0.5), _format_rate(7.25), _format_rate(231.6)
    ('0.5', '7.2', '232')
    """
    return f"{rate:.2g}" if rate < 99.5 else f"{rate:,.0f}"


def estimate_left(share: float, elapsed_s: float) -> float | None:
    """Estimate the time that is left of a phase, in s, from its duration so far.

    None: too early, or at its end.

    >>> estimate_left(0.25, 5.0), estimate_left(0.001, 5.0), estimate_left(1.0, 5.0)
    (15.0, None, None)
    """
    return elapsed_s * (1 - share) / share if _LEAST_SHARE <= share < 1 else None


_NAME_WIDTH = 30


class Parsed(click.ParamType[Any]):
    """Values that a function parses; its `ValueError` is wrong usage."""

    name = "value"

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class TableOption(click.Option):
    """An option of the table; `section` is its heading in `--help`."""

    def __init__(self, option: Option) -> None:
        super().__init__(
            [*option.flags.split(), option.name],
            help=option.help,
            type=None if option.type is bool else _build_type(option),
            is_flag=option.type is bool,
            default=bool(option.default) if option.type is bool else option.default,
            multiple=option.is_many,
            metavar=None if "/" in option.flags else option.metavar,
            envvar=option.variable,
        )
        self.section, self.option = option.section, option

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option's name and help text, followed by the values and the default of its command."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        default = self.option.default_text
        if default is None and self.option.type is not bool and self.option.default is not None:
            default = str(self.option.default)
        sentences = [record[1], self.option.values, f"Default: {default}." if default else ""]
        return record[0], " ".join(filter(None, sentences))

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return nothing: defaults are part of the help text."""
        return {}


class TableArgument(click.Argument):
    """An argument of the table, with a help text."""

    def __init__(self, option: Option) -> None:
        super().__init__(
            [option.name],
            type=_build_type(option),
            nargs=1 if option.metavar is None else -1,
            required=not option.is_optional,
            metavar=option.metavar,
        )
        self.section, self.text = option.section, option.help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the argument's name and help text."""
        return self.make_metavar(ctx), self.text


def _build_type(option: Option) -> Any:
    if option.choices:
        return click.Choice(option.choices)
    if option.type is Path:
        return click.Path(
            path_type=Path, file_okay=not option.is_folder, dir_okay=option.is_folder in (None, True)
        )
    if option.type is int:
        return click.IntRange(*option.limits)
    return None if option.type is str else Parsed(option.type)


_MOST_LETTERS = 1 << 26  # of a list on standard input, which need not end


class SectionCommand(click.Command):
    """A command whose `--help` groups options by topic."""

    allow_extra_args = True  # to say more of them than click does

    def invoke(self, ctx: click.Context) -> None:
        """Call the function of the command, and record how it ends."""
        if ctx.args:
            taken = " ".join(self.collect_usage_pieces(ctx)[1:])
            raise click.UsageError(
                f"{format_count(len(ctx.args), 'argument')} too many, from `{ctx.args[0]}` on: `{self.name}` "
                f"takes {taken or 'none'}; quote patterns of several reports, as in 'node*/*.sqlite'"
            )
        options = dict(ctx.params)
        if options.pop("as_json", False):
            is_given = ctx.get_parameter_source("format") is not click.core.ParameterSource.DEFAULT
            if is_given and options["format"] != "json":
                raise click.UsageError(
                    f"`--json` and `--format {options['format']}` contradict each other; omit one"
                )
            options["format"] = "json"
        if "offsets" in options:
            machines = [machine for machine, _ in options["offsets"]]
            for machine in machines:
                if machines.count(machine) > 1:
                    raise click.UsageError(f"duplicate `--offset` for machine `{machine}`")
            options["offsets"] = dict(options["offsets"])
        if "-" in options.get("reports", ()):
            text = sys.stdin.read(_MOST_LETTERS)
            if len(text) == _MOST_LETTERS or "\0" in text:
                raise click.UsageError("standard input is no list of reports: one a line, 64 MB at most")
            lines = (line.removesuffix("\r") for line in text.split("\n"))  # other ends may be in names
            listed = [line for line in lines if line.strip()]
            options["reports"] = (*(name for name in options["reports"] if name != "-"), *listed)
            if not options["reports"]:
                raise click.UsageError("standard input names no reports")
        assert self.callback is not None
        run_recorded(ctx, self.callback, options)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of the usage line; not what the command has instead of a name."""
        return [piece for piece in super().collect_usage_pieces(ctx) if piece != ctx.info_name]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a heading and a list of options per section."""
        records: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        for param in sorted(self.get_params(ctx), key=lambda param: isinstance(param, click.Option)):
            if (record := param.get_help_record(ctx)) is not None:
                records[getattr(param, "section", LOGGING)].append(record)
        widths = [len(name) for rows in records.values() for name, _ in rows]
        width = max((width for width in widths if width <= _NAME_WIDTH), default=0)
        for section, rows in records.items():
            if rows:
                with formatter.section(section):
                    # The padding aligns the help texts of all sections.
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows], _NAME_WIDTH)


class OrderedGroup(click.Group):
    """A group that lists its commands in the order of their definition."""

    command_class = SectionCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of their definition."""
        return list(self.commands)


def command(**own: Mapping[str, Any]) -> Callable[[Callable[..., None]], SectionCommand]:
    """Return a decorator that makes a command of a function: it has the options of the table that name it.

    Args:
        own: By option, fields of `Option` that are the command's own, as its default.
    """

    def make(function: Callable[..., None]) -> SectionCommand:
        name = function.__name__
        chosen = [
            option._replace(**own.get(option.name, {}))
            for option in OPTIONS
            if name in option.commands.split()
        ]
        params: list[click.Parameter] = [
            TableOption(option) if option.flags else TableArgument(option) for option in chosen
        ]
        return SectionCommand(name, callback=function, params=params, help=function.__doc__)

    return make


def run_with_progress(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Call a function of the library, show its progress, and record what its result is based on.

    On a terminal, a bar appears on stderr after a second. Elsewhere a line is written every five
    seconds, or every `$NSYS_PP_LOG_SECONDS`; 0 writes no lines.
    """
    record = current_record()
    show = _show_bar() if sys.stderr.isatty() and not record.in_json else _write_lines(record, sys.stderr)
    with show as show_share:

        def report_share(work: str, share: float) -> None:
            record.enter(share.doing if isinstance(share, Share) else work.split(" ", 1)[0])
            show_share(work, share)

        try:
            result = function(*inputs, progress=report_share, **options)
        finally:
            record.enter(None)
    record.row_counts = result.row_counts
    log_skipped(result.skipped)
    return result


def refuse_given(names: str, reason: str) -> None:
    """Refuse options on the command line, by their names in the table, that have no effect."""
    ctx = click.get_current_context()
    for param in ctx.command.params:
        is_given = ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
        if param.name in names.split() and is_given:
            raise click.UsageError(f"{reason}; omit `{param.opts[0]}`")


def end_with(result: Any, status: int = 0) -> None:
    """Exit with a status, or with 3 if inputs were skipped."""
    if status := status or 3 * bool(result.skipped):
        click.get_current_context().exit(status)


def parse_table_names(tables: Collection[str], others: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of `--table` of a command: `all` has no tables of `others`."""
    names = (*tables, *others)

    def parse(text: str) -> tuple[str, ...]:
        words = (name.strip() for name in text.split(","))
        chosen = dict.fromkeys(name for word in words for name in (tables if word == "all" else (word,)))
        for name in chosen:
            if name not in names:
                raise ValueError(f"unknown table {name!r}; expected {', '.join(names)} or all")
        return tuple(chosen)

    more = f"; not in all: {', '.join(others)}" if others else ""
    return {"type": parse, "values": f"Names: {', '.join(tables)}{more}."}
