"""Summaries of reports and of their parts are one; windows, groups and devices add up to the whole."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nsys_pp
from nsys_pp.errors import NsysPPError, ReportError
from nsys_pp.run import inputs as reading
from nsys_pp.tables.summary import COLUMNS_OF_GROUP as GROUPS

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
REPORTS = sorted(PIPELINE.rglob("*.sqlite"))
ADDED = {  # columns that add up over whatever a table is split by
    "kernels": ("count", "total_ns"),
    "base_kernels": ("count", "total_ns"),
    "copies": ("count", "total_ns", "total_bytes"),
    "cuda": ("count", "total_ns"),
    "communication": ("count", "total_ns"),
    "distribution": ("time_ns",),
    "ranges": ("count", "total_ns", "gpu_total_ns"),
}

pytestmark = pytest.mark.usefixtures("reports_read_once")


def tables_of(inputs: list[Path], **asked: Any) -> dict[str, pl.DataFrame]:
    return nsys_pp.summarise(inputs, **asked).tables


def extract_into(folder: Path, reports: list[Path]) -> list[Path]:
    folder.mkdir()
    return [part.output for part in nsys_pp.extract(reports, folder).parts]


@cache
def added_tables(parts: tuple[Path, ...], by: str) -> dict[str, pl.DataFrame]:
    """Build the tables of `ADDED` once for all tests of this module."""
    return tables_of([*parts], tables=[*ADDED], by=by)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return extract_into(tmp_path_factory.mktemp("summary") / "parts", REPORTS)


@pytest.mark.few(3)
@pytest.mark.parametrize("by", GROUPS)
def test_parts_tell_what_their_reports_tell(parts: list[Path], by: str) -> None:
    expected = tables_of(REPORTS, by=by)
    assert expected.keys() >= {"overview", "model", "kernels", "idle"}
    for given in (parts, [parts[0], *REPORTS[1:]]):
        found = tables_of(given, by=by)
        assert found.keys() == expected.keys()
        for name, table in expected.items():
            assert_frame_equal(found[name], table)


def test_of_parts_nothing_but_sums_and_jobs_is_read(
    parts: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a report was read")

    monkeypatch.setattr(reading, "survey_input", fail)
    given = reading.read_part_input(parts[0], with_aggregates=True)
    assert "projections" not in given.part.frames
    assert tables_of(parts, tables=["kernels"])["kernels"]["count"].sum() > 0


@pytest.mark.parametrize("by", [by for by in GROUPS if by != "run"])
@pytest.mark.parametrize("name", ADDED)
def test_groups_add_up_to_the_run(parts: list[Path], by: str, name: str) -> None:
    whole, split = (added_tables(tuple(parts), one)[name] for one in ("run", by))
    keys = [column for column in whole.columns if whole[column].dtype == pl.String and "rank" not in column]
    keys += [column for column in ("size_bytes", "rank_count") if column in whole.columns]
    if name == "distribution" and by == "step":
        pytest.skip("what lies between steps has no row of its own kind")
    sums = split.group_by(keys).agg(pl.col(ADDED[name]).sum())
    expected = whole.select(*keys, pl.col(ADDED[name]).fill_null(0))
    assert_frame_equal(sums, expected, check_row_order=False)


def test_steps_are_chosen_as_everywhere(parts: list[Path]) -> None:
    steps = tables_of(parts, tables=["kernels"], by="step")["kernels"]
    second = steps["step"].drop_nulls().unique().sort()[1]
    found = tables_of(parts, tables=["kernels"], steps=(second, second + 1))["kernels"]
    expected = steps.filter(pl.col("step") == second)
    assert dict(found.select("name", "total_ns").rows()) == dict(expected.select("name", "total_ns").rows())
    assert 0 < found["count"].sum() < steps["count"].sum()
    with pytest.raises(NsysPPError, match="no step is in `--steps 70:80`"):
        tables_of(parts, steps=(70, 80))


def test_what_was_not_recorded_is_told_with_how_to_record_it(parts: list[Path]) -> None:
    found = nsys_pp.summarise(parts)
    assert found.absent == {
        "memory": "not recorded: profile with `--cuda-memory-usage=true`",
        "os": "not recorded: profile with `--trace=osrt`",
    }
    assert not set(found.absent) & set(found.tables)


def test_damage_in_a_part_is_noticed(parts: list[Path], tmp_path: Path) -> None:
    """A byte is changed at many places: nothing but an error, or the very tables, may come of it."""
    whole, broken = parts[0].read_bytes(), tmp_path / "x.nspart"
    expected = tables_of([parts[0]], tables=["kernels", "ranges"])
    errors = []
    for at in range(0, len(whole), len(whole) // 40):
        broken.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            found = tables_of([broken], tables=["kernels", "ranges"])
        except ReportError as error:
            errors.append(error.message)
        else:
            for name, table in expected.items():
                assert_frame_equal(found[name], table)
    assert len(errors) > 10
    assert set(errors) == {f"`{broken}` is damaged, or not a part of nsys-pp"}


def test_a_broken_report_is_left_out_where_that_is_wanted(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"SQLite format 3\0" + bytes(80))
    found = nsys_pp.summarise([*REPORTS, broken], tables=["kernels"], keep_going=True)
    assert [path for path, _ in found.skipped] == [broken]
    assert_frame_equal(found.tables["kernels"], tables_of(REPORTS, tables=["kernels"])["kernels"])
