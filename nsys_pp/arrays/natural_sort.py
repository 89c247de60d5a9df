"""Natural order of names: `node2` before `node10`."""

from __future__ import annotations

import re


def natural_key(text: str) -> list[tuple[str, int]]:
    """Split a name into words and numbers, as a key to sort by.

    >>> sorted(["node10", "node2"], key=natural_key)
    ['node2', 'node10']
    """
    return [(word, int(number or -1)) for word, number in re.findall(r"(\D*)(\d*)", text)]
