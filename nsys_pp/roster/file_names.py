"""Ranks in names of files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.roster import MOST_RANKS

# Words for the rank, in the order of the attempts; then a number at the end.
_WORDS = (
    r"(?:^|[^a-zA-Z])rank[-_.=]?(\d{1,6})(?!\d)",
    r"(?:^|[^a-zA-Z])mpi[-_.=]?(\d{1,6})(?!\d)",
    r"(?:^|[-_.])r(\d{1,6})(?=[-_.]|$)",
)
_AT_THE_END = r"[-_.](\d{1,5})$"


def check_rank_pattern(pattern: str) -> str:
    """Return a pattern after checking it.

    Raises:
        ValueError: It is not a regular expression, or has no group.
    """
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"invalid regular expression `{pattern}`: {error}") from None
    if not expression.groups:
        raise ValueError(f"`{pattern}` has no group: enclose the number in parentheses, as in `rank(\\d+)`")
    return pattern


def read_ranks(paths: Mapping[int, Path], pattern: str) -> dict[int, int]:
    """Read ranks by a pattern of the user.

    Args:
        paths: Paths by index of the report.
        pattern: A regular expression, searched for in the file's name; its first group is the rank.

    Returns:
        Rank by index of the report; reports without a match are left out.

    Raises:
        ValueError: It is not a regular expression, or has no group.
        NsysPPError: It matches no name, or its group is not a number.
    """
    expression = re.compile(check_rank_pattern(pattern))
    ranks = {}
    for report, path in paths.items():
        match = expression.search(path.name)
        if match is None or match[1] is None:
            continue
        if not re.fullmatch(r"\d{1,9}", match[1]):
            raise NsysPPError(
                f"`{pattern}` matches `{match[1]}` in `{path}`, not a rank",
                "the first group must match digits only, as in `rank(\\d+)`",
            )
        ranks[report] = int(match[1])
        if ranks[report] >= MOST_RANKS:
            raise NsysPPError(
                f"`{pattern}` matches {match[1]} in `{path}`, too large for a rank; expected 0 to {MOST_RANKS - 1:,}",
                "the number may be that of a job: the first group must match the rank, as in `rank(\\d+)`",
            )
    if paths and not ranks:
        first = next(iter(paths.values()))
        raise NsysPPError(
            f"`{pattern}` matches none of the {len(paths):,} file names, as `{first.name}`",
            "the pattern is searched for in each report's file name",
        )
    return ranks


def guess_ranks(paths: Mapping[int, Path], used: Sequence[int]) -> dict[int, int]:
    """Guess ranks from common forms of names: `run_rank3`, `p4.r1.mpi3`, `report.r3.`, `report_3`.

    Args:
        paths: Paths of the reports without a known rank, by index of the report.
        used: Ranks of other reports.

    Returns:
        The rank of each report, if all names have one form with different numbers, none of them in `used`;
        else nothing. A single file needs a word for the rank: `report_2` may be a second attempt.

    >>> guess_ranks({0: Path("p4.r1.mpi0.sqlite"), 1: Path("p4.r1.mpi1.sqlite")}, [])
    {0: 0, 1: 1}
    >>> guess_ranks({0: Path("a_0.sqlite"), 1: Path("b_0.sqlite")}, [])
    {}
    """
    for pattern in (*_WORDS, _AT_THE_END):
        if pattern == _AT_THE_END and len(paths) < 2:
            continue
        matches = {report: re.findall(pattern, path.stem) for report, path in paths.items()}
        ranks = {report: int(numbers[-1]) for report, numbers in matches.items() if numbers}
        numbers = [*ranks.values()]
        if len(ranks) == len(paths) and len({*numbers}) == len(numbers) and not {*numbers} & {*used}:
            return ranks
    return {}
