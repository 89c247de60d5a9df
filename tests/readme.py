"""The commands of README and guides, and what they print: `python -m tests.readme [PAGE ...]` writes the outputs anew."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = (README, ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md")))
# A run that a page has simulated: the program, and the folder that commands of all pages may name.
SIMULATED = re.compile(
    r"`python -m (?P<program>fixtures\.(?:serving\.)?simulate) (?P<folder>[\w-]+) (?P<options>[^`]+)`"
)
BLOCK = re.compile(r"```console\n\$ nsys-pp (?P<words>[^\n]*)\n(?P<output>.*?)```", re.DOTALL)


def find_simulations() -> dict[str, tuple[str, list[str]]]:
    """List the simulated runs of all pages: program and options by folder."""
    found: dict[str, tuple[str, list[str]]] = {}
    for page in PAGES:
        for run in SIMULATED.finditer(page.read_text()):
            entry = (run["program"], run["options"].split())
            assert found.setdefault(run["folder"], entry) == entry, f"two runs are named {run['folder']}"
    return found


def simulate(folder: Path, words: str) -> None:
    """Simulate the runs that a command names, where they are not in the folder yet."""
    for name, (program, options) in find_simulations().items():
        if name in shlex.split(words) and not (folder / name).exists():
            subprocess.run(
                [sys.executable, "-m", program, str(folder / name), *options],
                check=True,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
            )


def run(words: str, folder: Path) -> str:
    """Run a command of a page in a folder with `fixtures` and the runs that it names; both streams, without progress lines."""
    if not (folder / "fixtures").exists():
        (folder / "fixtures").symlink_to(ROOT / "fixtures")
    simulate(folder, words)
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


def update(folder: Path, pages: Iterable[Path] = PAGES) -> None:
    """Write what the commands print today into the pages."""
    for page in pages:
        text = page.read_text()
        page.write_text(
            BLOCK.sub(lambda m: f"```console\n$ nsys-pp {m['words']}\n{run(m['words'], folder)}```", text)
        )


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        update(Path(name), [Path(word) for word in sys.argv[1:]] or PAGES)
