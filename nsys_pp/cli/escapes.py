"""Text of reports on a terminal: names of hosts, GPUs, processes and files may contain control characters.

An escape sequence could change the title of the terminal, hide a line or move the cursor; a line break could imitate a
line of nsys-pp. Tables replace such characters themselves.
"""

from __future__ import annotations

import re

# C0 and C1 controls; line and paragraph separators; marks that change the direction of the text after them
_CONTROLS = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_IN_LINES = re.compile(f"[{_CONTROLS}]")
_IN_TEXT = re.compile(f"(?![\n\t])[{_CONTROLS}]")
_ON_SCREENS = re.compile(f"(\x1b\\[[0-9;]*m)|(?!\n)[{_CONTROLS}]")


def escape_line(text: str) -> str:
    r"""Escape control characters, also line breaks.

    >>> escape_line("node\x1b]0;x\x07\nError: none")
    'node\\x1b]0;x\\x07\\nError: none'
    """
    return _IN_LINES.sub(_escape, text)


def escape_text(text: str) -> str:
    """Escape control characters but line breaks and tabs: for tracebacks."""
    return _IN_TEXT.sub(_escape, text)


def escape_screen(text: str) -> str:
    """Escape control characters but line breaks and the colors that the renderer of the screen writes."""
    return _ON_SCREENS.sub(lambda match: match[0] if match[1] else _escape(match), text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
