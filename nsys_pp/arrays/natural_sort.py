"""Natural order of names: `node2` before `node10`."""

from __future__ import annotations

import re

# Python converts no text of more than 4,300 digits to a number; of such a one, the pieces are compared
_WORDS = re.compile(r"(\D*)(\d{0,4000})")


def natural_key(text: str) -> list[tuple[str, int]]:
    """Split a name into words and numbers, as a key to sort by.

    >>> sorted(["node10", "node2"], key=natural_key)
    ['node2', 'node10']
    """
    return [(word, int(number or -1)) for word, number in _WORDS.findall(text)]
