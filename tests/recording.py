"""Recordings by the real nsys."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

_ATTEMPTS, _LIMIT_S = 3, 120.0


def record(
    nsys: str,
    folder: Path,
    options: Sequence[str],
    program: Sequence[str],
    *,
    name: str = "run",
    environ: Mapping[str, str] | Mapping[bytes, bytes] | None = None,
) -> str:
    """Record a Python program as `NAME.nsys-rep` in a folder, and return what was printed; skip where nsys cannot record.

    nsys 2024.2 now and then waits for ever for a program that has ended: it is then ended itself, and asked again.
    """
    pytest.importorskip("nvtx", reason="no nvtx: install nvtx==0.2.11")
    line = [nsys, "profile", *options, "-o", name, "-f", "true", sys.executable, *program]
    printed = folder / f"{name}.printed"
    for _ in range(_ATTEMPTS):
        with printed.open("wb") as output:
            process = subprocess.Popen(
                line, cwd=folder, env=environ, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                process.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)  # its agent, in a session of its own, ends with it
                process.wait()
                continue
        break
    text = printed.read_text(errors="replace")
    if not (folder / f"{name}.nsys-rep").exists():
        pytest.skip(f"this nsys cannot record: {text[-200:]}")
    return text
