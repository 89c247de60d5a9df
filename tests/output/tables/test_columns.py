"""Columns as text: units, headings, numbers."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsys_pp.frames.table import Column
from nsys_pp.output.tables.text import TextColumn, convert_times, format_columns


def shown(unit: str | None = None, **columns: Sequence[object]) -> dict[str, TextColumn]:
    frame = pl.DataFrame(columns)
    return {text.column.name: text for text in format_all(frame, unit=unit, is_blank=[False] * len(frame))}


def format_all(frame: pl.DataFrame, *, unit: str | None, is_blank: Sequence[bool]) -> list[TextColumn]:
    columns = [Column(name, dtype, "") for name, dtype in frame.schema.items()]
    return format_columns(frame, columns, unit=unit, is_blank=is_blank)


@pytest.mark.parametrize(
    ("time_ns", "unit", "text"),
    [
        (999, "ns", "999"),
        (1_234, "us", "1.234"),
        (999_999, "us", "1,000.00"),
        (18_591_040_000, "ms", "18,591.04"),
        (999_000_000_000, "ms", "999,000.0"),
        (1_000_000_000_000, "s", "1,000.00"),
    ],
)
def test_a_time_has_one_to_six_digits_before_the_point(time_ns: int, unit: str, text: str) -> None:
    column = shown(total_ns=[time_ns], name=["a"])["total_ns"]
    assert (column.heading, column.texts) == (f"Total ({unit})", (text,))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 10**14), min_size=1, max_size=5))
@example([999_999_950_001])  # rounded to 1,000,000.0 ms
def test_the_largest_time_fits_in_six_digits_and_is_seen(times: list[int]) -> None:
    column = shown(total_ns=times, name=["a"] * len(times))["total_ns"]
    largest = max(float(text.replace(",", "")) for text in column.texts)
    assert largest < 1e6
    assert largest > 0 or max(times) == 0


def test_a_unit_of_small_means_does_not_make_a_seventh_digit() -> None:
    columns = shown(max_ns=[999_999_960], mean_ns=[5_000.0], name=["a"])
    assert (columns["max_ns"].unit, columns["max_ns"].texts) == ("ms", ("1,000.00",))


def test_a_display_unit_is_that_of_all_values_unless_another_is_asked_for() -> None:
    column = Column("wait_ns", pl.Float64, "", display_unit="us", is_signed=True)
    frame = pl.DataFrame({"wait_ns": [12_345_678.0, -50.0, 0.0]})
    (own,) = format_columns(frame, [column], unit=None, is_blank=[False] * 3)
    assert (own.heading, own.texts) == ("Wait (us)", ("+12,345.7", "-0.1", "+0.0"))
    (asked,) = format_columns(frame, [column], unit="ms", is_blank=[False] * 3)
    assert asked.heading == "Wait (ms)"


def test_measures_of_one_call_share_a_unit_that_shows_each_mean() -> None:
    columns = shown(
        total_ns=[2_000_000_000, 40_000],
        mean_ns=[400_000.0, 2_000.0],
        max_ns=[39_000_000, 3_000],
        min_ns=[100, 200],
        name=["a", "b"],
    )
    assert [column.unit for column in columns.values()] == ["ms", "us", "us", "us", ""]
    assert columns["mean_ns"].texts == ("400.00", "2.00")
    assert columns["max_ns"].texts == ("39,000.00", "3.00")
    assert columns["min_ns"].texts == ("0.100", "0.200")


def test_a_column_that_would_be_all_zeros_has_a_unit_of_its_own() -> None:
    columns = shown(mean_ns=[5e9], min_ns=[12], name=["a"])
    assert (columns["mean_ns"].unit, columns["min_ns"].heading, columns["min_ns"].texts) == (
        "ms",
        "Min (ns)",
        ("12",),
    )


def test_a_unit_that_is_asked_for_is_that_of_all_times() -> None:
    columns = shown("s", total_ns=[1_500_000_000], mean_ns=[1.5e3], count=[2], name=["a"])
    assert columns["total_ns"].texts == ("1.500",)
    assert columns["mean_ns"].heading == "Mean (s)"
    assert columns["count"].texts == ("2",)


def test_bytes_shares_rates_and_counts_have_their_units() -> None:
    columns = shown(
        total_bytes=[3 << 30, 1 << 28],
        mean_bytes=[3 << 30, 4],
        size_bytes=[512, 1],
        fraction=[0.4602, 1.0],
        host_fraction=[0.5, None],
        bytes_per_s=[2.5e9, None],
        op_count=[12_345, 0],
        late_count=[1, 2],
        mean_queue_count=[1.25, 0.0],
        step=[12_345, None],
        name=["a", "b"],
    )
    assert {column.heading: column.texts[0] for column in columns.values()} == {
        "Total (GiB)": "3.000",
        "Mean": "3.0 GiB",
        "Size (B)": "512",
        "Share (%)": "46.02",
        "CPU (%)": "50.00",
        "Bandwidth (GB/s)": "2.50",
        "Operations": "12,345",
        "Late": "1",
        "Mean queue": "1.2",
        "Step": "12345",
        "Name": "a",
    }
    assert columns["mean_bytes"].texts[1] == "4 B"  # in one unit it would not be seen
    assert columns["host_fraction"].texts[1] == columns["step"].texts[1] == "-"


def test_what_is_unknown_is_a_dash_and_in_rows_of_sums_nothing() -> None:
    frame = pl.DataFrame(
        {"total_ns": [None, None], "name": ["a", "total"]}, schema_overrides={"total_ns": pl.Int64}
    )
    times, _ = format_all(frame, unit=None, is_blank=[False, True])
    assert times.texts == ("-", "")


def test_names_cannot_move_the_cursor() -> None:
    assert shown(name=["a\x1b[31m\r\n\u202eb\u200d"])["name"].texts == ("a [31m   b ",)


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
