"""`nsys-pp project`: what it writes, in every form, and what it says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import polars as pl
import pytest

from fixtures.recording.export import Session, write_report
from tests.cli.calls import PIPELINE, REPORTS, call, command_line, environment, on_terminal

TRUTH = PIPELINE / "truth" / "projections.parquet"
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


def project(output: Path, *arguments: str | Path) -> pl.DataFrame:
    """Call the command; the Parquet file that it wrote."""
    done = call("project", *arguments, "-o", output)
    assert (done.code, done.stdout) == (0, ""), done
    frame = pl.read_parquet(output)
    assert f"Wrote {output}: {len(frame):,} rows" in done.stderr.splitlines()
    return frame


@pytest.fixture
def without_launches(tmp_path: Path) -> Path:
    """A report whose ranges launched nothing that counts."""
    return write_report(
        tmp_path / "nothing.sqlite",
        ranges=[{"start": 0, "end": 5, "name": "idle"}],
        api_calls=[{"start": 10, "end": 12}],
        kernels=[{"start": 20, "end": 30, "correlation": 1}],
    )


@pytest.mark.parametrize(("scope", "ops"), [("thread", "kernel"), ("process", "all")])
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


def test_ranges_without_launches_are_counted(without_launches: Path, tmp_path: Path) -> None:
    done = call("project", without_launches, "-o", tmp_path / "x.csv")
    wrote = f"Wrote {tmp_path / 'x.csv'}: 0 rows"
    note = "note: of 1 ranges, 1 launched no GPU operation that counts"
    assert done.stderr.splitlines() == [wrote, note]
    assert (tmp_path / "x.csv").read_text() == ",".join(COLUMNS) + "\n"
    told = call("project", without_launches).stdout.splitlines()[1]
    assert told == "no range launched an operation that counts with --ops kernel --scope auto"


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("output", [[], ["-o", "-"]])
def test_text_is_printed_alone(tmp_path: Path, format: str, output: list[str]) -> None:
    done = call("project", REPORTS[0], "--format", format, *output)
    assert done.code == 0
    assert done.stderr == "note: of 355 ranges, 4 launched no GPU operation that counts\n"
    assert call("project", REPORTS[0], "-o", tmp_path / f"x.{format}").code == 0
    assert done.stdout.rstrip("\n") == (tmp_path / f"x.{format}").read_text(encoding="utf-8").rstrip("\n")
    assert done.stdout.endswith("\n")


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
    assert "--scope process" not in call("project", REPORTS[0], "-o", tmp_path / "y.csv").stderr


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
    assert "stream" in call("project", REPORTS[0], "--per-stream").stdout.splitlines()[1].lower()
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
    _, heading, *lines = call("project", REPORTS[0], "--limit", "5000").stdout.splitlines()
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
@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_table_fits_the_terminal(shared_reports: list[Path], width: int) -> None:
    path = next(path for path in shared_reports if "MohanadOdema" in path.name)
    text = on_terminal("project", path, COLUMNS=str(width), LINES="50")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 2 * 40 + 10
    assert "\x1b[1m" in text
    assert any(line.rstrip().endswith("Range") for line in lines[1:4])
    assert any("…" in line for line in lines)
    piped = call("project", path, env={"COLUMNS": str(width)}).stdout
    assert max(map(len, piped.splitlines())) <= max(width, 80)
    assert "\x1b" not in piped
    assert not [line for line in piped.splitlines() if line != line.rstrip()]


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
