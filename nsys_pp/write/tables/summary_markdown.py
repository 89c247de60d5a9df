"""Tables of a summary in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nsys_pp.write.files import check_output, open_output, replace_file, translate_errors
from nsys_pp.write.tables.frames import clean, escape_markdown, files_in, is_one_file
from nsys_pp.write.tables.summary_text import NOTHING, TextTable, arrange_table


def format_summary(tables: Sequence[TextTable], *, top: int, unit: str | None) -> str:
    """Write tables in GitHub's Markdown, each below a heading; as `print_summary`, but whole.

    Args:
        tables: What to write.
        top: Most rows of each group; all if 0.
        unit: Of all times.
    """
    return "\n".join(_format_one(table, top=top, unit=unit) for table in tables)


def write_summary(
    tables: Mapping[str, TextTable], output: Path, *, top: int, unit: str | None, force: bool
) -> list[Path]:
    """Write tables in Markdown to one file, or to a folder with a file for each.

    Args:
        tables: By name.
        output: A file if it has an ending of `FORMATS`, else a folder, which is made.
        top: As for `format_summary`.
        unit: Of all times.
        force: Replace what is there.

    Returns:
        The files.

    Raises:
        OutputError: One cannot be written; what is there is found before any is written.
    """
    if is_one_file(output):
        files = {output: list(tables.values())}
    else:
        with translate_errors(output):
            output.mkdir(parents=True, exist_ok=True)
        files = {path: [tables[name]] for name, path in files_in(output, tables, "markdown").items()}
    for path in files:
        check_output(path, force=force)
    for path, some in files.items():
        with replace_file(path, force=force) as target, open_output(target) as stream:
            stream.write(format_summary(some, top=top, unit=unit).encode())
    return [*files]


def _format_one(table: TextTable, *, top: int, unit: str | None) -> str:
    title = f"## {escape_markdown(clean(table.title))}\n\n"
    if table.absent is not None or table.frame.is_empty():
        return f"{title}{table.absent or NOTHING}\n"
    rows, columns = arrange_table(table, top=top, unit=unit)
    lines = [
        [column.heading for column in columns],
        ["---:" if column.is_number else "---" for column in columns],
    ]
    for kind, *cells in zip(rows.kinds, *(column.texts for column in columns), strict=True):
        escaped = [escape_markdown(cell.strip(" ")) for cell in cells]
        indent = len(cells[-1]) - len(cells[-1].lstrip(" "))
        escaped[-1] = "&nbsp;" * indent + escaped[-1]
        lines.append([f"**{cell}**" if cell and kind == "total" else cell for cell in escaped])
    return title + "".join(f"| {' | '.join(line)} |\n" for line in lines) + f"\n{table.says}\n"
