"""Both ways of the functions that `core.c` has: compiled, and in numpy."""

from __future__ import annotations

import sys

import pytest


def use_numpy(patch: pytest.MonkeyPatch) -> None:
    """Have all modules work without the compiled functions."""
    for name, module in list(sys.modules.items()):
        if name.startswith("nsys_pp.") and hasattr(module, "load_core"):
            patch.setattr(module, "load_core", lambda: None)
