"""Paths in lines of several files, without the folder that all share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_LEAST = 40  # characters; a shorter folder is no burden


def cut_common_folder(paths: Sequence[Path]) -> list[str]:
    """Return paths as text; of several ones without a long folder that all share.

    >>> folder = Path("/home/jane/experiments/pretraining/2026-11-24/run7")
    >>> cut_common_folder([folder / "node0" / "rank0.sqlite", folder / "node1" / "rank1.sqlite"])
    ['node0/rank0.sqlite', 'node1/rank1.sqlite']
    >>> cut_common_folder([Path("runs/a.sqlite"), Path("runs/b.sqlite")])
    ['runs/a.sqlite', 'runs/b.sqlite']
    """
    if len(paths) < 2 or len({path.is_absolute() for path in paths}) > 1:
        return [str(path) for path in paths]
    common = os.path.commonpath([path.parent for path in paths])
    if len(common) < _LEAST:
        return [str(path) for path in paths]
    return [os.path.relpath(path, common) for path in paths]
