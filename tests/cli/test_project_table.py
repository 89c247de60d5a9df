"""The table that `nsys-pp project` prints, on a terminal and elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from fixtures.recording.export import Session, write_report
from tests.cli.calls import call, command_line, environment
from tests.patience import PATIENCE_S

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
RANK0 = PIPELINE / "node2" / "rank0.sqlite"

pytestmark = pytest.mark.usefixtures("reports_read_once")


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
