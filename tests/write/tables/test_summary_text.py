"""Tables of a summary as a person reads them."""

from __future__ import annotations

import io
import re

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from nsys_pp.write.tables.summary_markdown import format_summary
from nsys_pp.write.tables.summary_rows import Shape
from nsys_pp.write.tables.summary_text import TextTable, print_summary

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
TABLE = TextTable(
    title="Kernels by name",
    frame=KERNELS,
    shape=Shape(totals=("count", "total_ns", "fraction")),
    says="Durations of kernels added up: kernels that ran at the same time count twice.",
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
    *tables: TextTable, width: int | None = None, top: int = 15, unit: str | None = None, colour: bool = False
) -> list[str]:
    """Print on a terminal of that width, or into a file."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=width is not None,
        color_system="standard" if colour else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as screen:
        print_summary(tables, top=top, unit=unit, console=console)
    return [line.rstrip() for line in screen.get().split("\n")[:-1]]


def test_a_table_in_a_file_is_whole() -> None:
    lines = printed(TABLE)
    assert lines[0] == "Kernels by name"
    assert lines[1].split("  ")[-1] == "Name"
    for heading in (
        "Total (ms)",
        "Share (%)",
        "Mean (us)",
        "Std dev (us)",
        "Rank median (ms)",
        "Slowest rank",
    ):
        assert heading in lines[1]
    assert lines[2].endswith(NAMES[0])
    assert lines[-2].split() == ["309", "1,566.981", "99.93", "total"]
    assert lines[-1] == TABLE.says
    assert len(lines) == 2 + 5 + 2


def test_numbers_stand_below_each_other() -> None:
    lines = printed(
        TextTable(title="t", frame=KERNELS.select("count", "total_ns", "name").with_columns(name=pl.lit("k")))
    )
    assert lines[1:4] == [
        "Count  Total (ms)  Name",
        "  288   1,316.410  k",
        "   12     159.570  k",
    ]


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 120, 200])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    by_rank = KERNELS.clone().insert_column(
        0, pl.Series("rank", ["rank 0", "rank 0", "a machine " * 9, "漢字" * 30, None])
    )
    grouped = TextTable(title="By rank " * 9, frame=by_rank, shape=Shape(groups=("rank",), totals=("count",)))
    phases = TextTable(title="p", frame=PHASES, shape=Shape(is_nested=True))
    absent = TextTable(title="a", absent="not recorded: profile with `--trace=osrt` and with more")
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
    table = TextTable(title="t", frame=frame, shape=Shape(groups=("rank",), is_nested=is_nested), says="how")
    lines = printed(table, width=width, top=0)
    assert max(map(cell_len, lines)) <= width
    rules = [line for line in lines if re.fullmatch("─+", line)]
    rows = lines.index("how") - len(rules) - len(names)
    assert rows in (2, 3)  # the title, one or two lines of headings


def test_where_there_is_no_room_measures_of_one_call_go_before_totals_and_are_named() -> None:
    phases = TextTable(title="p", frame=PHASES, shape=Shape(is_nested=True), says="s")
    lines = printed(phases, width=58)
    assert [line.split() for line in lines[1:3]] == [
        ["CPU", "total", "CPU", "GPU", "total", "GPU"],
        ["Count", "(ms)", "(%)", "(ms)", "(%)", "Phase"],
    ]
    assert lines[-2:] == [
        "a wider terminal also shows: CPU max (ms), CPU min (ms),",
        "GPU max (ms), GPU min (ms)",
    ]
    assert "also shows" not in "".join(printed(phases, width=200))


def test_names_are_shortened_in_the_middle_and_parameters_first() -> None:
    lines = printed(TABLE, width=80)
    assert lines[3].endswith("  at::native::vectorized…<float>>(…)")
    assert re.search(r"  ncclDevKernel_AllReduc\w*…\w*RING_LL\(…\)$", lines[4])
    assert "漢字" in lines[5]
    assert "…" in lines[5]


def test_the_line_of_what_is_left_out_is_counted_in_the_total() -> None:
    lines = printed(TABLE, width=100, top=2)
    assert lines[5].split() == ["9", "91.00", "5.80", "…", "3", "more", "rows"]
    assert lines[6].split() == ["309", "1,566.98", "99.93", "total"]


def test_a_group_is_told_once_and_set_apart() -> None:
    frame = pl.DataFrame(
        {
            "machine": ["node1", "node1", "node1", "node2"],
            "gpu": ["GPU 0", "GPU 0", "GPU 1", "GPU 0"],
            "count": [3, 1, 2, 4],
            "name": list("abcd"),
        }
    )
    lines = printed(
        TextTable(title="t", frame=frame, shape=Shape(groups=("machine", "gpu"), totals=("count",)), says="s")
    )
    assert lines[1:-1] == [
        "Machine  GPU    Count  Name",
        "node1    GPU 0      3  a",
        "                    1  b",
        "                    4  total",
        "────────────────────────────",
        "         GPU 1      2  c",
        "────────────────────────────",
        "node2    GPU 0      4  d",
    ]


def test_a_list_of_groups_tells_each() -> None:
    frame = pl.DataFrame({"rank": ["rank 0", "rank 1"], "count": [1, 2], "name": ["GPU 0", "GPU 0"]})
    lines = printed(TextTable(title="t", frame=frame, shape=Shape(groups=("rank",))))
    assert lines[2:4] == ["rank 0      1  GPU 0", "rank 1      2  GPU 0"]


def test_a_single_group_is_told_once() -> None:
    frame = pl.DataFrame({"rank": ["rank 0"] * 2, "count": [1, 2], "name": ["a", "b"]})
    lines = printed(TextTable(title="t", frame=frame, shape=Shape(groups=("rank",))))
    assert lines[2:4] == ["rank 0      1  a", "            2  b"]


def test_a_table_that_is_not_there_says_why() -> None:
    absent = TextTable(title="OS calls", absent="not recorded: profile with `--trace=osrt`")
    empty = TextTable(title="Kernels", frame=KERNELS.clear())
    assert printed(absent, empty) == [
        "OS calls",
        "not recorded: profile with `--trace=osrt`",
        "",
        "Kernels",
        "nothing of this kind happened in what was recorded",
    ]


def test_columns_of_which_nothing_is_known_are_left_out() -> None:
    frame = pl.DataFrame(
        {"total_ns": [1], "peak_bytes": [None], "name": ["a"]}, schema_overrides={"peak_bytes": pl.Int64}
    )
    table = TextTable(title="t", frame=frame, shape=Shape(totals=("total_ns", "peak_bytes")))
    assert printed(table)[1] == "Total (ns)  Name"


def test_a_unit_that_is_asked_for_holds_for_all_tables() -> None:
    lines = printed(TABLE, TextTable(title="p", frame=PHASES), unit="us")
    headings = [line for line in lines if "(%)" in line]
    assert len(headings) == 2
    assert all("(us)" in line and "(ms)" not in line for line in headings)


def test_only_large_shares_are_coloured() -> None:
    lines = printed(TABLE, width=120, colour=True)
    assert "\x1b[1;33m83.95\x1b[0m" in lines[3]
    assert "\x1b[33m10.18\x1b[0m" in lines[4]
    assert "\x1b[" not in lines[5]
    assert lines[8].startswith("\x1b[1m")
    assert "\x1b[2m" in lines[9]


def test_markdown_has_the_same_cells_and_escapes_names() -> None:
    nested = TextTable(title="Phases", frame=PHASES, shape=Shape(is_nested=True), says="How.")
    text = format_summary([TABLE, nested, TextTable(title="OS", absent="not recorded")], top=2, unit=None)
    assert text.startswith("## Kernels by name\n\n| Count | Total (ms) | Share (%) |")
    lines = text.splitlines()
    assert lines[3].startswith("| ---: | ---: |")
    assert lines[3].endswith("| --- | --- |")
    assert "vectorized_elementwise_kernel\\<(int)4" in lines[4]
    assert lines[6].startswith("| 9 | 91.00 | 5.80 |  |")
    assert lines[7].startswith("| **309** | **1,566.98** | **99.93** |  |")
    assert lines[7].endswith("| **total** |")
    assert lines[9] == TABLE.says
    assert [line.count("|") for line in lines[2:8]] == [14] * 6
    assert "| &nbsp;&nbsp;forward |" in text
    assert text.endswith("## OS\n\nnot recorded\n")
