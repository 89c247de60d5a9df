"""Sections of `--help`: options grouped by topic, in one order for all commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.types import OptionHelpExtra

Command = TypeVar("Command", bound=Callable[..., Any])

OUTPUT = "Input and output"
SELECTION = "Selection"
PROJECTION = "Projection"
TRAINING = "Training"
RANKS = "Clocks and ranks"
BATCH = "Batch processing"
LOGGING = "Logging and help"
SECTIONS = (OUTPUT, SELECTION, PROJECTION, TRAINING, RANKS, BATCH, LOGGING)

_NAME_WIDTH = 30
_RENAMED = {
    "--jobs": "--processes",
    "--job": "--job-pattern",
    "--step": "--step-pattern",
    "--tables": "--table",
    "--top": "--limit",
}


class SectionOption(click.Option):
    """An option in a section of `--help`.

    Attributes:
        section: The heading of the section.
        values_text: Sentence listing the values that a command accepts, shown after the help text.
        default_text: Description of the default. If None, the default itself is shown.
    """

    def __init__(
        self,
        *args: Any,
        section: str,
        values_text: str | None = None,
        default_text: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.section = section
        self.values_text = values_text
        self.default_text = default_text

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option's name and help text, followed by its values and default."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        default = self.default_text
        if default is None and not self.is_flag and not self.multiple and isinstance(self.default, str | int):
            default = str(self.default)
        sentences = [record[1], self.values_text, f"Default: {default}." if default else None]
        return record[0], " ".join(sentence for sentence in sentences if sentence)

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Return nothing: defaults are part of the help text."""
        return {}


class SectionArgument(click.Argument):
    """An argument with a help text in a section of `--help`.

    Attributes:
        section: The heading of the section.
        text: The help text.
    """

    def __init__(self, *args: Any, section: str, text: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.section = section
        self.text = text

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the argument's name and help text."""
        return self.make_metavar(ctx), self.text


def option(*names: str, section: str, **settings: Any) -> Callable[[Command], Command]:
    """Return a decorator that adds a `SectionOption` to a command."""
    return click.option(*names, cls=SectionOption, section=section, **settings)


class SectionCommand(click.Command):
    """A command with grouped `--help`, and suggestions for options under their former names."""

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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; an unknown option of former versions names its successor."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            renamed = _RENAMED.get(error.option_name)
            if renamed is None or not any(renamed in param.opts for param in self.params):
                raise
            message = f"No such option {error.option_name!r}. Did you mean {renamed!r}?"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None


class OrderedGroup(click.Group):
    """A group that lists its commands in the order of their definition."""

    command_class = SectionCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of their definition."""
        return list(self.commands)
