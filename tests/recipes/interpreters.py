"""Interpreters that lack nsys-pp."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def make_interpreter(folder: Path, packages: Iterable[str] = ()) -> Path:
    """Make a virtual environment with a few packages of this one, and give its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in packages:
        source = Path(str(importlib.import_module(name).__file__)).parent
        for part in (source, source.with_name(f"{source.name}.libs")):  # wheels bring libraries beside
            if part.is_dir():
                os.symlink(part, site / part.name)
    return folder / "bin" / "python3"
