"""The tables of a training."""

from __future__ import annotations

from collections.abc import Mapping

from nsys_pp.frames.table import Table, index_tables
from nsys_pp.frames.training import Training
from nsys_pp.tables.training.critical_table import CRITICAL_TABLE, PATH_TABLE
from nsys_pp.tables.training.kind_table import KIND_TABLE
from nsys_pp.tables.training.link_table import LINK_TABLE
from nsys_pp.tables.training.schedule_table import SCHEDULE_TABLE
from nsys_pp.tables.training.stage_table import LANE_TABLE, STAGE_TABLE
from nsys_pp.tables.training.step_table import STEP_TABLE
from nsys_pp.tables.training.stragglers import STRAGGLER_TABLE

TABLES: Mapping[str, Table[[Training]]] = index_tables(
    STEP_TABLE,
    STAGE_TABLE,
    LANE_TABLE,
    KIND_TABLE,
    SCHEDULE_TABLE,
    STRAGGLER_TABLE,
    LINK_TABLE,
    CRITICAL_TABLE,
    PATH_TABLE,
)
"""Tables by name, in the order in which they are written."""
