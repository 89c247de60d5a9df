"""Registry of the kinds of findings; a new kind is a module with a function, and an entry here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from nsys_pp.registry import Registry

if TYPE_CHECKING:
    from nsys_pp.frames.verdict import Finding
    from nsys_pp.tables.verdict.evidence import Evidence

Finder: TypeAlias = "Callable[[Evidence, Sequence[Finding]], list[Finding]]"
"""Function of the evidence and of the findings of the entries before it, some of which explain later ones."""

FINDERS: Registry[Finder] = Registry(
    {
        "straggler": "nsys_pp.tables.verdict.stragglers:find_slow_members",
        "host": "nsys_pp.tables.verdict.host_stalls:find_host_stalls",
        "profiler": "nsys_pp.tables.verdict.profiler:find_profiler_overhead",
        "link": "nsys_pp.tables.verdict.links:find_slow_links",
        "communication": "nsys_pp.tables.verdict.communication:find_exposed_communication",
        "idle": "nsys_pp.tables.verdict.idle:find_idle_time",
        "step": "nsys_pp.tables.verdict.long_steps:find_long_steps",
        "gpu_clock": "nsys_pp.tables.verdict.gpu_clocks:find_falling_clocks",
        "bubble": "nsys_pp.tables.verdict.bubble:compare_bubble",
        "requests": "nsys_pp.tables.verdict.requests:describe_waits_for_requests",
        "missing": "nsys_pp.tables.verdict.missing:describe_missing",
        "losses": "nsys_pp.tables.verdict.losses:describe_losses",
        "clocks": "nsys_pp.tables.verdict.clocks:describe_clocks",
    }
)
CONTEXT = frozenset({"bubble", "requests", "missing", "losses", "clocks"})
"""Kinds that describe the run and name no object."""
