"""Identity options: the ranks of a run, where reports do not contain them."""

from __future__ import annotations

from nsys_pp.cli.sections import RANKS, Command, option


def identity_options(command: Command) -> Command:
    """Add `--layout` and `--rank-from`."""
    command = option(
        "--rank-from",
        section=RANKS,
        metavar="REGEX",
        help=r"Rank in the file name: the first group of this regular expression, e.g. 'node(\d+)'."
        " Used for reports that do not contain their rank.",
    )(command)
    return option(
        "--layout",
        section=RANKS,
        metavar="pp=4,tp=2,dp=2[,order=tp-dp-pp]",
        help="Parallel layout of the ranks: sizes of pp, tp, dp (also cp, ep), and their order, fastest-changing"
        " first (tp-cp-ep-dp-pp if omitted).",
    )(command)
