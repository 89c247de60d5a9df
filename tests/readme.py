"""The commands of README and guides, and what they print: `python -m tests.readme` writes the outputs anew."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from fixtures.simulate import main as simulate

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = (README, ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md")))
SIMULATED = re.compile(r"`python -m fixtures\.simulate slow (?P<options>[^`]+)`")
BLOCK = re.compile(r"```console\n\$ nsys-pp (?P<words>[^\n]*)\n(?P<output>.*?)```", re.DOTALL)


def run(words: str, folder: Path) -> str:
    """Run a command of a page in a folder with `fixtures`; both streams, without progress lines."""
    if not (folder / "fixtures").exists():
        (folder / "fixtures").symlink_to(ROOT / "fixtures")
    if "slow" in shlex.split(words) and not (folder / "slow").exists():
        options = SIMULATED.search(README.read_text())
        assert options
        simulate([*options["options"].split(), str(folder / "slow")])
    done = subprocess.run(
        [sys.executable, "-m", "nsys_pp", *shlex.split(words)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "110", "NO_COLOR": "1", "NSYS_PP_LOG_SECONDS": "0"},
    )
    assert done.returncode == 0, done.stdout
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def update(folder: Path) -> None:
    """Write what the commands print today into the pages."""
    for page in PAGES:
        text = page.read_text()
        page.write_text(
            BLOCK.sub(lambda m: f"```console\n$ nsys-pp {m['words']}\n{run(m['words'], folder)}```", text)
        )


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        update(Path(name))
