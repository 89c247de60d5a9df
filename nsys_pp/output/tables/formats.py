"""A file format of tables, and the content for its renderer."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
from msgspec.structs import asdict, replace

from nsys_pp.errors import disk_errno
from nsys_pp.frames.table import FilledTable
from nsys_pp.output.files import (
    check_file_output,
    check_output,
    hold_interrupts,
    make_folders,
    open_output,
    replace_file,
)
from nsys_pp.output.tables import FORMATS, files_in, is_one_file
from nsys_pp.output.tables.text import (
    Content,
    ShownTable,
    arrange_table,
    arrange_tables,
    clean,
    convert_times,
    mark_first_rows,
    sort_table,
)


def select_data(content: Content) -> dict[str, pl.DataFrame]:
    """Return the rows of each table as data.

    Rows are sorted and limited, times are in the requested unit, and categories are strings.

    Tables that could not be built are left out.
    """
    frames = {}
    for filled in [one for one in content.tables if one.frame.width]:
        frame = sort_table(filled, content.sort)
        frame = frame.filter(mark_first_rows(frame, filled.table, limit=content.limit))
        frame = frame if content.unit is None else convert_times(frame, content.unit)
        frames[filled.table.name] = frame.with_columns(
            pl.selectors.categorical().cast(pl.String), pl.selectors.enum().cast(pl.String)
        )
    return frames


def select_frame(content: Content) -> pl.DataFrame:
    """Return the rows of the only table, for formats that hold a single one.

    Raises:
        ValueError: There are several tables, or none.
    """
    frames = select_data(content)
    if len(frames) != 1:
        raise ValueError(f"a file of this format holds one table, not {len(frames)}")
    return next(iter(frames.values()))


def format_csv(content: Content) -> str:
    """Format a table as CSV."""
    return quote_formulas(select_frame(content)).write_csv()


def write_csv(content: Content, path: Path) -> None:
    """Write a table as CSV."""
    frame = quote_formulas(select_frame(content))
    with open_output(path) as stream:
        frame.write_csv(stream)


def quote_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Quote names that a spreadsheet would run as formulas, with an apostrophe.

    `$NSYS_PP_CSV=raw` omits this.

    Args:
        frame: The table. Columns of numbers are unchanged.
    """
    if os.environ.get("NSYS_PP_CSV") == "raw":
        return frame
    return frame.with_columns(pl.col(pl.String).str.replace(r"^[=+\-@\t\r\n＝＋－＠]", "'${0}"))


def format_json(content: Content) -> str:
    """Format tables as one JSON document in ASCII: its first keys, why tables have no rows, and the rows."""
    # polars escapes no others than ASCII's controls
    rows = re.sub(
        "[\x7f-\U0010ffff]+",
        lambda match: json.dumps(match[0])[1:-1],
        ",\n".join(
            f"{json.dumps(name)}: {frame.write_json()}" for name, frame in select_data(content).items()
        ),
    )
    missing = [
        {"table": filled.table.name, **asdict(filled.why_empty)}
        for filled in content.tables
        if filled.frame.is_empty()
    ]
    first = json.dumps({**content.document, "missing": missing}, indent=2).removesuffix("\n}")
    return f'{first},\n  "tables": {{{rows}}}\n}}\n'


# characters with a meaning in GitHub's Markdown; `_` inside a word has none
_SPECIAL = re.compile(r"[\\`*<>\[\]|~&]|(?<![^\W_])_|_(?![^\W_])")


def format_markdown(content: Content) -> str:
    """Format tables as Markdown; names are escaped."""
    arranged = arrange_tables(content, is_whole=True)
    following = [*(table.caption for table in arranged[1:]), ""]
    return "\n".join(
        _format_table(filled.table.title, table, after)
        for filled, table, after in zip(content.tables, arranged, following, strict=True)
    )


def escape_markdown(text: str) -> str:
    r"""Escape the characters that GitHub reads as Markdown.

    >>> print(escape_markdown("a_b|_c_ <d>"))
    a_b\|\_c\_ \<d\>
    """
    return _SPECIAL.sub(r"\\\g<0>", text)


def _format_table(title: str, table: ShownTable, following: str) -> str:
    """Format a table; the caption is omitted if it is that of the following table."""
    title = f"## {escape_markdown(clean(title))}\n\n"
    if table.lines:
        return title + "".join(f"- {escape_markdown(line)}\n" for line in table.lines)
    notes = [*table.notes, *([table.caption] if table.caption not in ("", following) else [])]
    text = "\n\n".join(notes) + "\n" * bool(notes)
    if not table.columns:
        return title + text
    rows = [
        [escape_markdown(column.heading) for column in table.columns],
        ["---:" if column.is_number else "---" for column in table.columns],
        *_format_rows(table, escape_markdown, "**{}**"),
    ]
    return title + "".join(f"| {' | '.join(line)} |\n" for line in rows) + "\n" * bool(notes) + text


def _format_rows(table: ShownTable, escape: Callable[[str], str], bold: str) -> Iterator[list[str]]:
    """Format the cells of each row; blanks before the last cell are its depth."""
    for kind, *cells in zip(table.kinds, *(column.texts for column in table.columns), strict=True):
        texts = [escape(cell.strip(" ")) for cell in cells]
        texts[-1] = "&nbsp;" * (len(cells[-1]) - len(cells[-1].lstrip(" "))) + texts[-1]
        yield [bold.format(text) if text and kind == "total" else text for text in texts]


def format_html(tables: Sequence[FilledTable], *, limit: int = 10) -> str:
    """Format tables as a fragment of HTML for notebooks; every text of a report is escaped.

    Args:
        tables: Tables with their rows; those without rows are left out.
        limit: Most rows of each group; 0: all.
    """
    return "\n".join(
        (f"<h4>{escape(clean(filled.table.title))}</h4>\n" if filled.table.title else "")
        + format_html_table(
            filled,
            limit=limit,
            aligned=(
                ' style="text-align:left"',
                ' style="text-align:right;font-variant-numeric:tabular-nums"',
            ),
        )
        for filled in tables
        if len(filled.frame)
    )


def format_html_table(
    filled: FilledTable,
    *,
    limit: int = 0,
    is_whole: bool = False,
    aligned: tuple[str, str] = ("", ' class="number"'),
) -> str:
    """Format a table without its title.

    Args:
        filled: Table with its rows.
        limit: Most rows of each group; 0: all.
        is_whole: Include the rows that the view of the table hides.
        aligned: Attributes of cells with texts, and of cells with numbers; by default for a page with a style
            for the class "number".
    """
    table = arrange_table(filled, limit=limit, is_whole=is_whole)
    lines = []
    if table.columns:
        align = [aligned[column.is_number] for column in table.columns]
        headings = "".join(
            f'<th scope="col"{attributes}>{escape(column.heading)}</th>'
            for column, attributes in zip(table.columns, align, strict=True)
        )
        rows = "".join(
            "<tr>" + "".join(map("<td{}>{}</td>".format, align, cells)) + "</tr>"
            for cells in _format_rows(table, escape, "<b>{}</b>")
        )
        lines.append(f"<table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table>")
    if table.lines:
        lines.append(f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in table.lines)}</ul>")
    lines += [f"<p><small>{escape(text)}</small></p>" for text in (*table.notes, table.caption) if text]
    return "\n".join(lines)


def write_text(content: Content, path: Path, *, text: Callable[[Content], str]) -> None:
    """Write tables as one text of a function, as `format_json`."""
    with open_output(path) as stream:
        stream.write(text(content).encode())


def write_parquet(content: Content, path: Path) -> None:
    """Write a table as Parquet."""
    with open_output(path) as stream:
        select_frame(content).write_parquet(stream, compression="zstd", compression_level=1, statistics=False)


# Types that SQLite stores as they are; sqlite-utils makes text of others (lists, dates).
_STORED = frozenset({bool, int, float, str, bytes, type(None)})


def write_sqlite(content: Content, path: Path) -> None:
    """Write tables to a new database."""
    check_file_output(path, "a database")
    import sqlite_utils
    from sqlite_utils.db import jsonify_if_needed
    from sqlite_utils.utils import OperationalError

    try:
        with closing(sqlite_utils.Database(path, execute_plugins=False)) as database:
            for name, frame in select_data(content).items():
                types = frame.schema.to_python()
                database.create_table(name, types)
                rows: Iterator[tuple[Any, ...]] = frame.iter_rows()
                if not _STORED.issuperset(types.values()):
                    rows = (tuple(map(jsonify_if_needed, row)) for row in rows)
                marks = ", ".join("?" * len(types))
                # `insert_all` of sqlite-utils takes ten times as long: 44 s for 400,000 rows of `project`
                with database.conn:
                    database.conn.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
    except (OperationalError, OverflowError) as error:
        number = disk_errno(error, path) if isinstance(error, OperationalError) else None
        raise OSError(number or errno.EINVAL, str(error)) from error


def format_tables(content: Content, *, format: str) -> str:
    """Format tables as one text.

    Args:
        content: Tables with their rows.
        format: Name of a text format: "json" (a document), "markdown", or "csv" for one table.
    """
    text = FORMATS[format].text
    if text is None:
        raise ValueError(f"{format} is a binary format; write it to a file")
    return text(content)


def write_tables(content: Content, output: Path, *, format: str, force: bool) -> list[Path]:
    """Write tables to one file that can contain them all, or to a folder with a file for each.

    Args:
        content: Tables with their rows; data formats leave out those that could not be built.
        output: A file if it has an extension of `SUFFIXES`, otherwise a folder, which is created if missing.
        format: Name of a format.
        force: Replace existing files.

    Returns:
        The paths of the files.

    Raises:
        OutputError: A file cannot be written; existing files are detected before any file is written.
        ValueError: The format holds one table, and there are several.
    """
    contents = {output: content}
    if is_folder := not is_one_file(output):
        written = [filled for filled in content.tables if filled.frame.width or not FORMATS[format].is_data]
        paths = files_in(output, [filled.table.name for filled in written], format)
        contents = {paths[filled.table.name]: replace(content, tables=[filled]) for filled in written}
    with make_folders([output] * is_folder), ExitStack() as all_or_none:
        for path in contents:
            check_output(path, force=force)
        for path, own in contents.items():
            FORMATS[format].write(own, all_or_none.enter_context(replace_file(path, force=force)))
        with hold_interrupts():
            all_or_none.close()
    return [*contents]
