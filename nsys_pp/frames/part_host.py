"""Frame of a part with the activities of hosts in bubbles, of bounded size."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys_pp.frames.causes import CAUSE
from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.requested import HOST_ACTIVITY

BUBBLE_HOSTS = build_schema(
    {  # as `HOST_TIMES`, with device and step of the report; by all columns but the last two
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # of `STEPS`
        "cause": CAUSE,
        "activity": HOST_ACTIVITY,
        "name": pl.String,
        "time_ns": pl.Int64,
        "count": pl.Int64,
    },
    name="BUBBLE_HOSTS",
)

HOST_FRAMES: Mapping[str, pl.Schema] = {"bubble_hosts": BUBBLE_HOSTS}
"""Frames by name, which a part may lack."""
