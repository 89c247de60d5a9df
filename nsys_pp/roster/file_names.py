"""Ranks that people and launchers put into names of files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from nsys_pp.errors import NsysPPError

# Words that mean the rank, in the order in which they are tried; then a number at the end.
_WORDS = (
    r"(?:^|[^a-zA-Z])rank[-_.=]?(\d{1,6})(?!\d)",
    r"(?:^|[^a-zA-Z])mpi[-_.=]?(\d{1,6})(?!\d)",
    r"(?:^|[-_.])r(\d{1,6})(?=[-_.]|$)",
)
_AT_THE_END = r"[-_.](\d{1,5})$"


def check_rank_pattern(pattern: str) -> str:
    """Give the pattern back if it can be used.

    Raises:
        ValueError: It is no regular expression, or has no group.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"`{pattern}` is no regular expression: {error}") from None
    if not expression.groups:
        raise ValueError(f"`{pattern}` has no group: put the number into brackets, as in `rank(\\d+)`")
    return pattern


def read_ranks(paths: Mapping[int, Path], pattern: str) -> dict[int, int]:
    """Read ranks by the user's own pattern.

    Args:
        paths: Reports by their place.
        pattern: A regular expression, searched for in the file's name; its first group is the rank.

    Returns:
        The rank of every report whose name has one.

    Raises:
        ValueError: It is no regular expression, or has no group.
        NsysPPError: No name has it, or what it finds is not a number.
    """
    expression = re.compile(check_rank_pattern(pattern))
    ranks = {}
    for place, path in paths.items():
        match = expression.search(path.name)
        if match is None or match[1] is None:
            continue
        if not re.fullmatch(r"\d{1,9}", match[1]):
            raise NsysPPError(
                f"`{pattern}` finds `{match[1]}` in `{path}`, which is not a rank",
                "let the first group match digits only, as in `rank(\\d+)`",
            )
        ranks[place] = int(match[1])
    if paths and not ranks:
        first = next(iter(paths.values()))
        raise NsysPPError(
            f"`{pattern}` is in none of the {len(paths):,} file names, not in `{first.name}`",
            "the pattern is searched for in each report's file name",
        )
    return ranks


def guess_ranks(paths: Mapping[int, Path], taken: Sequence[int]) -> dict[int, int]:
    """Guess ranks by how files usually are named: `run_rank3`, `p4.r1.mpi3`, `report.r3.`, `report_3`.

    Args:
        paths: The reports without a known rank, by their place.
        taken: Ranks that other reports have.

    Returns:
        A rank for each, if all names follow one pattern with different numbers, none of them taken;
        else nothing. One file alone needs a word that means the rank: `report_2` may be the second try.

    >>> guess_ranks({0: Path("p4.r1.mpi0.sqlite"), 1: Path("p4.r1.mpi1.sqlite")}, [])
    {0: 0, 1: 1}
    >>> guess_ranks({0: Path("a_0.sqlite"), 1: Path("b_0.sqlite")}, [])
    {}
    """
    for pattern in (*_WORDS, _AT_THE_END):
        if pattern == _AT_THE_END and len(paths) < 2:
            continue
        found = {place: re.findall(pattern, path.stem) for place, path in paths.items()}
        ranks = {place: int(numbers[-1]) for place, numbers in found.items() if numbers}
        numbers = [*ranks.values()]
        if len(ranks) == len(paths) and len({*numbers}) == len(numbers) and not {*numbers} & {*taken}:
            return ranks
    return {}
