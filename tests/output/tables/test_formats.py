"""Tables in every file format."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from nsys_pp.errors import OutputError
from nsys_pp.output.tables import FORMATS, SUFFIXES
from nsys_pp.output.tables.formats import format_table, format_tables, write_table, write_tables
from tests.output.tables.tables import make_table
from tests.unpacking import find_words

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
    write_table(make_table(frame), path, format=format, force=False)
    return path


def read_sqlite(path: Path, schema: pl.Schema) -> pl.DataFrame:
    import sqlite3

    database = sqlite3.connect(path)
    rows = database.execute("SELECT * FROM things").fetchall()
    database.close()
    return pl.DataFrame(rows, schema={**schema, "is_open": pl.Int64}, orient="row").cast(schema)


def test_every_format_gives_the_frame_back(tmp_path: Path) -> None:
    schema = PLAIN.schema
    path = written(tmp_path, "parquet")
    read = pl.read_parquet(path)
    assert read.equals(PLAIN)
    assert read.schema == schema
    parquet = pytest.importorskip("pyarrow.parquet", reason="no pyarrow")
    assert parquet.read_schema(path).field("name").type == "large_string"
    assert pl.read_csv(written(tmp_path, "csv"), schema=schema).equals(PLAIN)
    assert pl.read_json(written(tmp_path, "json"), schema=schema).equals(PLAIN)
    assert read_sqlite(written(tmp_path, "sqlite"), schema).equals(PLAIN)


def test_parquet_has_no_category_without_a_row(tmp_path: Path) -> None:
    names = pl.Series("name", ["used", "password", "used"], dtype=pl.Categorical())
    rows = names.to_frame().filter(pl.Series([True, False, True]))
    path = written(tmp_path, "parquet", rows)
    assert not find_words(path.read_bytes(), ["password"])
    assert pl.read_parquet(path)["name"].to_list() == ["used", "used"]


@pytest.mark.parametrize(
    "texts", [["node7"] * 3, ["node7", "node8", "node7"], ["a", None, "a"], [None] * 3, ["", "", ""], ["a"]]
)
def test_a_string_of_all_rows_is_read_as_the_others(tmp_path: Path, texts: list[str | None]) -> None:
    frame = pl.DataFrame({"count": range(len(texts)), "label": pl.Series(texts, dtype=pl.String)})
    path = written(tmp_path, "parquet", frame)
    assert pl.read_parquet(path).equals(frame)
    assert pl.read_parquet(path).schema == pl.read_parquet_schema(path) == frame.schema
    parquet = pytest.importorskip("pyarrow.parquet", reason="no pyarrow")
    assert parquet.read_table(path)["label"].to_pylist() == texts


def test_the_registry_has_the_names_and_extensions_of_its_formats() -> None:
    assert {name: format.name for name, format in FORMATS.items()} == {name: name for name in FORMATS}
    assert {suffix: format.name for format in FORMATS.values() for suffix in format.suffixes} == SUFFIXES


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_an_empty_frame_is_written(tmp_path: Path, format: str) -> None:
    assert written(tmp_path, format, FRAME.clear()).stat().st_size > 0


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_what_is_there_stays_without_force(tmp_path: Path, format: str) -> None:
    path = written(tmp_path, format)
    before = path.read_bytes()
    with pytest.raises(OutputError, match="exists"):
        write_table(make_table(FRAME.clear()), path, format=format, force=False)
    assert path.read_bytes() == before
    write_table(make_table(FRAME.clear()), path, format=format, force=True)
    assert path.read_bytes() != before
    assert list(tmp_path.iterdir()) == [path]


def test_sqlite_in_many_batches(tmp_path: Path) -> None:
    frame = pl.DataFrame({"name": "x", "is_open": True, "count": range(25_003)})
    assert read_sqlite(written(tmp_path, "sqlite", frame), frame.schema).equals(frame)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_text_is_what_the_file_holds(tmp_path: Path, format: str) -> None:
    assert format_table(make_table(FRAME), format=format).rstrip("\n") == written(
        tmp_path, format
    ).read_text().rstrip("\n")
    assert format_table(make_table(FRAME), format=format).endswith("\n")
    assert format_table(make_table(FRAME.clear()), format=format) in (
        "count,share,is_open,kind,name\n",
        "[]\n",
    )


def test_markdown_has_headings_of_people_and_numbers_on_the_right() -> None:
    assert format_table(
        make_table(FRAME, title="Things", caption="How."), format="markdown"
    ).splitlines() == [
        "## Things",
        "",
        "| Count | Share | Is open | Kind | Name |",
        "| ---: | ---: | --- | --- | --- |",
        '| 1 | 0.5 | yes | a | a "b" |',
        "| - | - | no | - |  |",
        f"| {-(2**62):,} | {1e300:,.1f} | - | b | - |",
        "",
        "How.",
    ]
    empty = format_table(make_table(FRAME.clear(), title="Things"), format="markdown")
    assert empty == "## Things\n\nno such events were recorded\n"


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
    table = make_table(pl.DataFrame({"name": [name]}), title=name)
    assert format_table(table, format="markdown") == f"## {written}\n\n| Name |\n| --- |\n| {written} |\n"


SEVERAL = [
    make_table(FRAME, name="first", title="The first"),
    make_table(FRAME.clear(), name="second", title="The second"),
]
NAMES = ("first", "second")


def test_several_tables_are_one_text() -> None:
    found = json.loads(format_tables(SEVERAL, format="json"))
    assert found == {"first": json.loads(format_table(make_table(FRAME), format="json")), "second": []}
    parts = [format_table(table, format="markdown") for table in SEVERAL]
    assert format_tables(SEVERAL, format="markdown") == "\n".join(parts)


def test_tables_that_could_not_be_built_are_explained_to_people_and_left_out_of_data(tmp_path: Path) -> None:
    missing = make_table(
        pl.DataFrame(), name="second", title="Second", missing="not recorded: use `--trace=osrt`"
    )
    tables = [make_table(FRAME, name="first"), missing]
    assert format_tables(tables, format="markdown").endswith(
        "## Second\n\nnot recorded: use `--trace=osrt`\n"
    )
    assert json.loads(format_tables(tables, format="json")).keys() == {"first"}
    assert format_tables(tables, format="csv") == format_table(tables[0], format="csv")
    assert [path.name for path in write_tables(tables, tmp_path / "csv", format="csv", force=False)] == [
        "first.csv"
    ]


@pytest.mark.parametrize("format", ["parquet", "sqlite"])
def test_a_binary_format_is_not_printed(format: str) -> None:
    with pytest.raises(ValueError, match=f"{format} is a binary format"):
        format_tables(SEVERAL, format=format)


def test_data_is_sorted_limited_and_converted_where_that_is_asked_for() -> None:
    frame = pl.DataFrame({"total_ns": [1_000, 3_000, 2_000], "name": ["a", "b", "c"]})
    rows = json.loads(format_tables([make_table(frame)], format="json", sort="total", limit=2, unit="us"))
    assert rows == {"things": [{"total_us": 3.0, "name": "b"}, {"total_us": 2.0, "name": "c"}]}


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_a_folder_has_a_file_for_each_table(tmp_path: Path, format: str) -> None:
    folder = tmp_path / "out"
    paths = write_tables(SEVERAL, folder, format=format, force=False)
    assert sorted(folder.iterdir()) == sorted(paths)
    ((path, content),) = {path: path.read_bytes() for path in paths[1:]}.items()
    path.write_text("mine")
    paths[0].unlink()
    with pytest.raises(OutputError, match="exists"):
        write_tables(SEVERAL, folder, format=format, force=False)
    assert [*folder.iterdir()] == [path], "what is there is found before any is written"
    write_tables(SEVERAL, folder, format=format, force=True)
    assert path.read_bytes() == content


@pytest.mark.parametrize("format", ["json", "markdown", "sqlite"])
def test_a_file_holds_several_tables(tmp_path: Path, format: str) -> None:
    path = tmp_path / {"json": "x.json", "markdown": "x.md", "sqlite": "x.sqlite"}[format]
    assert write_tables(SEVERAL, path, format=format, force=False) == [path]
    if format != "sqlite":
        assert path.read_text() == format_tables(SEVERAL, format=format)
    else:
        with closing(sqlite3.connect(path)) as database:
            counts = [database.execute(f"SELECT count(*) FROM {name}").fetchone() for name in NAMES]
        assert counts == [(3,), (0,)]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_file_of_one_table_holds_one(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"x.{format}"
    with pytest.raises(ValueError, match="holds one table, not 2"):
        write_tables(SEVERAL, path, format=format, force=False)
    assert write_tables(SEVERAL[:1], path, format=format, force=False) == [path]
    assert len(pl.read_csv(path) if format == "csv" else pl.read_parquet(path)) == len(FRAME)
