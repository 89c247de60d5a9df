"""Peers on the same reports in turn: ratios of time, and ranges that each gets right.

    python -m tests.bench.peers [REPORT...]

A range is right if a peer has one with the start and the duration that NVIDIA's own script gives. NVIDIA's script needs
`$NSYS_PP_NSYS`; ncompass is installed from PyPI into a virtual environment of its own. nsys2json and nsys-perfetter are
on no package index: they run if they are on PATH. Without reports, the shared ones that have NVIDIA's answers are taken; for
others NVIDIA's script has to run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
from msgspec import Struct

from tests.conftest import find_shared_reports
from tests.oracle.nvidia import parse_projection

Intervals = Counter[tuple[int, int]]
"""Start and duration of projected ranges in ns, each with its number."""
_ORACLE = "nvtx_gpu_proj_trace"
_NVIDIA = "NVIDIA's script"


class Peer(Struct, frozen=True):
    """A program that projects ranges.

    Attributes:
        name: Its name.
        command: Builds its command from the report and the output.
        read: Reads the intervals of its output; None if it projects none.
    """

    name: str
    command: Callable[[Path, Path], Sequence[str | Path]]
    read: Callable[[Path], Intervals] | None


def list_peers(folder: Path) -> list[Peer]:
    """List the peers that can run here; print a line for each that cannot.

    Args:
        folder: For what is installed.
    """
    own = Peer(
        "nsys-pp project",
        lambda report, output: [
            *(sys.executable, "-m", "nsys_pp", "project", report, "-o", output.with_suffix(".parquet")),
            *("--ops", "all", "--scope", "thread"),
        ],
        _read_own,
    )
    found = [own]
    nsys = os.environ.get("NSYS_PP_NSYS") or shutil.which("nsys")
    if nsys:
        script = lambda report, output: [  # noqa: E731
            *(nsys, "stats", "--quiet", "-r", _ORACLE, "-f", "csv", "-o", output, report)
        ]
        found.append(Peer(_NVIDIA, script, lambda output: read_oracle(_only(output, "*.csv"))))
    else:
        print("NVIDIA's script: no nsys; $NSYS_PP_NSYS names one")
    found += _install_ncompass(folder)
    for name, read in (("nsys2json", _read_chrome), ("nsys-perfetter", None)):
        if program := shutil.which(name):
            found.append(Peer(name, lambda report, output, own=program: [own, report, "-o", output], read))  # type: ignore[misc]
        else:
            print(f"{name}: not on PATH, and on no package index")
    return found


def _install_ncompass(folder: Path) -> list[Peer]:
    venv.create(folder / "ncompass", with_pip=True)
    python = folder / "ncompass" / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "ncompass"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        print("ncompass: cannot be installed")
        return []
    (program,) = (folder / "ncompass").rglob("nsys-chrome")
    program.chmod(0o755)
    return [Peer("ncompass (Rust)", lambda report, output: [program, report, "-o", output], _read_chrome)]


def read_oracle(path: Path) -> Intervals:
    """Read the ranges that NVIDIA's script answers with, a CSV file."""
    rows = parse_projection(path.read_bytes())
    return Counter(rows[["gpu_start_ns", "gpu_duration_ns"]].rows())


def _read_own(output: Path) -> Intervals:
    """Read the ranges of our own output; of several devices, NVIDIA's script has one range from the first to the last."""
    rows = (
        pl.read_parquet(output.with_suffix(".parquet"))
        .group_by("process_id", "range_id")
        .agg(pl.col("gpu_start_ns").min(), pl.col("gpu_end_ns").max())
    )
    start = rows["gpu_start_ns"]
    return Counter(zip(start.to_list(), (rows["gpu_end_ns"] - start).to_list(), strict=True))


def _read_chrome(output: Path) -> Intervals:
    data = output.read_bytes()
    trace: Any = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events: Iterable[dict[str, Any]] = trace if isinstance(trace, list) else trace["traceEvents"]
    return Counter(
        (round(event["ts"] * 1000), round(event["dur"] * 1000))
        for event in events
        if event.get("cat") == "nvtx-kernel" and "dur" in event
    )


def _only(output: Path, pattern: str) -> Path:
    (path,) = output.parent.glob(output.name + pattern)
    return path


def find_oracle(report: Path) -> Path | None:
    """Find NVIDIA's answers for a shared report."""
    path = report.parent / "oracle" / f"{report.stem}.{_ORACLE}.csv"
    return path if path.exists() else None


def compare(report: Path, peers: Sequence[Peer], rounds: int) -> None:
    """Run the peers in turn, and print a row for each.

    Args:
        report: A SQLite export; NVIDIA's script writes into its own copy.
        peers: The first one is the unit of time.
        rounds: Runs of each; the fastest counts.
    """
    oracle = find_oracle(report)
    right = read_oracle(oracle) if oracle else None
    seconds: dict[str, list[float]] = {peer.name: [] for peer in peers}
    intervals: dict[str, Intervals | None] = {}
    for _ in range(rounds):
        for peer in peers:
            with TemporaryDirectory(prefix="peers-") as name:
                copy = Path(shutil.copy(report, Path(name, "report.sqlite")))
                output = Path(name, "out.json")
                began = time.perf_counter()
                done = subprocess.run(
                    [*map(str, peer.command(copy, output))], capture_output=True, check=False
                )
                seconds[peer.name].append(time.perf_counter() - began)
                if done.returncode:
                    intervals[peer.name] = None
                else:
                    intervals[peer.name] = peer.read(output) if peer.read else Counter()
    right = right or intervals.get(_NVIDIA)
    unit = min(seconds[peers[0].name])
    for peer in peers:
        found = intervals[peer.name]
        known = "" if right is None else f" of {right.total():,} right"
        equal = (
            "failed" if found is None else f"{(found & right).total() if right else found.total():,}{known}"
        )
        print(
            f"| {report.stem} | {peer.name} | {min(seconds[peer.name]) / unit:.2f} x | {equal} |", flush=True
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare on each report."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("reports", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="Runs of each; the fastest counts. Default: 3.")
    chosen = parser.parse_args(arguments)
    reports = chosen.reports or [path for path in find_shared_reports() if find_oracle(path)]
    with TemporaryDirectory(prefix="peers-") as name:
        peers = list_peers(Path(name))
        for report in reports:
            compare(report, peers, chosen.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
