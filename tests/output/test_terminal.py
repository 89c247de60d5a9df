"""Tables on a terminal, in a log and in Markdown."""

from __future__ import annotations

import io

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from nsys_pp.frames.table import Absence, Column, FilledTable, Table, View
from nsys_pp.output.tables.formats import format_tables
from nsys_pp.output.tables.terminal import LOG_WIDTH, open_console, print_tables
from nsys_pp.output.tables.text import Content
from tests.output.test_tables import make_table


def test_lines_replace_rows_and_control_nothing() -> None:
    frame = pl.DataFrame({"line": ["One [red]finding[/red].", "evil \x1b[2J"]})
    table = Table(
        name="words",
        title="Words",
        columns=(Column("line", pl.String, ""),),
        caption="",
        rows=lambda: frame,
        view=View(columns=("line",), lines=lambda rows: rows["line"].to_list()),
    )
    stream = io.StringIO()
    content = Content(tables=[FilledTable(table=table, frame=frame)])
    print_tables(content, console=Console(file=stream, width=80, markup=False))
    title, first, second = stream.getvalue().splitlines()
    assert (title, first) == ("Words", "One [red]finding[/red].")
    assert "\x1b" not in second
    text = format_tables(content, format="markdown")
    assert text.splitlines()[:3] == ["## Words", "", r"- One \[red\]finding\[/red\]."]


NAMES = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, T2, char (*)[4])",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "漢字カーネル" * 9,
    "evil \x1b[2J\x1b[31m[red]name[/red]\r\n\t👩‍👩‍👧 ❤️ :smile:",
    "e\u0301" * 60,
)
KERNELS = pl.DataFrame(
    {
        "count": [288, 12, 4, 3, 2],
        "total_ns": [1_316_410_000, 159_570_000, 90_000_000, 1_000_000, 1_000],
        "fraction": [0.8395, 0.1018, 0.0574, 0.0006, 0.0],
        "mean_ns": [4_570_000.0, 13_297_500.0, 22_500_000.0, 333_333.3, 500.0],
        "median_ns": [554_000.0, 13_298_000.0, 22_500_000.0, 333_333.0, 500.0],
        "min_ns": [120_000, 45_000, 20_000_000, 333_000, 400],
        "max_ns": [39_330_000, 26_550_000, 25_000_000, 334_000, 600],
        "std_ns": [6_330_000.0, 10_330_000.0, 2_500_000.0, 500.0, 141.4],
        "rank_min_ns": [253_860_000, 0, 1, 2, 3],
        "rank_median_ns": [329_110_000.0, 39_930_000.0, 1.0, 2.0, 3.0],
        "rank_max_ns": [404_340_000, 79_570_000, 1, 2, 3],
        "slowest_rank": ["rank 0", "rank 3", "rank 1", None, "rank 2"],
        "name": NAMES,
    }
)
TABLE = make_table(
    KERNELS,
    title="Kernels by name",
    symbols=["name"],
    totals=("count", "total_ns", "fraction"),
    caption="Durations of kernels, summed: concurrent kernels all count.",
)
PHASES = pl.DataFrame(
    {
        "count": [4, 8, None],
        "host_total_ns": [18_591_040_000, 1_720_560_000, 16_870_480_000],
        "host_fraction": [1.0, 0.0925, 0.9075],
        "host_max_ns": [5_000_000_000, 200_000_000, None],
        "host_min_ns": [4_000_000_000, 100_000_000, None],
        "gpu_total_ns": [4_924_900_000, 714_830_000, 2_400_270_000],
        "gpu_fraction": [1.0, 0.1451, 0.4874],
        "gpu_max_ns": [1_300_000_000, 90_000_000, None],
        "gpu_min_ns": [1_200_000_000, 80_000_000, None],
        "phase": ["step", "  forward", "  others"],
    }
)


def printed(
    *tables: FilledTable,
    width: int | None = None,
    limit: int = 15,
    unit: str | None = None,
    colour: bool = False,
    is_wide: bool = False,
) -> list[str]:
    """Print on a terminal of that width, or into a file."""
    console = Console(
        file=io.StringIO(),
        width=width or LOG_WIDTH,
        force_terminal=width is not None,
        color_system="standard" if colour else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as screen:
        print_tables(Content(tables=tables, limit=limit, unit=unit, is_wide=is_wide), console=console)
    return [line.rstrip() for line in screen.get().split("\n")[:-1]]


def test_a_log_has_at_most_160_columns_and_whole_names_if_asked_for() -> None:
    lines = printed(TABLE, is_wide=True)
    assert lines[0] == "Kernels by name"
    assert max(map(cell_len, lines)) <= LOG_WIDTH
    start = lines[3].rindex("Name")
    names = [line[start:] for line in lines[4:-2]]
    assert "".join(names).replace(" ", "").startswith(NAMES[0].replace(" ", "") + NAMES[1].replace(" ", ""))
    assert (lines[-2].split(), lines[-1]) == (["309", "1,566.981", "99.93", "total"], TABLE.table.caption)


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 120, 200])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    by_rank = KERNELS.clone().insert_column(
        0, pl.Series("rank", ["rank 0", "rank 0", "a machine " * 9, "漢字" * 30, None])
    )
    grouped = make_table(title="By rank " * 9, frame=by_rank, groups=("rank",), totals=("count",))
    phases = make_table(title="p", frame=PHASES, is_nested=True)
    absent = make_table(
        pl.DataFrame(), title="a", absence=Absence("not recorded", ("--trace=osrt", "--trace=and-more"))
    )
    lines = printed(TABLE, grouped, phases, absent, width=width)
    assert max(map(cell_len, lines)) <= width
    assert all(line.isprintable() for line in lines)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text(max_size=60), min_size=1, max_size=4),
    st.lists(st.text(max_size=40), min_size=4, max_size=4),
    st.integers(12, 90),
    st.booleans(),
)
def test_no_name_breaks_a_table(names: list[str], ranks: list[str], width: int, is_nested: bool) -> None:
    frame = pl.DataFrame({"rank": sorted(ranks[: len(names)]), "count": range(len(names)), "name": names})
    table = make_table(frame, groups=("rank",), is_nested=is_nested, caption="how")
    lines = printed(table, width=width, limit=0)
    assert max(map(cell_len, lines)) <= width
    assert lines[0] == "t"
    assert lines[-1] == "how" or "also" in "".join(lines)


def test_where_there_is_no_room_measures_of_one_call_go_before_totals_and_are_named() -> None:
    phases = make_table(PHASES, title="p", is_nested=True, caption="s")
    lines = printed(phases, width=53)
    assert [line.split() for line in lines[1:4]] == [
        ["GPU"],
        ["CPU", "total", "CPU", "total", "GPU"],
        ["Count", "(ms)", "(%)", "(ms)", "(%)", "Phase"],
    ]
    assert lines[-3:] == [
        "a wider output also shows: CPU max (ms), CPU min",
        "(ms), GPU max (ms), GPU min (ms)",
        "s",
    ]
    assert "also shows" not in "".join(printed(phases, width=200))


def test_a_long_name_of_a_range_loses_its_middle_and_is_whole_if_asked_for() -> None:
    frame = pl.DataFrame({"count": [1], "name": ["  " + "abcdefghij" * 20]})
    columns = (Column("count", pl.Int64, ""), Column("name", pl.String, "", is_name=True))
    table = Table(name="t", title="T", columns=columns, caption="", rows=lambda: frame)
    filled = FilledTable(table=table, frame=frame)
    assert printed(filled, width=40)[2:] == ["    1    abcdefghijabcde…fghijabcdefghij"]
    whole = [line.removeprefix("    1").strip() for line in printed(filled, width=40, is_wide=True)[2:]]
    assert "".join(whole) == "abcdefghij" * 20


def test_a_long_output_ends_with_its_first_lines_and_names_empty_tables_once() -> None:
    lines = pl.DataFrame({"line": ["One finding."]})
    view = View(columns=("line",), lines=lambda rows: rows["line"].to_list())
    verdict = make_table(lines, title="Verdict", view=view)
    long = make_table(pl.DataFrame({"step": range(41)}), title="Steps")
    empty = [make_table(pl.DataFrame(), title=title, absence=Absence("not recorded")) for title in "AB"]
    found = printed(verdict, *empty, long, limit=0)
    assert (found[:2], found[-2:]) == (["Verdict", "One finding."], ["Verdict", "One finding."])
    assert [line for line in found if "not recorded" in line] == ["A, B: not recorded"]
    assert printed(verdict, long, limit=9).count("Verdict") == 1


def test_the_line_of_what_is_left_out_is_counted_in_the_total() -> None:
    lines = printed(TABLE, width=100, limit=2)
    (rest,) = (number for number, line in enumerate(lines) if "more rows" in line)
    assert lines[rest].split() == ["9", "91.00", "5.80", "…", "3", "more", "rows"]
    assert lines[rest + 1].split() == ["309", "1,566.98", "99.93", "total"]
    assert lines[rest + 2] == "`--limit 0` shows all rows"


def test_columns_of_which_nothing_is_known_are_left_out() -> None:
    frame = pl.DataFrame(
        {"total_ns": [1], "peak_bytes": [None], "name": ["a"]}, schema_overrides={"peak_bytes": pl.Int64}
    )
    table = make_table(title="t", frame=frame, totals=("total_ns", "peak_bytes"))
    assert printed(table)[1] == "Total (ns)  Name"


def test_markdown_has_the_same_cells_and_escapes_names() -> None:
    nested = make_table(title="Phases", frame=PHASES, is_nested=True, caption="How.")
    absent = make_table(pl.DataFrame(), title="OS", absence=Absence("not recorded"))
    text = format_tables(Content(tables=[TABLE, nested, absent], limit=2), format="markdown")
    lines = text.splitlines()
    assert "vectorized_elementwise_kernel\\<(int)4" in lines[4]
    assert lines[6].startswith("| 9 | 91.00 | 5.80 |  |")
    assert lines[7].startswith("| **309** | **1,566.98** | **99.93** |  |")
    assert [line.count("|") for line in lines[2:8]] == [14] * 6
    assert "| &nbsp;&nbsp;forward |" in text


@pytest.mark.parametrize(
    ("columns", "width"), [("", 160), ("80", 80), ("250", 160), ("0", 160), ("wide", 160)]
)
def test_a_log_is_as_wide_as_asked_for_but_at_most_160_columns(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert open_console().width == width
