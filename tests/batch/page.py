"""The scripts that docs/batch.md shows: `python -m tests.batch.page` writes them anew."""

from __future__ import annotations

import re

from tests.batch.world import ROOT

PAGE = ROOT / "docs" / "batch.md"
SHOWN = re.compile(r"<!-- (?P<file>batch/\S+) -->\n```(?P<language>\w+)\n(?P<text>.*?)```\n", re.DOTALL)


def find_block(name: str) -> str:
    """Find what the page says to type, by the name that stands before it."""
    found = re.search(rf"<!-- {name} -->\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, name
    return found[1]


def update() -> None:
    """Write the files of today into the page."""
    PAGE.write_text(SHOWN.sub(_show, PAGE.read_text()))


def _show(shown: re.Match[str]) -> str:
    text = (PAGE.parent / shown["file"]).read_text()
    return f"<!-- {shown['file']} -->\n```{shown['language']}\n{text}```\n"


if __name__ == "__main__":
    update()
