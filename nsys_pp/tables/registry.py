"""The tables of a training with its findings, which come first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsys_pp.registry import Registry
from nsys_pp.tables.training.registry import SOURCES

if TYPE_CHECKING:
    from nsys_pp.frames.table import Table
    from nsys_pp.frames.training import Training

VERDICT = "verdict"
"""Name of the findings, which other commands show, too."""

TABLES: Registry[Table[[Training]]] = Registry(
    {VERDICT: "nsys_pp.tables.verdict.verdict:VERDICT_TABLE", **SOURCES}
)
"""Tables by name, in the order in which they are written."""
