"""Renderers of tables: one for the terminal, one for each file format."""

from nsys_pp.frames.table import FilledTable, Table, describe_columns, fill_tables
from nsys_pp.write.tables.format import Content, Format
from nsys_pp.write.tables.format_registry import (
    FORMATS,
    SUFFIXES,
    files_in,
    format_table,
    format_tables,
    is_one_file,
    write_table,
    write_tables,
)
from nsys_pp.write.tables.rows import find_sort_column
from nsys_pp.write.tables.terminal import open_console, print_tables

__all__ = [
    "FORMATS",
    "SUFFIXES",
    "Content",
    "FilledTable",
    "Format",
    "Table",
    "describe_columns",
    "files_in",
    "fill_tables",
    "find_sort_column",
    "format_table",
    "format_tables",
    "is_one_file",
    "open_console",
    "print_tables",
    "write_table",
    "write_tables",
]
