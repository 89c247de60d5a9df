"""`nsys-pp project`: what it writes, in every form, and what it says."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fixtures.recording.export import Session, write_report
from tests.cli.calls import assert_refused, call

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
TRUTH = PIPELINE / "truth" / "projections.parquet"
REPORTS = [PIPELINE / "node2/rank0.sqlite", PIPELINE / "node2/rank1.sqlite"]
REPORTS += [PIPELINE / "node10/rank2.sqlite", PIPELINE / "node10/rank3.sqlite"]

# issue 2, section 3, in its order; then what stands after them
TYPES = {
    pl.String: "report machine domain name first_op last_op scope gpu",
    pl.Int32: "device_id depth",
    pl.Boolean: "is_open",
}
ORDER = (
    *("report", "machine", "process_id", "thread_id", "device_id", "stream_id", "range_id", "parent_id"),
    *("depth", "domain", "name", "start_ns", "end_ns", "gpu_start_ns", "gpu_end_ns", "busy_ns"),
    *("call_count", "op_count", "first_op", "last_op", "scope", "is_open"),
    *("gpu", "rank", "utc_offset_ns"),
)
COLUMNS = {
    name: next((dtype for dtype, names in TYPES.items() if name in names.split()), pl.Int64) for name in ORDER
}
NAMES = ['say "hi"', "two\nlines", "a,b;c", "naïve – 前向 🚀", " ", "'; DROP TABLE x; --", "NULL", None]
FORMATS = ["parquet", "csv", "json", "sqlite"]

pytestmark = pytest.mark.usefixtures("reports_read_once")


def project(output: Path, *arguments: str | Path) -> pl.DataFrame:
    """Call the command; the Parquet file that it wrote."""
    done = call("project", *arguments, "-o", output)
    assert (done.code, done.stdout) == (0, ""), done
    frame = pl.read_parquet(output)
    assert done.stderr.splitlines()[-1] == f"Wrote {output}: {len(frame):,} rows"
    return frame


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A report of one range for each of `NAMES` with two operations each, some still open."""
    count = len(NAMES)
    return write_report(
        tmp_path / "odd.sqlite",
        session=Session(duration_ns=100 * count),
        ranges=[
            {"start": 100 * i, "end": 100 * (i + 1 if i % 2 else count), "name": name, "domain": name}
            for i, name in enumerate(NAMES)
        ],
        api_calls=[{"start": 100 * i + 10, "end": 100 * i + 11, "correlation": i} for i in range(count)],
        kernels=[
            {"start": 100 * i + 30, "end": 100 * i + 90, "correlation": i, "name": f"gemm_{i}", "stream": i}
            for i in range(count)
        ],
        memcpys=[{"start": 100 * i + 12, "end": 100 * i + 15, "correlation": i} for i in range(count)],
    )


@pytest.fixture
def without_launches(tmp_path: Path) -> Path:
    """A report whose ranges launched nothing that counts."""
    return write_report(
        tmp_path / "nothing.sqlite",
        ranges=[{"start": 0, "end": 5, "name": "idle"}],
        api_calls=[{"start": 10, "end": 12}],
        kernels=[{"start": 20, "end": 30, "correlation": 1}],
    )


@pytest.mark.parametrize("scope", ["thread", "process"])
@pytest.mark.parametrize("ops", ["kernel", "all"])
def test_every_interval_is_the_true_one(scope: str, ops: str, tmp_path: Path) -> None:
    drawn = project(tmp_path / "x.parquet", PIPELINE, "--scope", scope, "--ops", ops)
    truth = pl.read_parquet(TRUTH).filter(scope=scope, ops=ops)
    assert len(truth) > 1000
    names = {"process_id": "pid", "thread_id": "tid"}
    common = [name for name in truth.columns if name not in ("ops", "device_id")]
    drawn = drawn.with_columns(report=pl.col("machine") + "/" + pl.col("report") + ".sqlite")
    keys = ["report", "range_id"]
    assert drawn.rename(names).select(common).sort(keys).equals(truth.select(common).sort(keys))
    assert drawn.select(keys).is_unique().all()


def test_auto_counts_the_process_where_the_thread_waits_for_it(tmp_path: Path) -> None:
    """No thread of this report works side by side with another one."""
    auto = project(tmp_path / "auto.parquet", PIPELINE)
    scopes = {
        scope: project(tmp_path / f"{scope}.parquet", PIPELINE, "--scope", scope)
        for scope in ("thread", "process")
    }
    keys = ["machine", "report", "range_id"]
    own, whole = auto.filter(scope="thread"), auto.filter(scope="process")
    assert len(whole) > 50
    assert set(whole["name"].str.extract(r"^(\D+)_")) >= {"backward", "prefetch", "step"}
    assert own.equals(scopes["thread"].join(whole, on=keys, how="anti"))
    assert whole.equals(scopes["process"].join(own, on=keys, how="anti"))


@pytest.mark.parametrize(
    "ops", ["memcpy", "memset", "memcpy,memset", "kernel, memcpy", "kernel,memcpy,memset"]
)
def test_ops_add_up(ops: str, tmp_path: Path) -> None:
    keys = ["range_id"]
    frame = project(tmp_path / "x.parquet", REPORTS[0], "--scope", "thread", "--ops", ops)
    parts = [
        project(tmp_path / f"{op}.parquet", REPORTS[0], "--scope", "thread", "--ops", op.strip())
        for op in ops.split(",")
    ]
    expected = (
        pl.concat(parts)
        .group_by(keys)
        .agg(pl.col("op_count").sum(), pl.col("gpu_start_ns").min(), pl.col("gpu_end_ns").max())
        .sort(keys)
    )
    assert frame.select(expected.columns).sort(keys).equals(expected)


def test_all_ops_are_all_three(tmp_path: Path) -> None:
    every = project(tmp_path / "all.parquet", PIPELINE, "--ops", "all")
    assert every.equals(project(tmp_path / "three.parquet", PIPELINE, "--ops", "kernel,memcpy,memset"))


def test_per_stream_splits_each_row(tmp_path: Path) -> None:
    whole = project(tmp_path / "whole.parquet", PIPELINE)
    split = project(tmp_path / "split.parquet", PIPELINE, "--per-stream")
    assert whole["stream_id"].null_count() == len(whole)
    assert split["stream_id"].null_count() == 0
    keys = ["machine", "report", "range_id", "device_id"]
    assert split.select(*keys, "stream_id").is_unique().all()
    hull = split.group_by(keys, maintain_order=True).agg(
        pl.col("gpu_start_ns").min(), pl.col("gpu_end_ns").max(), pl.col("op_count").sum()
    )
    assert hull.equals(whole.select(hull.columns))
    assert len(split) > len(whole)


def test_columns_are_those_of_the_issue(tmp_path: Path) -> None:
    frame = project(tmp_path / "x.parquet", PIPELINE)
    assert dict(frame.schema) == COLUMNS
    assert frame.select("report", "machine", "rank").unique(maintain_order=True).rows() == [
        ("rank0", "node2", 0),
        ("rank1", "node2", 1),
        ("rank2", "node10", 2),
        ("rank3", "node10", 3),
    ]
    order = frame.group_by("machine", "report", maintain_order=True).agg(pl.col("range_id").diff().min())
    assert order["range_id"].min() == 1


def read_back(path: Path, format: str) -> list[dict[str, Any]]:
    """Rows as another program reads them."""
    if format == "parquet":
        return pl.read_parquet(path).to_dicts()
    if format == "json":
        return list(json.loads(path.read_text(encoding="utf-8")))
    if format == "sqlite":
        with sqlite3.connect(path) as database:
            cursor = database.execute("SELECT * FROM projections")
            rows = cursor.fetchall()
        database.close()
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in rows]
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def as_text(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_holds_the_same(odd: Path, tmp_path: Path, format: str) -> None:
    expected = project(tmp_path / "expected.parquet", odd).to_dicts()
    assert [row["name"] for row in expected] == NAMES
    assert [row["is_open"] for row in expected] == [True, False] * 3 + [True, True]
    output = tmp_path / f"x.{format}"
    assert call("project", odd, "-o", output).code == 0
    rows = read_back(output, format)
    assert list(rows[0]) == list(COLUMNS)
    if format == "csv":  # has no types: null is nothing, and an empty text would stand in quotes
        expected = [{name: as_text(value) for name, value in row.items()} for row in expected]
    assert rows == expected


def test_csv_of_polars_is_the_frame(odd: Path, tmp_path: Path) -> None:
    expected = project(tmp_path / "expected.parquet", odd)
    assert call("project", odd, "-o", tmp_path / "x.csv").code == 0
    assert pl.read_csv(tmp_path / "x.csv", schema=expected.schema).equals(expected)


def test_sqlite_has_types(odd: Path, tmp_path: Path) -> None:
    assert call("project", odd, "-o", tmp_path / "x.db").code == 0
    with sqlite3.connect(tmp_path / "x.db") as database:
        types = dict(database.execute("SELECT name, type FROM pragma_table_info('projections')").fetchall())
        tables = database.execute("SELECT name FROM sqlite_master").fetchall()
    database.close()
    assert tables == [("projections",)]
    assert types == {name: "TEXT" if dtype == pl.String else "INTEGER" for name, dtype in COLUMNS.items()}


@pytest.mark.parametrize("format", FORMATS)
def test_no_rows_are_a_table_without_rows(without_launches: Path, tmp_path: Path, format: str) -> None:
    output = tmp_path / f"x.{format}"
    done = call("project", without_launches, "-o", output)
    assert done.code == 0
    assert done.stderr.splitlines() == [
        "Of 1 ranges, 1 launched no GPU operation that counts",
        f"Wrote {output}: 0 rows",
    ]
    assert read_back(output, format) == []
    if format == "parquet":
        assert dict(pl.read_parquet_schema(output)) == COLUMNS
    elif format == "csv":
        assert output.read_text() == ",".join(COLUMNS) + "\n"
    elif format == "sqlite":
        with sqlite3.connect(output) as database:
            columns = [row[1] for row in database.execute("PRAGMA table_info(projections)")]
        database.close()
        assert columns == list(COLUMNS)


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("output", [[], ["-o", "-"]])
def test_text_is_printed_alone(odd: Path, tmp_path: Path, format: str, output: list[str]) -> None:
    done = call("project", odd, "--format", format, *output)
    assert (done.code, done.stderr) == (0, "")
    assert call("project", odd, "-o", tmp_path / f"x.{format}").code == 0
    assert done.stdout.rstrip("\n") == (tmp_path / f"x.{format}").read_text(encoding="utf-8").rstrip("\n")
    assert done.stdout.endswith("\n")


def test_format_counts_more_than_the_ending(odd: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.csv"
    assert call("project", odd, "-o", output, "--format", "json").code == 0
    assert len(json.loads(output.read_text())) == len(NAMES)


@pytest.mark.parametrize("form", ["folder", "glob", "files", "deep glob"])
def test_reports_come_in_natural_order_however_they_are_named(tmp_path: Path, form: str) -> None:
    inputs = {
        "folder": [PIPELINE],
        "glob": [PIPELINE / "node*" / "*.sqlite"],
        "files": REPORTS,
        "deep glob": [PIPELINE / "**" / "rank?.sqlite"],
    }[form]
    frame = project(tmp_path / "x.parquet", *inputs)
    assert frame.equals(project(tmp_path / "y.parquet", *REPORTS))


def test_files_come_in_the_order_given(tmp_path: Path) -> None:
    frame = project(tmp_path / "x.parquet", *REPORTS[::-1])
    assert frame["report"].unique(maintain_order=True).to_list() == ["rank3", "rank2", "rank1", "rank0"]


def test_an_output_is_replaced_with_force_only(odd: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.json"
    output.write_text("precious")
    assert_refused(call("project", odd, "-o", output), f"`{output}` exists")
    assert output.read_text() == "precious"
    assert call("project", odd, "-o", output, "--force").code == 0
    assert len(json.loads(output.read_text())) == len(NAMES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd.sqlite", "x.json"]


def test_ranges_that_change_threads_are_told(tmp_path: Path) -> None:
    done = call("project", REPORTS[0], "--scope", "thread", "-o", tmp_path / "x.csv")
    skipped = (
        pl.read_parquet(TRUTH)
        .filter(report="node2/rank0.sqlite", name="prefetch_batch")["range_id"]
        .n_unique()
    )
    assert done.stderr.splitlines()[0] == (
        f"note: `{REPORTS[0]}`: skipped {skipped} ranges that end on another thread than they began"
        " (`--scope process` projects them)"
    )
    assert "note:" not in call("project", REPORTS[0], "-o", tmp_path / "y.csv").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["-o", "x.txt"],
            "unknown extension of `x.txt`; expected .parquet, .csv, .json, .sqlite, .db, .md, or choose a `--format`",
        ),
        (["-o", "noending"], "unknown extension of `noending`"),
        (["--format", "parquet"], "parquet cannot be printed; choose a file with `-o`"),
        (["--format", "sqlite", "-o", "-"], "sqlite cannot be printed; choose a file with `-o`"),
        (["--format", "table", "-o", "x.txt"], "a table is printed; omit `-o`"),
        (["--format", "xlsx"], "'xlsx' is not one of"),
        (["--ops", "kernels"], "invalid operations 'kernels'; expected kernel, memcpy, memset or all"),
        (["--ops", "all,kernel"], "invalid operations 'all'"),
        (["--ops", ""], "invalid operations ''"),
        (["--scope", "rank"], "'rank' is not one of"),
        (["--limit", "-1"], "-1 is not in the range"),
        (["--limit", "many"], "'many' is not a valid integer"),
        (["--detail", "cpu"], "No such option"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], words: str, odd: Path) -> None:
    done = call("project", odd, *arguments)
    assert (done.code, done.stdout) == (2, "")
    assert words in done.stderr
    assert not Path("x.txt").exists()


def test_help_has_an_example() -> None:
    done = call("project", "--help")
    assert (done.code, done.stderr) == (0, "")
    assert "\n    nsys-pp project report.sqlite -o ranges.parquet\n" in done.stdout
    for option in (
        "--ops",
        "--scope",
        "--per-stream",
        "--limit",
        "--force",
        "--format",
        "--nsys",
        "-o, --output",
    ):
        assert f"\n  {option} " in done.stdout
