"""Files of scores, which long runs continue, and Markdown files with their tables."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.worlds.tables import Table
from tests.worlds.world import WorldScore

_BEGIN, _END = "<!-- worlds -->", "<!-- end of worlds -->"


def append_score(path: Path | None, score: WorldScore) -> None:
    """Add a score to a file."""
    if path is not None:
        with path.open("ab") as file:
            pickle.dump(score, file)


def read_scores(path: Path | None) -> Iterator[WorldScore]:
    """Read the scores of a file, in order; none if it does not exist."""
    if path is None or not path.exists():
        return
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except EOFError:
                return


def write_tables(path: Path, tables: Sequence[Table]) -> None:
    """Replace the tables between the marks of a Markdown file."""
    text = path.read_text()
    between = re.compile(f"{_BEGIN}.*{_END}", re.DOTALL)
    if not between.search(text):
        raise SystemExit(f"{path} has no `{_BEGIN}` and `{_END}`")
    body = "\n\n".join((_BEGIN, *map(str, tables), _END))
    path.write_text(between.sub(lambda _: body, text))
