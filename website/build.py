"""Build of the site by Sphinx, in a folder of its own."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from website.sources import write_sources

_CONFIGURATION = Path(__file__).parent
_LINK = re.compile(r"""(?:href|src)="([a-z][a-z0-9+.-]*:[^"]*)\"""", re.IGNORECASE)
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def build_site(folder: Path) -> list[str]:
    """Build the site in `folder/html`.

    Args:
        folder: An empty folder.

    Returns:
        Warnings, each of which is an error: pages in no list, broken links between pages, and addresses of other
        sites that are malformed (they are not fetched: the build needs no network).
    """
    sources, html = folder / "sources", folder / "html"
    write_sources(sources)
    warnings = io.StringIO()
    with docutils_namespace():  # else a second site of a process registers its nodes once more
        site = Sphinx(
            str(sources),
            str(_CONFIGURATION),
            str(html),
            str(folder / "doctrees"),
            "html",
            status=None,
            warning=warnings,
            parallel=2,
        )
        site.build()
    lines = _COLORS.sub("", warnings.getvalue()).splitlines()
    return [*(line for line in lines if line.strip()), *_check_addresses(html)]


def _check_addresses(html: Path) -> Iterator[str]:
    """Report malformed addresses, and anything that a page would fetch from a network."""
    for page in sorted(html.rglob("*.html")):
        for address in sorted({*_LINK.findall(page.read_text())}):
            parts = urlsplit(address)
            if parts.scheme in ("data", "mailto"):
                continue
            if parts.scheme != "https" or "." not in (parts.hostname or "") or " " in address:
                yield f"{page.relative_to(html)}: malformed address {address}"
        for address in re.findall(
            r"<(?:script|img|iframe)[^>]*\bsrc=\"(https?:[^\"]*)|<link[^>]*stylesheet[^>]*href=\"(https?:[^\"]*)",
            page.read_text(),
        ):
            yield f"{page.relative_to(html)}: needs a network for {''.join(address)}"
