"""Definition of a section of a report page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from nsys_pp.output.report.source import PageSource


class Drawn(Struct, frozen=True, kw_only=True):
    """Contents of a section above its tables.

    Attributes:
        html: Fragment of HTML, with escaped texts.
        data: Data for the page's scripts, for JSON.
        absent: Reason why there is nothing to show, and the option that records it; "": there is something.
    """

    html: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    absent: str = ""


class Section(Struct, frozen=True, kw_only=True):
    """A section of the page.

    Attributes:
        name: Name in addresses, and of its data.
        title: Heading.
        lead: Sentence below the heading: the question that it answers, and how to read it.
        kinds: Kinds of findings whose evidence it shows.
        tables: Names of tables of the training, folded below the plots.
        sums: Names of tables of the summary, likewise.
        draw: Builds the plots.
    """

    name: str
    title: str
    lead: str
    kinds: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    draw: Callable[[PageSource], Drawn] = lambda source: Drawn()
