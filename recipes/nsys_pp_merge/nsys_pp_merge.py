"""`nsys recipe nsys_pp_merge`: one trace of all reports."""

from __future__ import annotations

import sys
from pathlib import Path

# The common modules are next to this folder, wherever nsys found it.
sys.path.append(str(Path(__file__).resolve().parent.parent))

from nsys_pp_recipe import adapter, work


class NsysPPMerge(adapter.Adapter):
    """The recipe."""

    plan = work.MERGE
