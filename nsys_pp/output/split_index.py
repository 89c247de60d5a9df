"""Folder of traces of a divided run: file names, and a page that links and describes them.

The page is static: without scripts and without a network, in light and dark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import chain, count, groupby
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from nsys_pp.errors import describe_path
from nsys_pp.output.tables.text import clean
from nsys_pp.units import format_bytes, format_count

INDEX = "index.html"
FOLDER_SUFFIX = ".traces"
_GENERATOR = '<meta name="generator" content="nsys-pp merge">'
_NAME_CHARS = 80
_MAX_MACHINES = 8  # more are counted, not listed
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)")  # names of devices on Windows
_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1c2430; --muted: #5d6877; --line: #dde2e8;
  --link: #2158a5; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14181f; --text: #e4e9f0; --muted: #9ba7b6; --line: #2a323d; --link: #7db4ff; }
}
body { margin: 0 auto; padding: 16px; max-width: 1100px; background: var(--page); color: var(--text);
  font: 14px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 20px; overflow-wrap: anywhere; }
a { color: var(--link); }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; }
caption { padding: 6px 0; color: var(--muted); text-align: left; }
th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top;
  overflow-wrap: anywhere; unicode-bidi: plaintext; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
"""


class SplitFile(Struct, frozen=True, kw_only=True):
    """One trace of a divided run."""

    path: Path
    title: str  # machine, rank or steps
    machines: tuple[str, ...]
    ranks: tuple[int, ...]  # empty where unknown
    steps: tuple[int, ...]
    slice_count: int | None  # None: unknown, in a trace that another machine wrote
    event_count: int  # slices, marks and samples of counters
    size_bytes: int


def name_folder(output: Path) -> Path:
    """Return the folder of the traces of a divided run: the output's name up to its first dot, and `.traces`.

    >>> name_folder(Path("a/run.pftrace")).as_posix()
    'a/run.traces'
    """
    return output.with_name(f"{output.name.split('.')[0] or 'run'}{FOLDER_SUFFIX}")


def name_files(titles: Sequence[str]) -> list[str]:
    """Return a file name for each title; distinct also where the case of letters does not count.

    >>> name_files(["node 1", "../Node:1", "NODE_1", "con"])
    ['node_1.pftrace', 'Node_1-2.pftrace', 'NODE_1-3.pftrace', '_con.pftrace']
    """
    names: list[str] = []
    used: set[str] = set()
    for title in titles:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "_", title).lstrip("._-")[:_NAME_CHARS].rstrip("._-") or "trace"
        if _RESERVED.match(stem):
            stem = f"_{stem}"
        numbered = chain([stem], (f"{stem}-{number}" for number in count(2)))
        name = next(name for name in numbered if name.lower() not in used)
        used.add(name.lower())
        names.append(f"{name}.pftrace")
    return names


def is_split_folder(folder: Path) -> bool:
    """Return whether a folder has an index page and traces, and nothing else."""
    try:
        is_flat = all(
            entry.is_file() and (entry.name == INDEX or entry.suffix == ".pftrace")
            for entry in folder.iterdir()
        )
        return is_flat and _GENERATOR in (folder / INDEX).read_text(encoding="utf-8")[:1000]
    except (OSError, UnicodeDecodeError):
        return False


def write_index(path: Path, *, overview: SplitFile, files: Sequence[SplitFile], unit: str) -> None:
    """Write the page that links the traces of a divided run.

    Args:
        path: The page, in the folder of `files`.
        overview: Trace of all ranks, in the folder around it.
        files: Traces in the folder of the page, in order.
        unit: Unit of division: "machine", "rank" or "step".
    """
    name = escape(clean(describe_path(overview.path.name)))
    rows = [
        _row(
            overview,
            f"../{quote(os.fsencode(overview.path.name))}",
            "overview of all ranks: steps, jobs and messages",
        )
    ]
    rows += [_row(file, quote(file.path.name), file.title) for file in files]
    heads = ["Trace", "Machines", "Ranks", "Steps", "Slices", "Size"]
    head = "".join(f'<th scope="col"{_number(title in ("Slices", "Size"))}>{title}</th>' for title in heads)
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{_GENERATOR}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Traces of {name}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Traces of {name}</h1>
<p>Begin with the overview. To view a trace, open https://ui.perfetto.dev and drop the file there; it stays on
your machine. All traces have the same clock and the same names of rows,
so several can be open side by side.</p>
<div class="scroll" tabindex="0" role="region" aria-label="Traces">
<table>
<caption>{len(files):,} traces, one per {escape(unit)}, and the overview</caption>
<thead><tr>{head}</tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody>
</table>
</div>
</main>
</body>
</html>
"""
    path.write_bytes(page.encode("utf-8", "replace"))


def format_numbers(numbers: Iterable[int]) -> str:
    """Format numbers as intervals, in order.

    >>> format_numbers([3, 0, 1, 2, 8])
    '0-3, 8'
    """
    # successive numbers are as far from their places in the order
    runs = groupby(enumerate(sorted({*numbers})), lambda placed: placed[1] - placed[0])
    intervals = [[number for _, number in run] for _, run in runs]
    return ", ".join(str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in intervals)


def _row(file: SplitFile, address: str, title: str) -> str:
    is_short = len(file.machines) <= _MAX_MACHINES
    cells = [
        escape(clean(", ".join(file.machines))) if is_short else format_count(len(file.machines), "machine"),
        format_numbers(file.ranks),
        format_numbers(file.steps),
        "" if file.slice_count is None else f"{file.slice_count:,}",
        format_bytes(file.size_bytes),
    ]
    link = f'<th scope="row"><a href="{escape(address)}">{escape(clean(title))}</a></th>'
    return f"<tr>{link}{''.join(f'<td{_number(at > 2)}>{cell}</td>' for at, cell in enumerate(cells))}</tr>"


def _number(is_number: bool) -> str:
    return ' class="number"' * is_number
