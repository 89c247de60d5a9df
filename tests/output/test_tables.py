"""Tables made of any frame."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from nsys_pp.frames.table import Absence, AnyTable, Column, FilledTable, Table, View
from nsys_pp.output.tables import FORMATS
from nsys_pp.output.tables.formats import format_html, format_tables, write_tables
from nsys_pp.output.tables.text import (
    Content,
    TextColumn,
    arrange_rows,
    convert_times,
    format_columns,
    mark_first_rows,
    shorten_name,
    sort_rows,
)
from tests.sql import select


def make_table(
    frame: pl.DataFrame,
    *,
    name: str = "things",
    title: str = "t",
    caption: str = "",
    groups: Collection[str] = (),
    symbols: Collection[str] = (),
    totals: tuple[str, ...] = (),
    is_nested: bool = False,
    is_fixed: bool = False,
    absence: Absence | None = None,
    **more: Any,
) -> FilledTable:
    """Make a table whose columns are those of the frame."""
    table = Table(
        name=name,
        title=title,
        columns=tuple(
            Column(column, dtype, "", is_group=column in groups, is_symbol=column in symbols)
            for column, dtype in frame.schema.items()
        ),
        caption=caption,
        rows=lambda: frame,
        totals=totals,
        is_nested=is_nested,
        is_fixed=is_fixed,
        **more,
    )
    return FilledTable(table=table, frame=frame, absence=absence)


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
    write_tables(Content(tables=[make_table(frame)]), path, format=format, force=False)
    return path


def test_every_format_gives_the_frame_back(tmp_path: Path) -> None:
    schema = PLAIN.schema
    path = written(tmp_path, "parquet")
    read = pl.read_parquet(path)
    assert read.equals(PLAIN)
    assert read.schema == schema
    parquet = pytest.importorskip("pyarrow.parquet", reason="no pyarrow")
    assert parquet.read_schema(path).field("name").type == "large_string"
    assert pl.read_csv(written(tmp_path, "csv"), schema=schema).equals(PLAIN)
    rows = json.loads(written(tmp_path, "json").read_text())["tables"]["things"]
    assert pl.DataFrame(rows, schema=schema).equals(PLAIN)
    stored = select(written(tmp_path, "sqlite"), "SELECT * FROM things")
    typed = pl.DataFrame(stored, schema={**schema, "is_open": pl.Int64}, orient="row").cast(schema)
    assert typed.equals(PLAIN)


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_an_empty_frame_is_written(tmp_path: Path, format: str) -> None:
    assert written(tmp_path, format, FRAME.clear()).stat().st_size > 0


def test_sqlite_holds_values_without_a_type_of_its_own_as_text(tmp_path: Path) -> None:
    frame = pl.DataFrame({"list": [[1, 2], None], "day": [None, date(2026, 11, 24)], "count": [1, None]})
    rows = select(written(tmp_path, "sqlite", frame), "SELECT * FROM things")
    assert rows == [("[1, 2]", None, 1), (None, "2026-11-24", None)]


def as_text(*tables: FilledTable, format: str) -> str:
    return format_tables(Content(tables=tables), format=format)


def test_text_of_no_rows() -> None:
    assert as_text(make_table(FRAME.clear()), format="csv") == "count,share,is_open,kind,name\n"


def test_markdown_has_headings_of_people_and_numbers_on_the_right() -> None:
    assert as_text(make_table(FRAME, title="Things", caption="How."), format="markdown").splitlines() == [
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
    empty = as_text(make_table(FRAME.clear(), title="Things"), format="markdown")
    assert empty == "## Things\n\nno such events were recorded\n"


SEVERAL = [
    make_table(FRAME, name="first", title="The first"),
    make_table(FRAME.clear(), name="second", title="The second"),
]


NAMES = ("first", "second")


def test_several_tables_are_one_text() -> None:
    assert json.loads(format_tables(Content(tables=SEVERAL, document={"schema": "x"}), format="json")) == {
        "schema": "x",
        "missing": [{"table": "second", "why": "no such events were recorded", "record_with": []}],
        "tables": {"first": json.loads(FRAME.write_json()), "second": []},
    }
    parts = [as_text(table, format="markdown") for table in SEVERAL]
    assert as_text(*SEVERAL, format="markdown") == "\n".join(parts)


def test_tables_that_could_not_be_built_are_explained_to_people_and_left_out_of_data(tmp_path: Path) -> None:
    absence = Absence("not recorded", ("--trace=osrt", "--trace=mpi"))
    missing = make_table(pl.DataFrame(), name="second", title="Second", absence=absence)
    tables = [make_table(FRAME, name="first"), missing]
    text = "## Second\n\nnot recorded: profile with `--trace=osrt` or `--trace=mpi`\n"
    assert as_text(*tables, format="markdown").endswith(text)
    found = json.loads(as_text(*tables, format="json"))
    assert found["tables"].keys() == {"first"}
    assert found["missing"] == [
        {"table": "second", "why": "not recorded", "record_with": ["--trace=osrt", "--trace=mpi"]}
    ]
    assert as_text(*tables, format="csv") == as_text(tables[0], format="csv")
    content = Content(tables=tables)
    assert [path.name for path in write_tables(content, tmp_path / "csv", format="csv", force=False)] == [
        "first.csv"
    ]


@pytest.mark.parametrize("format", ["parquet", "sqlite"])
def test_a_binary_format_is_not_printed(format: str) -> None:
    with pytest.raises(ValueError, match=f"{format} is a binary format"):
        as_text(*SEVERAL, format=format)


@pytest.mark.parametrize("format", ["json", "markdown", "sqlite"])
def test_a_file_holds_several_tables(tmp_path: Path, format: str) -> None:
    path = tmp_path / {"json": "x.json", "markdown": "x.md", "sqlite": "x.sqlite"}[format]
    assert write_tables(Content(tables=SEVERAL), path, format=format, force=False) == [path]
    if format != "sqlite":
        assert path.read_text() == as_text(*SEVERAL, format=format)
    else:
        assert [select(path, f"SELECT count(*) FROM {name}") for name in NAMES] == [[(3,)], [(0,)]]


def shown(unit: str | None = None, **columns: Sequence[object]) -> dict[str, TextColumn]:
    frame = pl.DataFrame(columns)
    return {text.column.name: text for text in format_all(frame, unit=unit, is_blank=[False] * len(frame))}


def format_all(frame: pl.DataFrame, *, unit: str | None, is_blank: Sequence[bool]) -> list[TextColumn]:
    columns = [Column(name, dtype, "") for name, dtype in frame.schema.items()]
    return format_columns(frame, columns, unit=unit, is_blank=is_blank)


Columns = dict[str, list[Any]]
MEASURES: Columns = {
    "total_ns": [2_000_000_000, 40_000],
    "mean_ns": [400_000.0, 2_000.0],
    "max_ns": [39_000_000, 3_000],
    "min_ns": [100, 200],
}
QUANTITIES: Columns = {
    "total_bytes": [3 << 30, 1 << 28],
    "mean_bytes": [3 << 30, 4],
    "size_bytes": [512, 1],
    "fraction": [0.4602, 1.0],
    "host_fraction": [0.5, None],
    "bytes_per_s": [2.5e9, None],
    "op_count": [12_345, 0],
    "late_count": [1, 2],
    "mean_queue_count": [1.25, 0.0],
    "step": [12_345, None],
}


@pytest.mark.parametrize(
    ("columns", "unit", "expected"),
    [
        *(
            pytest.param({"total_ns": [time_ns]}, None, {f"Total ({unit})": [text]}, id=text)
            for time_ns, unit, text in [
                (999, "ns", "999"),
                (1_234, "us", "1.234"),
                (999_999, "us", "1,000.00"),
                (18_591_040_000, "ms", "18,591.04"),
                (999_000_000_000, "ms", "999,000.0"),
                (1_000_000_000_000, "s", "1,000.00"),
            ]
        ),
        pytest.param(
            {"max_ns": [999_999_960], "mean_ns": [5_000.0]},
            None,
            {"Max (ms)": ["1,000.00"], "Mean (ms)": ["0.005"]},
            id="small means make no seventh digit",
        ),
        pytest.param(
            MEASURES,
            None,
            {
                "Total (ms)": ["2,000.000", "0.040"],
                "Mean (us)": ["400.00", "2.00"],
                "Max (us)": ["39,000.00", "3.00"],
                "Min (us)": ["0.100", "0.200"],
            },
            id="measures of one call share a unit that shows each mean",
        ),
        pytest.param(
            {"mean_ns": [5e9], "min_ns": [12]},
            None,
            {"Mean (ms)": ["5,000.00"], "Min (ns)": ["12"]},
            id="all zeros",
        ),
        pytest.param(
            {"total_ns": [1_500_000_000], "mean_ns": [1.5e3], "count": [2]},
            "s",
            {"Total (s)": ["1.500"], "Mean (s)": ["0.000"], "Count": ["2"]},
            id="asked for",
        ),
        pytest.param(
            QUANTITIES,
            None,
            {
                "Total (GiB)": ["3.000", "0.250"],
                "Mean": ["3.0 GiB", "4 B"],  # in one unit the second would not be seen
                "Size (B)": ["512", "1"],
                "Share (%)": ["46.02", "100.00"],
                "CPU (%)": ["50.00", "-"],
                "Bandwidth (GB/s)": ["2.50", "-"],
                "Operations": ["12,345", "0"],
                "Late": ["1", "2"],
                "Mean queue": ["1.2", "0.0"],
                "Step": ["12345", "-"],
            },
            id="other units",
        ),
    ],
)
def test_values_have_the_unit_that_shows_them(
    columns: Columns, unit: str | None, expected: dict[str, list[str]]
) -> None:
    assert {column.heading: [*column.texts] for column in shown(unit, **columns).values()} == expected


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 10**14), min_size=1, max_size=5))
@example([999_999_950_001])  # rounded to 1,000,000.0 ms
def test_the_largest_time_fits_in_six_digits_and_is_seen(times: list[int]) -> None:
    column = shown(total_ns=times, name=["a"] * len(times))["total_ns"]
    largest = max(float(text.replace(",", "")) for text in column.texts)
    assert largest < 1e6
    assert largest > 0 or max(times) == 0


def test_a_display_unit_is_that_of_all_values_unless_another_is_asked_for() -> None:
    column = Column("wait_ns", pl.Float64, "", display_unit="us", is_signed=True)
    frame = pl.DataFrame({"wait_ns": [12_345_678.0, -50.0, 0.0]})
    (own,) = format_columns(frame, [column], unit=None, is_blank=[False] * 3)
    assert (own.heading, own.texts) == ("Wait (us)", ("+12,345.7", "-0.1", "+0.0"))
    (asked,) = format_columns(frame, [column], unit="ms", is_blank=[False] * 3)
    assert asked.heading == "Wait (ms)"


def test_what_is_unknown_is_a_dash_and_in_rows_of_sums_nothing() -> None:
    frame = pl.DataFrame(
        {"total_ns": [None, None], "name": ["a", "total"]}, schema_overrides={"total_ns": pl.Int64}
    )
    times, _ = format_all(frame, unit=None, is_blank=[False, True])
    assert times.texts == ("-", "")


def test_times_of_data_are_given_in_a_unit_and_nothing_else_is_touched() -> None:
    frame = pl.DataFrame(
        {"total_ns": [1_500_000, None], "mean_ns": [1.5, 2.0], "tons": [1, 2], "name": ["a", "b"]}
    )
    assert convert_times(frame, "ms").to_dict(as_series=False) == {
        "total_ms": [1.5, None],
        "mean_ms": [1.5e-6, 2e-6],
        "tons": [1, 2],
        "name": ["a", "b"],
    }
    assert convert_times(frame, "ns").equals(frame)


def table_of(
    *,
    groups: tuple[str, ...] = (),
    totals: tuple[str, ...] = (),
    is_nested: bool = False,
    is_fixed: bool = False,
) -> AnyTable:
    """Make a table without rows, of which only the columns of groups matter."""
    frame = pl.DataFrame({group: [] for group in groups})
    return make_table(frame, groups=groups, totals=totals, is_nested=is_nested, is_fixed=is_fixed).table


TREE = table_of(is_nested=True)


LIST = table_of()


def names_by(column: str, columns: dict[str, list[Any]], table: AnyTable = LIST) -> list[str]:
    return sort_rows(pl.DataFrame(columns), column, table)["name"].to_list()


def test_rows_fall_and_names_and_minima_rise() -> None:
    columns: dict[str, list[Any]] = {
        "max_ns": [1, 3, None, 2],
        "min_ns": [7, None, 5, 6],
        "name": list("bdac"),
    }
    assert names_by("max_ns", columns) == ["d", "c", "b", "a"]
    assert names_by("min_ns", columns) == ["a", "c", "b", "d"]
    assert names_by("name", columns) == ["a", "b", "c", "d"]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, 1, 2, 3])), min_size=1, max_size=12).map(
        lambda rows: [(0, rows[0][1]), *rows[1:]]
    )
)
def test_sorting_a_tree_is_sorting_the_parts_of_each_row(rows: list[tuple[int, int | None]]) -> None:
    names = ["  " * depth + str(number) for number, (depth, _) in enumerate(rows)]
    found = names_by("count", {"count": [value for _, value in rows], "name": names}, TREE)

    def order(first: int, last: int, depth: int) -> list[str]:
        """Sort rows of this depth, each with what is below it; deeper ones before the first of them stay first."""
        heads = [number for number in range(first, last) if rows[number][0] == depth]
        start = heads[0] if heads else last
        before = order(first, start, depth + 1) if start > first else []
        blocks = [
            (rows[head][1], [names[head], *order(head + 1, end, depth + 1)])
            for head, end in zip(heads, [*heads[1:], last], strict=False)
        ]
        blocks.sort(key=lambda block: (block[0] is None, -(block[0] or 0)))
        return before + [name for _, block in blocks for name in block]

    assert found == order(0, len(rows), 0)


COUNTED = table_of(totals=("count",))
STEP_PARTS: Columns = {"count": [0, 1, 2], "name": ["step", "  forward", "  others"]}


@pytest.mark.parametrize(
    ("columns", "table", "limit", "expected"),
    [
        pytest.param(
            {
                "count": [4, 3, 2, 1],
                "fraction": [0.5, 0.25, 0.125, 0.125],
                "mean_ns": [1.0] * 4,
                "name": "abcd",
            },
            table_of(totals=("count", "fraction")),
            1,
            [
                ("row", 4, 0.5, 1.0, "a"),
                ("rest", 6, 0.5, None, "… 3 more rows"),
                ("total", 10, 1.0, None, "total"),
            ],
            id="the total is of all rows",
        ),
        pytest.param(
            {"count": [6, 3, 1], "name": "abc"},
            COUNTED,
            1,
            [("row", 6, "a"), ("rest", 4, "… 2 more rows, 40.0 %"), ("total", 10, "total")],
            id="without a column of shares",
        ),
        pytest.param(
            {"count": [0, 0], "name": "ab"},
            COUNTED,
            1,
            [("row", 0, "a"), ("rest", 0, "… 1 more row"), ("total", 0, "total")],
            id="no share of nothing",
        ),
        pytest.param({"count": [1], "name": "a"}, COUNTED, 5, [("row", 1, "a")], id="one row has no total"),
        pytest.param(
            {"count": [1, 1], "name": "aa"},
            table_of(),
            1,
            [("row", 1, "a"), ("rest", None, "… 1 more row")],
            id="rows that overlap have no total",
        ),
        pytest.param(
            {"count": [None, None], "name": "ab"},
            COUNTED,
            0,
            [("row", None, "a"), ("row", None, "b"), ("total", None, "total")],
            id="what nobody knows is not zero",
        ),
        pytest.param(
            {"rank": "aaabb", "count": [3, 2, 1, 5, 5], "name": "vwxyz"},
            table_of(groups=("rank",), totals=("count",)),
            2,
            [
                *[("row", "a", 3, "v"), ("row", "a", 2, "w"), ("rest", "a", 1, "… 1 more row, 16.7 %")],
                *[("total", "a", 6, "total"), ("row", "b", 5, "y"), ("row", "b", 5, "z")],
                ("total", "b", 10, "total"),
            ],
            id="each group has its total",
        ),
        pytest.param(
            {"rank": "abc", "count": [1, 2, 3], "fraction": [1.0] * 3, "name": "xyz"},
            table_of(groups=("rank",), totals=("count", "fraction")),
            2,
            [
                *[("row", "a", 1, 1.0, "x"), ("row", "b", 2, 1.0, "y")],
                *[("rest", None, 3, None, "… 1 more row, 50.0 %"), ("total", None, 6, None, "total")],
            ],
            id="shares of groups of one row do not add up",
        ),
        pytest.param(
            {"count": range(9), "name": ["a", "  b", "  c", "  d", "  e", "f", "  g", "  h", "i"]},
            TREE,
            2,
            [
                *[("row", 0, "a"), ("row", 1, "  b"), ("rest", None, "  … 3 more parts")],
                *[("row", 5, "f"), ("row", 6, "  g"), ("rest", None, "  … 1 more part")],
                ("rest", None, "… 1 more row"),
            ],
            id="a third of the parts is shown",
        ),
        pytest.param(
            STEP_PARTS,
            TREE,
            2,
            [("row", 0, "step"), ("row", 1, "  forward"), ("row", 2, "  others")],
            id="parts of a single row are shown like rows",
        ),
        pytest.param(
            STEP_PARTS,
            table_of(is_nested=True, is_fixed=True),
            1,
            [("row", 0, "step"), ("row", 1, "  forward"), ("row", 2, "  others")],
            id="always the same rows",
        ),
        pytest.param(
            {"kind": "aab", "group": [1, 2, 3], "block": [4, 5, 6], "name": "xyz"},
            table_of(groups=("kind",), totals=("block",)),
            1,
            [
                *[("row", "a", 1, 4, "x"), ("rest", "a", None, 5, "… 1 more row, 55.6 %")],
                *[("total", "a", None, 9, "total"), ("row", "b", 3, 6, "z")],
            ],
            id="columns of any name",
        ),
    ],
)
def test_rows_are_limited_and_added_up(
    columns: dict[str, Any], table: AnyTable, limit: int, expected: list[tuple[object, ...]]
) -> None:
    frame = pl.DataFrame({name: [*values] for name, values in columns.items()})
    assert arrange_rows(frame.cast({pl.Null: pl.Int64}), table, limit=limit).drop("_group").rows() == expected


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(-5, 5)), min_size=1, max_size=20),
    st.integers(0, 6),
)
def test_shown_and_left_out_add_up_to_the_total_of_each_group(
    rows: list[tuple[int, int, int]], limit: int
) -> None:
    rows.sort(key=lambda row: row[0])
    frame = pl.DataFrame(rows, schema={"stage": pl.Int64, "depth": pl.Int64, "count": pl.Int64}, orient="row")
    frame = frame.with_columns(name=pl.lit("x"))
    shape = table_of(groups=("stage",), totals=("count",))
    shown = arrange_rows(frame, shape, limit=limit)
    for group in shown["_group"].unique():
        values = {"row": 0, "rest": 0}
        total = None
        for number, kind, value in shown.select("_group", "_kind", "count").rows():
            if number == group:
                if kind == "total":
                    total = value
                else:
                    values[kind] += value
        assert total is None or total == sum(values.values())
    all_rows = len(shown.filter(_kind="row"))
    assert all_rows == mark_first_rows(frame, shape, limit=limit).sum()
    assert all_rows == len(frame) or limit > 0


NASTY = "<script>alert(1)</script> & \"x\" 'y'"


def test_html_has_the_rows_of_a_view_and_no_text_is_a_tag() -> None:
    frame = pl.DataFrame({"total_ns": [1_500_000, 2_000_000], "name": [NASTY, "  nested"], "other": [1, 2]})
    text = format_html([make_table(frame, title=f"Title {NASTY}", view=View(columns=("total_ns", "name")))])
    root = ElementTree.fromstring(f"<p>{text.replace('&nbsp;', chr(0xA0))}</p>")
    rows = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    assert rows == [["Total (ms)", "Name"], ["1.500", NASTY], ["2.000", "\xa0\xa0nested"]]
    assert "script" not in {element.tag for element in root.iter()}


NAME = "void at::native::elementwise_kernel<(int)128, (int)2, at::Impl<float>::lambda(int)>(int, T3)"


@pytest.mark.parametrize(
    ("cells", "short"),
    [
        (200, NAME),
        (90, "at::native::elementwise_kernel<(int)128, (int)2, at::Impl<float>::lambda(int)>(…)"),
        (40, "at::native::elementw…t>::lambda(int)>(…)"),
    ],
)
def test_a_function_loses_its_parameters_and_then_its_middle(cells: int, short: str) -> None:
    assert shorten_name(NAME, cells, is_symbol=True) == short


@given(st.text(), st.integers(2, 40))
def test_a_short_name_fits(name: str, cells: int) -> None:
    assert cell_len(shorten_name(name, cells)) <= cells
