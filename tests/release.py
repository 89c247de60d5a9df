"""Wheel and sdist as a stranger installs them: `python -m tests.release` builds both and tries them.

On each CPython from 3.11 on that this machine has (of pyenv and on PATH), the wheel is installed into an environment of its own
with the newest dependencies; on the oldest, also with the oldest that pyproject.toml admits; and once from the sdist. Each installation
must make the README's trace and print the pages that hints name, the oldest and the newest also tables of each kind. `uvx` and `pipx run` start
the wheel.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
OLDEST, NEWEST = 11, 15  # of Python 3
UV = [sys.executable, "-m", "uv"]


def call(words: Sequence[str | Path], **options: str | Path) -> str:
    """Run a command outside the repository; fail with all that it printed."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in words],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**env, "UV_NO_PROGRESS": "1"},
        **options,  # type: ignore[call-overload]
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}")
    return str(done.stdout)


def find_pythons() -> dict[int, str]:
    found: dict[int, str] = {}
    for minor in range(OLDEST, NEWEST + 1):
        of_pyenv = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3"))
        program = str(of_pyenv[-1]) if of_pyenv else shutil.which(f"python3.{minor}")
        if program:
            found[minor] = program
    return found


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from the unpacked sdist, so that nothing outside of it is used."""
    call([*UV, "build", "--quiet", "--out-dir", folder, ROOT])
    (wheel,), (sdist,) = [*folder.glob("*.whl")], [*folder.glob("*.tar.gz")]
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Check that the wheel carries pages, presets and recipes, and nothing of the tests."""
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("recipes/nsys_pp_merge/metadata.json",):
        assert f"nsys_pp/{name}" in names, name
    assert {name.split("/")[0].split("-")[0] for name in names} == {"nsys_pp"}
    with tarfile.open(sdist) as archive:
        folders = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"nsys_pp", "docs", "fixtures", "tests", "recipes", "LICENSE", "CHANGELOG.md"} <= folders


def try_installation(folder: Path, python: str, source: Path, *options: str, is_brief: bool = False) -> str:
    """Install into a new environment, run the README's command and others, and return a hash of the trace."""
    shutil.rmtree(folder, ignore_errors=True)
    call([*UV, "venv", "--quiet", "--python", python, folder])
    call([*UV, "pip", "install", "--quiet", "--python", folder / "bin/python", *options, source])
    program, trace = folder / "bin/nsys-pp", folder / "run.pftrace"
    reports = ROOT / "fixtures" / "pipeline"
    call([program, "merge", reports, "-o", trace], cwd=folder)
    assert (Path(call([program, "recipe", "path"], cwd=folder).strip()) / "nsys_pp_merge").is_dir()
    if is_brief:
        return hashlib.sha256(trace.read_bytes()).hexdigest()
    call([program, "summary", reports, "--table", "all", "-o", folder / "summary.json"], cwd=folder)
    call(
        [program, "project", reports / "node2" / "rank0.sqlite", "-o", folder / "ranges.parquet"], cwd=folder
    )
    call([program, "pipeline", reports, "--table", "all", "-o", folder / "tables.sqlite"], cwd=folder)
    return hashlib.sha256(trace.read_bytes()).hexdigest()


def try_runners(folder: Path, wheel: Path) -> list[str]:
    """Start the wheel by `uvx` and `pipx run`; return the names of those that are installed."""
    tried = []
    programs: list[tuple[str, list[str | Path]]] = [
        ("uvx", [*UV, "tool", "run", "--quiet", "--from", wheel, "nsys-pp", "--version"]),
        ("pipx run", [sys.executable, "-m", "pipx", "run", "--spec", wheel, "nsys-pp", "--version"]),
    ]
    for name, words in programs:
        if name == "pipx run" and subprocess.run([*words[:3], "--version"], capture_output=True).returncode:
            continue
        assert "nsys-pp, version" in call(words, cwd=folder)
        tried.append(name)
    return tried


def main() -> None:
    argparse.ArgumentParser(prog="python -m tests.release", description=__doc__).parse_args()
    pythons = find_pythons()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, sdist = build(folder / "dist")
        check_contents(wheel, sdist)
        print(
            f"built {wheel.name} ({wheel.stat().st_size:,} bytes) and {sdist.name} ({sdist.stat().st_size:,} bytes)"
        )
        traces = {}
        oldest, newest = min(pythons), max(pythons)
        for minor, python in pythons.items():
            traces[f"3.{minor}, newest dependencies"] = try_installation(
                folder / "env", python, wheel, is_brief=minor not in (oldest, newest)
            )
        lowest = ("--resolution", "lowest-direct")
        traces[f"3.{oldest}, oldest dependencies"] = try_installation(
            folder / "env", pythons[oldest], wheel, *lowest
        )
        traces[f"3.{newest}, from the sdist"] = try_installation(folder / "env", pythons[newest], sdist)
        for case in traces:
            print(f"CPython {case}: works")
        for minor in {*range(OLDEST, max(newest, OLDEST + 4) + 1)} - {*pythons}:
            print(f"CPython 3.{minor}: not on this machine, not tried")
        print(f"started by {', '.join(try_runners(folder, wheel)) or 'nothing'}")
        if len({*traces.values()}) > 1:  # another libdeflate may deflate to other bytes
            print("traces differ in bytes:", *sorted({*traces.values()}))


if __name__ == "__main__":
    main()
