"""`nsys-pp project`: what it writes, in every form, and what it says."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import pty
import re
import sqlite3
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fixtures.recording.export import Session, write_report
from tests.cli.calls import call, command_line, environment
from tests.patience import PATIENCE_S

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


RANK0 = PIPELINE / "node2" / "rank0.sqlite"


def on_terminal(width: int, *arguments: str | Path) -> tuple[list[str], str]:
    """Run the command on a terminal; the lines that it shows, and as they came."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    process = subprocess.Popen(
        command_line("project", *arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment(TERM="xterm"),
    )
    os.close(theirs)
    data = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        data += piece
    os.close(ours)
    assert process.wait(timeout=PATIENCE_S) == 0
    text = data.decode().replace("\r\n", "\n")
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines(), text


def test_the_table_reads_well(tmp_path: Path) -> None:
    report = write_report(
        tmp_path / "report.sqlite",
        session=Session(hostname="node7"),
        ranges=[
            {"start": 0, "end": 9_000_000, "name": "step_1"},
            {"start": 1_000_000, "end": 3_000_000, "name": "forward"},
            {"start": 1_100_000, "end": 2_000_000, "name": "two\nlines"},
            {"start": 4_000_000, "end": 5_000_000},
        ],
        api_calls=[
            {"start": 1_200_000, "end": 1_300_000},
            {"start": 2_200_000, "end": 2_300_000},
            {"start": 4_200_000, "end": 4_300_000},
        ],
        kernels=[
            {"start": 1_234_567_000, "end": 1_244_567_000, "correlation": 1},
            {"start": 1_254_567_400, "end": 1_264_567_600, "correlation": 2},
            {"start": 2_254_567_000, "end": 2_254_567_000, "correlation": 3},
        ],
    )
    done = call("project", report)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Projections of NVTX ranges",
        "Start (ms)  Duration (ms)  Busy (%)  Ops  Range",
        " 1,234.567      1,020.000       2.0    3  step_1",
        " 1,234.567         30.001      66.7    2    forward",
        " 1,234.567         10.000     100.0    1      two lines",
        " 2,254.567          0.000         -    1    (no name)",
        "machine node7, GPU 0, thread 1000",
        "--ops kernel --scope auto",
    ]


def test_the_table_says_what_tells_rows_apart(tmp_path: Path) -> None:
    lines = call("project", PIPELINE, "--limit", "2000").stdout.splitlines()
    assert re.split("  +", lines[1]) == [
        *("Start (ms)", "Duration (ms)", "Busy (%)", "Ops", "Machine", "GPU", "Thread", "Range")
    ]
    places = list(dict.fromkeys(tuple(line.split()[4:7]) for line in lines[2:-2]))
    assert places == [
        ("node2", "GPU", "0"),
        ("node2", "GPU", "1"),
        ("node10", "GPU", "0"),
        ("node10", "GPU", "1"),
    ]
    assert "stream" in call("project", PIPELINE, "--per-stream").stdout.splitlines()[1].lower()
    for pid in (1000, 2000):
        write_report(
            tmp_path / f"{pid}.sqlite",
            ranges=[{"start": 0, "end": 9, "name": "step", "pid": pid}],
            api_calls=[{"start": 1, "end": 2, "pid": pid}],
            kernels=[{"start": 3, "end": 9, "correlation": 1, "pid": pid}],
        )
    heading = call("project", tmp_path).stdout.splitlines()[1]
    assert re.split("  +", heading)[3:] == ["Ops", "Report", "Thread", "Range"]


def test_a_name_stands_below_what_is_around_it() -> None:
    """Also where a range that ends on another thread begins between the two."""
    _, heading, *lines = call("project", RANK0, "--limit", "5000").stdout.splitlines()
    names = [line[heading.index("Range") :] for line in lines if line[:1] == " "]
    own = names[: names.index("layer_1_backward")]  # of the main thread; autograd's thread comes next
    levels = [
        "step_10",
        "  schedule",
        "    forward_0",
        "      layer_0",
        "        self_attention",
        "        mlp",
    ]
    assert own[: len(levels)] == levels
    tops = [name for name in own if not name.startswith(" ")]
    assert tops == ["step_10", "prefetch_batch", "step_11", "prefetch_batch", "step_12", "prefetch_batch"]


@pytest.mark.few(2)
@pytest.mark.parametrize("limit", [0, 1, 40, 1611])
def test_the_table_says_how_much_is_left(limit: int) -> None:
    lines = call("project", PIPELINE, "--limit", str(limit)).stdout.splitlines()
    hidden_count = 1611 - limit if limit else 0
    below = [
        *([f"… {hidden_count:,} more rows"] if hidden_count else []),
        "123 rows count launches of other threads of their process",
        *(["`--limit 0` shows all rows"] if hidden_count else []),
        "--ops kernel --scope auto",
    ]
    assert [line.strip() for line in lines[-len(below) :]] == below
    assert len(lines) == 2 + (limit or 1611) + len(below)


def test_the_table_says_how_it_was_made(tmp_path: Path) -> None:
    lines = call("project", RANK0, "--ops", "memset,memcpy", "--scope", "process").stdout.splitlines()
    assert "--ops memset,memcpy --scope process" in lines
    idle = write_report(
        tmp_path / "idle.sqlite",
        ranges=[{"start": 0, "end": 5}],
        api_calls=[{"start": 10, "end": 12}],
        kernels=[{"start": 20, "end": 30, "correlation": 1}],
    )
    done = call("project", idle)
    assert (
        done.stdout
        == "Projections of NVTX ranges\nno range launched an operation that counts with --ops kernel --scope auto\n"
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_table_fits_the_terminal(shared_reports: list[Path], width: int) -> None:
    path = next(path for path in shared_reports if "MohanadOdema" in path.name)
    lines, text = on_terminal(width, path)
    assert max(map(len, lines)) <= width
    assert len(lines) <= 2 * 40 + 10
    assert "\x1b[1m" in text
    assert any(line.rstrip().endswith("Range") for line in lines[1:4])
    assert any("…" in line for line in lines)


def test_a_pipe_gets_whole_names(shared_reports: list[Path]) -> None:
    path = next(path for path in shared_reports if "MohanadOdema" in path.name)
    done = subprocess.run(
        command_line("project", path),
        capture_output=True,
        text=True,
        check=True,
        env=environment(COLUMNS="80"),
    )
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.count("…") <= 1  # in the line that counts more rows
    assert "\x1b" not in done.stdout
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]


def test_names_of_any_script_are_printed_under_any_locale(tmp_path: Path) -> None:
    report = write_report(
        tmp_path / "x.sqlite",
        ranges=[{"start": 0, "end": 9, "name": "naïve 前向"}],
        api_calls=[{"start": 1, "end": 2}],
        kernels=[{"start": 3, "end": 4, "correlation": 1}],
    )
    for locale in (
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
    ):
        done = subprocess.run(
            command_line("project", report), capture_output=True, check=False, env=environment(**locale)
        )
        assert done.returncode == 0
        assert "naïve 前向" in done.stdout.decode()
