"""Sources of the site: the pages as they lie in the repository, their lists, and the reference made of the code."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from website.reference import write_reference

ROOT = Path(__file__).parent.parent
INDEX = "docs/index.md"
_PAGES = (
    "README.md",
    "README.zh-CN.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
    "fixtures/README.md",
)
_FOLDERS = ("docs", "examples")
_ENTRY = re.compile(r"^\* \[[^\]]*\]\((?P<link>[^)#]+\.md)\)", re.MULTILINE)
_HEADING = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
_MORE = (*_PAGES[1:5], "fixtures/README.md", "examples/README.md", INDEX)


def write_sources(folder: Path) -> None:
    """Write the sources of the site to a folder that does not exist yet."""
    for name in _PAGES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    for name in _FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("reports"))
    reference = write_reference(folder / "docs" / "reference")
    text = (ROOT / "README.md").read_text()
    lists = [*_list_pages(), ("Reference", reference), ("More", _MORE)]
    (folder / "README.md").unlink()
    (folder / "index.md").write_text("\n".join([text, *(_format_list(*part) for part in lists)]))
    for page in folder.rglob("*.md"):
        page.write_text(re.sub(r"(\]\((?:\.\./)*)README\.md([)#])", r"\1index.md\2", page.read_text()))


def _list_pages() -> Iterator[tuple[str, list[str]]]:
    """List the pages of `docs/index.md` by its headings."""
    text = (ROOT / INDEX).read_text()
    titles = [*_HEADING.finditer(text)]
    ends = [title.start() for title in titles[1:]] + [len(text)]
    for title, end in zip(titles, ends, strict=True):
        links = _ENTRY.findall(text, title.end(), end)
        yield title["title"], [f"docs/{link}" for link in links]


def _format_list(title: str, pages: Sequence[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""])
