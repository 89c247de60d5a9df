"""Words of findings: times, shares, and lists of names."""

from __future__ import annotations

from collections.abc import Sequence

from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US

_MOST_NAMES = 4
_MOST_LETTERS = 60


def format_time(time_ns: float) -> str:
    """Format a time with two or three digits.

    >>> format_time(6_100_000), format_time(48_480_000), format_time(8_120), format_time(1_668_860_000)
    ('6.1 ms', '48.5 ms', '8.1 us', '1.67 s')
    """
    for unit, length_ns in (("s", NS_PER_S), ("ms", NS_PER_MS), ("us", NS_PER_US)):
        if time_ns >= 0.9995 * length_ns:
            value = time_ns / length_ns
            digits = 2 if unit == "s" else 1
            return f"{value:,.0f} {unit}" if value >= 99.95 else f"{value:.{digits}f} {unit}"
    return f"{time_ns:.0f} ns"


def format_share(share: float) -> str:
    """Format a share in percent.

    >>> format_share(0.2512), format_share(0.034), format_share(0), format_share(0.997)
    ('25 %', '3.4 %', '0 %', '99.7 %')
    """
    if share == 0:
        return "0 %"
    is_fine = abs(share) < 0.0995 or 0.99 < share < 0.9995
    return f"{100 * share:.1f} %" if is_fine else f"{100 * share:.0f} %"


def format_excess(excess: float) -> str:
    """Format a relative excess: in percent, or as a factor.

    >>> format_excess(0.25), format_excess(4.02)
    ('25 % longer', '5.0 times as long')
    """
    return f"{1 + excess:.1f} times as long" if excess >= 1 else f"{format_share(excess)} longer"


def cut_name(name: str) -> str:
    r"""Cut a name that a program chose to a length for sentences, without characters that control a terminal.

    >>> cut_name("next_batch"), cut_name("evil\x1b[2J\n"), len(cut_name(100 * "x"))
    ('next_batch', 'evil?[2J?', 60)
    """
    shown = "".join(letter if letter.isprintable() else "?" for letter in name[:_MOST_LETTERS])
    return shown if len(name) <= _MOST_LETTERS else f"{shown[:-1]}…"


def join_names(names: Sequence[str]) -> str:
    """Join names into a list; of many, the first ones.

    >>> join_names(["rank 1"]), join_names(["a", "b", "c"]), join_names(["a", "b", "c", "d", "e", "f"])
    ('rank 1', 'a, b and c', 'a, b, c, d and 2 more')
    """
    if len(names) == 1:
        return names[0]
    if len(names) > _MOST_NAMES:
        return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def join_ranks(ranks: Sequence[int]) -> str:
    """Join ascending ranks into a list; neighbours are folded, and of many the first ones are named.

    >>> join_ranks([4]), join_ranks([6, 7]), join_ranks([0, 1, 2, 3, 8])
    ('rank 4', 'ranks 6 and 7', 'ranks 0 to 3 and 8')
    >>> join_ranks([1, 5, 9, 13, 17, 21])
    'ranks 1, 5, 9, 13 and 2 more'
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]:,}"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [
        part
        for run in runs
        for part in ([[run[0], run[-1]]] if len(run) > 2 else [[rank, rank] for rank in run])
    ]
    names = [f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in parts]
    if len(names) <= _MOST_NAMES:
        return f"ranks {join_names(names)}"
    rest = sum(last - first + 1 for first, last in parts[_MOST_NAMES:])
    return f"ranks {', '.join(names[:_MOST_NAMES])} and {rest:,} more"


def describe_steps(slow: Sequence[int], all_steps: Sequence[int]) -> tuple[str, int | None]:
    """Describe the steps of a finding; return the first one if it began inside the capture and lasted to its end.

    >>> describe_steps([3, 4], [3, 4]), describe_steps([4, 5], [3, 4, 5]), describe_steps([5], [3, 4, 5])
    (('in both steps', None), ('since step 4', 4), ('in step 5', None))
    >>> describe_steps([3, 4], [3, 4, 5])[0], describe_steps([3, 5, 7], [3, 4, 5, 6, 7])[0]
    ('until step 4', 'in 3 of 5 steps')
    """
    count, total = len(slow), len(all_steps)
    if count == total and total > 1:
        return ("in both steps" if total == 2 else f"in all {total:,} steps"), None
    if count == 1:
        return f"in step {slow[0]}", None
    if list(slow) == list(all_steps[-count:]):
        return f"since step {slow[0]}", slow[0]
    if list(slow) == list(all_steps[:count]):
        return f"until step {slow[-1]}", None
    return f"in {count:,} of {total:,} steps", None
