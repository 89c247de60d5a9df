"""`nsys recipe nsys_pp_summary`: where the time went, as tables."""

from __future__ import annotations

import sys
from pathlib import Path

# The common modules are next to this folder, wherever nsys found it.
sys.path.append(str(Path(__file__).resolve().parent.parent))

from nsys_pp_recipe import adapter, work


class NsysPPSummary(adapter.Adapter):
    """The recipe."""

    plan = work.SUMMARY
