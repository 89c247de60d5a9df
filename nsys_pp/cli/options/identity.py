"""Identity options: the ranks of a run, where reports do not contain them."""

from __future__ import annotations

from typing import Any

import click

from nsys_pp import commands as api
from nsys_pp.cli.sections import RANKS, Command, option


class LayoutText(click.ParamType[api.Layout]):
    """Sizes of the parallel dimensions: `pp=4,tp=2,dp=2`."""

    name = "layout"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> api.Layout:
        """Return the layout."""
        if isinstance(value, api.Layout):
            return value
        try:
            return api.parse_layout(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class RankPattern(click.ParamType[str]):
    """A regular expression; its first group is the rank."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the expression."""
        try:
            return api.check_rank_pattern(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def identity_options(command: Command) -> Command:
    """Add `--layout` and `--rank-from`."""
    command = option(
        "--rank-from",
        section=RANKS,
        type=RankPattern(),
        metavar="REGEX",
        help=r"Rank in the file name: the first group of this regular expression, e.g. 'node(\d+)'."
        " Used for reports that do not contain their rank.",
    )(command)
    return option(
        "--layout",
        section=RANKS,
        type=LayoutText(),
        metavar="pp=4,tp=2,dp=2[,order=tp-dp-pp]",
        help="Parallel layout of the ranks: sizes of pp, tp, dp (also cp, ep), and their order, fastest-changing"
        " first (tp-cp-ep-dp-pp if omitted).",
    )(command)
