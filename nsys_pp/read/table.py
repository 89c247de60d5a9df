"""Description of an exported table: its names, its columns, and the raw frame that it fills."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from nsys_pp.frames.raw import Group


class Column(Struct, frozen=True):
    """A column to read: its names, newest first, and the groups that need it."""

    names: tuple[str, ...]
    groups: tuple[Group, ...] = ()  # read for any of these; (): whenever the table is read
    words: Mapping[int, str | int] | None = None  # enumeration -> our words; other numbers become null
    words_beyond: tuple[int, str | int] | None = None  # (first number, word for it and all larger numbers)


class Table(Struct, frozen=True):
    """An exported table that fills a raw frame, or a part of it."""

    frame: str
    names: tuple[str, ...]
    columns: Mapping[str, Column]
    groups: tuple[Group, ...] = ()  # read for any of these; (): always
    useless_without: Mapping[Group, str] = field(default_factory=dict)  # group -> table that it requires
    superseded_by: Mapping[Group, str] = field(default_factory=dict)  # group -> table that has it instead
    must_have: tuple[str, ...] = ()  # exported columns that identify the table
    any_of: tuple[str, ...] = ()  # rows where one of these frame columns is set; () for all rows
    rows_named: Mapping[str, str] = field(
        default_factory=dict
    )  # name of a row -> name of the fact in the raw frame
    title: str = ""  # of its row in a trace: column "source" of the raw frame


class Source(Struct, frozen=True):
    """A `Table` in one export: its name, and its columns that exist and are needed."""

    table: Table
    name: str
    columns: Mapping[str, str]  # raw column -> exported column
