"""Tables in every format, and as a person sees them."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from nsys_pp.errors import OutputError
from nsys_pp.write.tables.frames import (
    FORMATS,
    format_table,
    format_tables,
    print_table,
    shorten,
    write_table,
    write_tables,
)

FRAME = pl.DataFrame(
    {
        "count": pl.Series([1, None, -(2**62)], dtype=pl.Int64),
        "share": [0.5, None, 1e300],
        "is_open": [True, False, None],
        "kind": pl.Series(["a", None, "b"], dtype=pl.Enum(["a", "b"])),
        "name": pl.Series(['a "b"', "", None], dtype=pl.Categorical()),
    }
)
PLAIN = FRAME.with_columns(pl.col("kind", "name").cast(pl.String))


def written(tmp_path: Path, format: str, frame: pl.DataFrame = FRAME) -> Path:
    path = tmp_path / f"x.{format}"
    write_table(frame, path, format=format, name="things", force=False)
    return path


def read_sqlite(path: Path, schema: pl.Schema) -> pl.DataFrame:
    import sqlite3

    database = sqlite3.connect(path)
    rows = database.execute("SELECT * FROM things").fetchall()
    database.close()
    return pl.DataFrame(rows, schema={**schema, "is_open": pl.Int64}, orient="row").cast(schema)


def test_every_format_gives_the_frame_back(tmp_path: Path) -> None:
    schema = PLAIN.schema
    assert pl.read_parquet(written(tmp_path, "parquet")).equals(PLAIN)
    assert pl.read_csv(written(tmp_path, "csv"), schema=schema).equals(PLAIN)
    assert pl.read_json(written(tmp_path, "json"), schema=schema).equals(PLAIN)
    assert read_sqlite(written(tmp_path, "sqlite"), schema).equals(PLAIN)


@pytest.mark.parametrize("format", sorted(set(FORMATS.values())))
def test_an_empty_frame_is_written(tmp_path: Path, format: str) -> None:
    assert written(tmp_path, format, FRAME.clear()).stat().st_size > 0


@pytest.mark.parametrize("format", sorted(set(FORMATS.values())))
def test_what_is_there_stays_without_force(tmp_path: Path, format: str) -> None:
    path = written(tmp_path, format)
    before = path.read_bytes()
    with pytest.raises(OutputError, match="exists"):
        write_table(FRAME.clear(), path, format=format, name="things", force=False)
    assert path.read_bytes() == before
    write_table(FRAME.clear(), path, format=format, name="things", force=True)
    assert path.read_bytes() != before
    assert list(tmp_path.iterdir()) == [path]


def test_sqlite_in_many_batches(tmp_path: Path) -> None:
    frame = pl.DataFrame({"name": "x", "is_open": True, "count": range(25_003)})
    assert read_sqlite(written(tmp_path, "sqlite", frame), frame.schema).equals(frame)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_text_is_what_the_file_holds(tmp_path: Path, format: str) -> None:
    assert format_table(FRAME, format=format).rstrip("\n") == written(tmp_path, format).read_text().rstrip(
        "\n"
    )
    assert format_table(FRAME, format=format).endswith("\n")
    assert format_table(FRAME.clear(), format=format) in ("count,share,is_open,kind,name\n", "[]\n")


def test_markdown_has_numbers_on_the_right() -> None:
    assert format_table(FRAME, format="markdown").splitlines() == [
        "| count | share | is_open | kind | name |",
        "| ---: | ---: | --- | --- | --- |",
        '| 1 | 0.500 | yes | a | a "b" |',
        "|  |  | no |  |  |",
        f"| {-(2**62):,} | {1e300:,.3f} |  | b |  |",
    ]
    assert format_table(FRAME.clear(), format="markdown").count("\n") == 2


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a|b", "a\\|b"),
        ("void k<float*>(int&)", "void k\\<float\\*\\>(int\\&)"),
        ("two\nlines", "two lines"),
        ("`code` [link](x) ~~no~~", "\\`code\\` \\[link\\](x) \\~\\~no\\~\\~"),
        ("rail_idle __init__", "rail_idle \\_\\_init\\_\\_"),
        ("C:\\dir", "C:\\\\dir"),
    ],
)
def test_names_are_themselves_in_markdown(name: str, written: str) -> None:
    frame = pl.DataFrame({name: [name]})
    assert format_table(frame, format="markdown") == f"| {written} |\n| --- |\n| {written} |\n"


SEVERAL = {"first": FRAME, "second": FRAME.clear()}


def test_several_tables_are_one_text() -> None:
    found = json.loads(format_tables(SEVERAL, format="json", titles={}))
    assert found == {"first": json.loads(format_table(FRAME, format="json")), "second": []}
    markdown = format_tables(SEVERAL, format="markdown", titles={"first": "The first"})
    parts = [format_table(frame, format="markdown") for frame in SEVERAL.values()]
    assert markdown == f"## The first\n\n{parts[0]}\n## second\n\n{parts[1]}"


@pytest.mark.parametrize("format", sorted(set(FORMATS.values())))
def test_a_folder_has_a_file_for_each_table(tmp_path: Path, format: str) -> None:
    folder = tmp_path / "out"
    paths = write_tables(SEVERAL, folder, format=format, titles={}, force=False)
    assert sorted(folder.iterdir()) == sorted(paths)
    ((path, content),) = {path: path.read_bytes() for path in paths[1:]}.items()
    path.write_text("mine")
    paths[0].unlink()
    with pytest.raises(OutputError, match="exists"):
        write_tables(SEVERAL, folder, format=format, titles={}, force=False)
    assert [*folder.iterdir()] == [path], "what is there is found before any is written"
    write_tables(SEVERAL, folder, format=format, titles={}, force=True)
    assert path.read_bytes() == content


@pytest.mark.parametrize("format", ["json", "markdown", "sqlite"])
def test_a_file_holds_several_tables(tmp_path: Path, format: str) -> None:
    path = tmp_path / {"json": "x.json", "markdown": "x.md", "sqlite": "x.sqlite"}[format]
    assert write_tables(SEVERAL, path, format=format, titles={}, force=False) == [path]
    if format != "sqlite":
        assert path.read_text() == format_tables(SEVERAL, format=format, titles={})
    else:
        with closing(sqlite3.connect(path)) as database:
            counts = [database.execute(f"SELECT count(*) FROM {name}").fetchone() for name in SEVERAL]
        assert counts == [(3,), (0,)]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_file_of_one_table_holds_one(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"x.{format}"
    with pytest.raises(ValueError, match="holds one table, not 2"):
        write_tables(SEVERAL, path, format=format, titles={}, force=False)
    assert write_tables({"first": FRAME}, path, format=format, titles={}, force=False) == [path]
    assert len(pl.read_csv(path) if format == "csv" else pl.read_parquet(path)) == len(FRAME)


@given(st.text(), st.integers(1, 60))
def test_a_short_text_fits_and_keeps_both_ends(text: str, width: int) -> None:
    short = shorten(text, width)
    assert cell_len(short) <= max(width, 0)
    if cell_len(text) <= width:
        assert short == text
    else:
        assert cell_len(short) == width
        head, _, tail = short.partition("…")
        assert text.startswith(head.rstrip(" "))
        assert text.endswith(tail.lstrip(" "))


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (1, "…"),
        (2, "a…"),
        (3, "ab…"),
        (4, "ab…z"),
        (7, "abcd…yz"),
        (10, "abcdef…xyz"),
        (26, "abcdefghijklmnopqrstuvwxyz"),
    ],
)
def test_a_text_loses_its_middle(width: int, expected: str) -> None:
    assert shorten("abcdefghijklmnopqrstuvwxyz", width) == expected


def printed(frame: pl.DataFrame, width: int | None = None, limit: int = 99, **decimals: int) -> list[str]:
    """Lines that a terminal of some width shows; without one, those of a file."""
    file = io.StringIO()
    console = Console(file=file, width=width or 80, force_terminal=width is not None, color_system=None)
    print_table(frame, limit=limit, console=console, decimals=decimals)
    return file.getvalue().splitlines()


def test_numbers_are_aligned_to_the_right() -> None:
    frame = pl.DataFrame(
        {
            "ops": [5, 1_234_567],
            "ms": [1.0, -2000.12345],
            "share": [None, 5.25],
            "GPU": ["a", "bcde"],
            "name": ["x", ""],
        }
    )
    assert printed(frame, share=1) == [
        "      ops          ms  share  GPU   name",
        "        5       1.000         a     x",
        "1,234,567  -2,000.123    5.2  bcde",
    ]


def test_booleans_are_words_and_null_is_nothing() -> None:
    frame = pl.DataFrame({"is_open": [True, False, None], "name": ["x", None, "z"]})
    assert printed(frame) == ["is_open  name", "yes      x", "no", "         z"]


def test_only_so_many_rows_are_printed() -> None:
    frame = pl.DataFrame({"name": ["a", "b" * 500]})
    assert printed(frame, limit=1, width=20) == ["name", "a"]
    assert printed(frame, limit=0) == ["name"]
    assert printed(frame.clear()) == ["name"]


def test_names_take_what_is_left_of_a_terminal() -> None:
    frame = pl.DataFrame({"ops": [1], "thread": ["t" * 10], "name": ["n" * 200]})
    for width in range(34, 120):
        lines = printed(frame, width)
        assert lines[0] == "ops  thread      name"
        assert len(lines[1]) == width
    assert printed(frame)[1] == f"  1  {'t' * 10}  {'n' * 200}"


def test_a_narrow_terminal_leaves_columns_out_before_names() -> None:
    frame = pl.DataFrame({"ops": [1], "thread": ["t" * 10], "name": ["n" * 200]})
    assert printed(frame, 32)[0] == "ops  name"
    assert printed(frame, 20)[0] == "name"
    assert [len(line) for line in printed(frame, 5)] == [4, 5]


def test_indentation_never_hides_a_name() -> None:
    frame = pl.DataFrame({"name": [" " * depth + "forward_12" for depth in (0, 2, 50)]})
    assert printed(frame, 18) == ["name", "forward_12", "  forward_12", "      forward_12"]
    assert printed(frame)[3] == " " * 50 + "forward_12"


def test_wide_characters_count_as_two() -> None:
    frame = pl.DataFrame({"GPU": ["前向", "b"], "name": ["前" * 40, "x"]})
    lines = printed(frame, 40)
    assert [cell_len(line) for line in lines[1:]] == [40, 7]
    assert lines[2] == "b     x"


def test_a_name_cannot_play_with_the_terminal() -> None:
    """Nor is it read as markup."""
    frame = pl.DataFrame({"name": ["a\x1b[31mb\nc\td\x07\x9b", "[bold]x[/bold] :smile:"]})
    assert printed(frame, 60)[1:] == ["a [31mb c d", "[bold]x[/bold] :smile:"]
