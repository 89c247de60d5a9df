"""Form of the sentences on doubtful reports: one stage writes them, and others read them."""

from __future__ import annotations

from collections.abc import Iterable

REPORT = "{report}"
"""Place of the name of the report in a sentence."""
LOSS = f"nsys says of {REPORT}: "
"""Begin of the sentences with a message of nsys on lost events."""


def pick_losses(sentences: Iterable[str]) -> list[str]:
    """Pick the messages of nsys on lost events from sentences.

    >>> pick_losses(["nsys says of {report}: Not all CUDA events might have been collected.", "other"])
    ['Not all CUDA events might have been collected.']
    """
    return [text.removeprefix(LOSS) for text in sentences if text.startswith(LOSS)]
