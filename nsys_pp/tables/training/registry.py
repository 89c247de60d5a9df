"""Every table of a training, by name."""

from __future__ import annotations

from collections.abc import Mapping

from nsys_pp.tables.training.critical_table import CRITICAL_TABLE, PATH_TABLE
from nsys_pp.tables.training.kind_table import KIND_TABLE
from nsys_pp.tables.training.link_table import LINK_TABLE
from nsys_pp.tables.training.schedule_table import SCHEDULE_TABLE
from nsys_pp.tables.training.stage_table import LANE_TABLE, STAGE_TABLE
from nsys_pp.tables.training.step_table import STEP_TABLE
from nsys_pp.tables.training.stragglers import STRAGGLER_TABLE
from nsys_pp.tables.training.table import Table

TABLES: Mapping[str, Table] = {
    "steps": STEP_TABLE,
    "stages": STAGE_TABLE,
    "lanes": LANE_TABLE,
    "kinds": KIND_TABLE,
    "schedule": SCHEDULE_TABLE,
    "stragglers": STRAGGLER_TABLE,
    "links": LINK_TABLE,
    "critical": CRITICAL_TABLE,
    "critical_path": PATH_TABLE,
}
