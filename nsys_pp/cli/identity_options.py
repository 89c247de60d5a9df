"""Options that say who is who, where reports do not tell it themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from nsys_pp import commands as api

Command = TypeVar("Command", bound=Callable[..., Any])


class LayoutText(click.ParamType[api.Layout]):
    """Parts of a parallel training: `pp=4,tp=2,dp=2`."""

    name = "pp=n,tp=n,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> api.Layout:
        """Turn the text into a layout."""
        if isinstance(value, api.Layout):
            return value
        try:
            return api.parse_layout(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class RankPattern(click.ParamType[str]):
    """A regular expression whose first group is a rank."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check that it can be used."""
        try:
            return api.check_rank_pattern(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def identity_options(command: Command) -> Command:
    """Add how ranks are laid out, and where in the file's name a rank is."""
    command = click.option(
        "--rank-from",
        type=RankPattern(),
        help="Where a report does not tell its rank: the first group of this pattern in the file's name,"
        " as in `node(\\d+)`.",
    )(command)
    return click.option(
        "--layout",
        type=LayoutText(),
        metavar="pp=4,tp=2,dp=2[,order=tp-dp-pp]",
        help="How ranks are laid out: stages of the pipeline, parts of tensors, replicas (also cp, ep)."
        " Neighbouring ranks differ in the first of the order, which is tp-cp-ep-dp-pp if not given.",
    )(command)
