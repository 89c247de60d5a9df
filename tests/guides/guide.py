"""Worked examples of CONTRIBUTING.md, applied to a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
_BLOCK = re.compile(
    r"^\*\*`(?P<file>nsys_pp/[^`]+)`\*\*[^\n]*\n\n```(?P<kind>python|diff)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class GuideError(Exception):
    """A block of a guide does not apply to the package as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A change of a guide: a whole new file ("python"), or hunks of changes of a file ("diff")."""

    file: str
    kind: str
    code: str


def list_blocks(heading: str) -> list[Block]:
    """List the changes in the section of CONTRIBUTING.md below a heading that starts with `heading`."""
    _, found, rest = CONTRIBUTING.read_text().partition(f"\n### {heading}")
    if not found:
        raise GuideError(f"CONTRIBUTING.md has no section `{heading}`")
    section = re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return [Block(**match.groupdict()) for match in _BLOCK.finditer(section)]


def follow_guide(heading: str, folder: Path) -> set[str]:
    """Copy the package to a folder and apply a guide to the copy.

    Returns:
        The files that the guide changes or adds.
    """
    shutil.copytree(ROOT / "nsys_pp", folder / "nsys_pp", ignore=shutil.ignore_patterns("__pycache__"))
    blocks = list_blocks(heading)
    for block in blocks:
        path = folder / block.file
        if block.kind == "diff":
            path.write_text(apply_hunks(path.read_text(), block))
        elif path.exists():
            raise GuideError(f"{block.file} is not new")
        else:
            path.write_text(block.code)
    return {block.file for block in blocks}


def apply_hunks(text: str, block: Block) -> str:
    """Apply hunks, separated by `@@`, to a text; their old lines must occur in it exactly once."""
    for hunk in re.split(r"^@@.*\n", block.code, flags=re.MULTILINE):
        lines = hunk.splitlines()
        old, new = ("".join(f"{line[1:]}\n" for line in lines if line[:1] != sign) for sign in ("+", "-"))
        if text.count(old) != 1:
            raise GuideError(f"{block.file} has {text.count(old)} times, not once:\n{old}")
        text = text.replace(old, new)
    return text


def run_copy(folder: Path, *words: str | Path) -> str:
    """Run the command line of the package in a folder; return its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "nsys_pp", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "160"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
