"""`nsys-pp docs`: the pages that hints name, as they are installed."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from nsys_pp.errors import NsysPPError, OptionError

_PACKAGE = Path(__file__).resolve().parent.parent
_TEXTS = {".md", ".sbatch", ".sh", ".yaml"}  # pictures are on the site

COMMAND_PAGES = {  # of commands without a page of their name
    "align": "clocks",
    "baseline": "compare",
    "extract": "parts",
    "info": "reports",
    "merge": "trace",
    "open": "trace",
    "project": "projection",
    "scrub": "sharing",
    "sql": "projection",
}


def list_pages() -> dict[str, Path]:
    """List the pages, and the scripts that they describe: files by name, as in `presets` and `batch/ssh.sh`.

    Raises:
        NsysPPError: This nsys-pp was installed without them.
    """
    # next to the package in a checkout, inside an installed package
    for folder in (_PACKAGE.parent / "docs", _PACKAGE / "docs"):
        if (folder / "index.md").is_file():
            files = sorted(path for path in folder.rglob("*") if path.suffix in _TEXTS)
            return {path.relative_to(folder).as_posix().removesuffix(".md"): path for path in files}
    raise NsysPPError(f"there are no pages in `{_PACKAGE}`", "install nsys-pp again")


def read_page(name: str) -> str:
    """Return the text of a page, in Markdown, or of a script.

    Args:
        name: Its name, with or without `docs/` and `.md`.

    Raises:
        OptionError: There is no such page.
    """
    pages = list_pages()
    short = name.removeprefix("docs/").removesuffix(".md")
    if short not in pages:
        if (page := COMMAND_PAGES.get(short)) is not None:
            raise OptionError(
                "page", f"unknown page `{name}`", f"`nsys-pp docs {page}` explains this command"
            )
        close = get_close_matches(short, pages, n=1)
        hint = f"did you mean `{close[0]}`?" if close else "`nsys-pp docs` lists all pages"
        raise OptionError("page", f"unknown page `{name}`", hint)
    return pages[short].read_text(encoding="utf-8")
