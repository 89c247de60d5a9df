"""Sections of a report page, in order: a new one is a module with a `SECTION`, and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsys_pp.registry import Registry

if TYPE_CHECKING:
    from nsys_pp.output.report.section import Section

SECTIONS: Registry[Section] = Registry(
    {
        name: f"nsys_pp.output.report.sections.{name}:SECTION"
        for name in (
            *("verdict", "charts", "steps", "bubbles", "stragglers", "communication", "kernels"),
            *("host", "memory", "clocks", "missing"),
        )
    }
)
"""Sections by name."""
