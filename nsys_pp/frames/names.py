"""Type of names in frames."""

from __future__ import annotations

import polars as pl

NAME = pl.Categorical()
"""Each string is stored once, and writers use its code."""
NO_NAME = "(no name)"
"""Name of events without a name, where they are drawn."""
