"""Names that options accept, for the command line and the library; imports nothing, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Detail = Literal["jobs", "ranges", "kernels", "cpu"]
DETAILS: tuple[Detail, ...] = ("jobs", "ranges", "kernels", "cpu")
"""Levels of detail of a trace; each has more than the one before."""

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "dualpipev")
"""Pipeline schedules."""

SUMMARY_GROUPS: Mapping[str, tuple[str, ...]] = {
    "run": (),
    "rank": ("rank",),
    "machine": ("machine",),
    "stage": ("stage",),
    "device": ("machine", "gpu"),
    "step": ("step",),
}
"""Groups of rows of a summary (`--by`), and their columns."""

DATA_TYPES = ("bf16", "fp16", "tf32", "fp8", "fp4")
"""Data types of peak rates of GPUs."""
