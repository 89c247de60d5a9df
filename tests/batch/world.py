"""A folder in which the scripts of docs/batch run: reports, and programs that stand for a cluster's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.batch.slurm_queue import run_queue
from tests.cli.calls import Result, call, environment
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "docs" / "batch"
PIPELINE = ROOT / "fixtures" / "pipeline"
REPORTS = sorted(PIPELINE.glob("node*/*.sqlite"), key=lambda path: path.stem)
STUBS = Path(__file__).parent / "stubs"


@dataclass(frozen=True)
class World:
    """Runs scripts in a folder of its own, with a PATH on which stubs come first."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str | Path, timeout: int = PATIENCE_S, **variables: str) -> Result:
        """Run a program where the reports of users lie."""
        done = subprocess.run(
            list(map(str, words)),
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def run_queue(self, **variables: str) -> dict[int, list[int] | str]:
        """Run what was submitted; see `run_queue`."""
        return run_queue(self.folder / "slurm", {**self.environment, **variables})

    def forget_jobs(self, *numbers: int) -> None:
        """Take some jobs, or all, out of the queue."""
        for path in (self.folder / "slurm").glob("*.json"):
            if not numbers or int(path.stem) in numbers:
                path.rename(path.with_suffix(".forgotten"))

    def merge(self, reports: Sequence[Path]) -> bytes:
        """The trace that `merge` makes of some reports at once."""
        trace = self.folder / "expected" / "run.pftrace"
        trace.parent.mkdir(exist_ok=True)
        done = call("merge", *reports, "-o", trace, "--force", env=dict(self.environment))
        assert done.code == 0, done
        return trace.read_bytes()

    def copy_reports(self, to: Path) -> None:
        """Put the reports of two nodes below a folder."""
        for report in REPORTS:
            (to / report.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(report, to / report.parent.name)

    def logs(self) -> str:
        """All that jobs have said."""
        return "".join(f"{path.name}: {path.read_text()}" for path in sorted(self.folder.rglob("*.log")))


def read_result(path: Path) -> Any:
    """Read what `--result` wrote."""
    return json.loads(path.read_text())


def make_world(folder: Path, *stubs: str) -> World:
    """Make a world with some of the `stubs`; nsys-pp is this one.

    Skips where the tools of clusters are others.
    """
    if sys.platform != "linux":
        pytest.skip("scripts for Linux")
    for name in ("bin", "slurm", "cache"):
        (folder / name).mkdir()
    program = folder / "bin" / "nsys-pp"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nsys_pp "$@"\n')
    program.chmod(0o755)
    # what says that these tests themselves run inside a job
    ours = {name: value for name, value in environment().items() if not name.startswith("SLURM_")}
    path = [str(folder / "bin"), *(str(STUBS / name) for name in stubs), os.environ["PATH"]]
    changes = {
        "PATH": os.pathsep.join(path),
        "HOME": str(folder),
        "NSYS_PP_CACHE": str(folder / "cache"),
        "NSYS_PP_NSYS": "",
        "STUB_SLURM": str(folder / "slurm"),
        "STUB_HOSTS": str(folder / "hosts"),
        "STUB_REPORTS": str(PIPELINE),
    }
    return World(folder=folder, environment={**ours, **changes})
