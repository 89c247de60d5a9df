"""Fixtures of the executors."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def items(tmp_path: Path) -> list[Path]:
    """Return six files to work on."""
    paths = [tmp_path / f"{number}.txt" for number in range(6)]
    for path in paths:
        path.write_text(f"text of {path.stem}")
    return paths
