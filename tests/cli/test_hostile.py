"""Names in reports reach neither the terminal nor a spreadsheet as programs."""

from __future__ import annotations

import re
import resource
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import nsys_pp
from nsys_pp.cli.result import escape_screen
from tests.bench.measure import measure_peak_bytes
from tests.cli.calls import RANK0, call, environment, run, succeed
from tests.sql import edit

_EVIL = "\x1b]0;owned\x07\x1b[2J\nError: none\r\x9b31m\u202e\u200f\u061c"
_RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u200f\u061c]")


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """Return a report whose host, GPU, process, ranges and file have names with control characters."""
    report = Path(shutil.copy(RANK0, tmp_path / "evil\x1b]0;x\x07\nnote: fine.sqlite"))
    return edit(
        report,
        "UPDATE TARGET_INFO_SYSTEM_ENV SET value = :evil WHERE name = 'Hostname'",
        "UPDATE META_DATA_CAPTURE SET value = :evil WHERE name = 'DEVICE_DISPLAY_NAME'",
        "UPDATE TARGET_INFO_GPU SET name = :evil",
        "UPDATE PROCESSES SET name = :evil",
        "UPDATE StringIds SET value = :evil WHERE value = 'python'",
        "UPDATE NVTX_EVENTS SET text = text || :evil WHERE text LIKE 'zero%'",
        evil=_EVIL,
    )


def test_nothing_raw_of_wrong_usage_reaches_the_terminal() -> None:
    refused = run("compare", "a", "b", f"c{_EVIL}")
    assert "1 argument too many" in refused.stderr
    assert not _RAW.search(refused.stderr)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "command",
    [
        "info",
        "pipeline",
        "summary",
        "align",
        "project",
        "project --format csv",
        "project --format json",
        "summary --format markdown",
        "merge -o {}/o.pftrace",
        "pipeline --explain-jobs",
        "nope",
    ],
)
def test_nothing_raw_reaches_the_terminal(evil: Path, tmp_path: Path, command: str) -> None:
    if command == "nope":
        evil.unlink()
        command = "info"
    done = call(*command.format(tmp_path).split(), evil)
    for text in (done.stdout, done.stderr):
        assert not _RAW.search(text), repr(text)
        lines = [] if "csv" in command else text.splitlines()  # its fields may have several
        assert not any(line.startswith(("Error: none", "note: fine")) for line in lines)


def test_colors_of_the_screen_stay() -> None:
    assert (
        escape_screen("\x1b[1;36mTitle\x1b[0m\n\x1b]0;x\x07\u202e")
        == "\x1b[1;36mTitle\x1b[0m\n\\x1b]0;x\\x07\\u202e"
    )


def test_names_are_no_formulas_in_csv(tmp_path: Path) -> None:
    report = Path(shutil.copy(RANK0, tmp_path))
    for sign, old in zip("=+-@", ("forward_0", "forward_1", "backward_0", "backward_1"), strict=True):
        edit(report, f"UPDATE NVTX_EVENTS SET text = '{sign}' || text WHERE text LIKE '{old}%'")
    safe = succeed("project", report, "--format", "csv")
    for sign in "=+-@":
        assert f",'{sign}" in safe.stdout
    assert not re.search(r",[=+@]", safe.stdout)
    raw = call("project", report, "--format", "csv", env={"NSYS_PP_CSV": "raw"})
    assert raw.stdout == re.sub(r",'([=+\-@])", r",\1", safe.stdout)


# of docs/limits.md
_FIXED_BYTES = 400_000_000
_BYTES_PER_BYTE = 40
_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_CALL = "CUPTI_ACTIVITY_KIND_RUNTIME"
_Table = tuple[tuple[str, ...], Iterable[Sequence[object]]]
_STRINGS = [
    (0, "k"),
    (1, "cudaLaunchKernel"),
    (2, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
]


def _write(path: Path, tables: Mapping[str, _Table]) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", _STRINGS)
        for name, (columns, rows) in tables.items():
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
    return path


_REFUSED: dict[str, tuple[dict[str, _Table], str]] = {
    "streams": (
        {_KERNEL: (("start", "end", "streamId"), [(i, i + 1, i) for i in range(11_000)])},
        "streams of a GPU; expected at most 10,000",
    ),
    "GPUs": (
        {_KERNEL: (("start", "end", "deviceId"), [(i, i + 1, i) for i in range(600)])},
        "has 600 GPUs (of all processes); expected at most 512",
    ),
    "kernels at the same time": (
        {_KERNEL: (("start", "end"), [(0, 1)] * 20_000)},
        "slices at the same time in one row; expected at most 10,000",
    ),
    "rows of slices": (
        {_KERNEL: (("start", "end", "streamId"), [(i // 900, 900, i % 30) for i in range(27_000)])},
        "rows of slices; expected at most 20,000",
    ),
    "threads": (
        {
            _KERNEL: (("start", "end"), [(0, 1)]),
            _CALL: (("start", "end", "globalTid"), [(0, 1, i) for i in range(60_000)]),
        },
        "has 60,000 threads with events; expected at most 50,000",
    ),
}


@pytest.mark.parametrize("shape", _REFUSED)
def test_more_than_a_recording_has_is_refused(shape: str, tmp_path: Path) -> None:
    tables, words = _REFUSED[shape]
    path = _write(tmp_path / "a.sqlite", tables)
    with pytest.raises(nsys_pp.NsysPPError, match=f"`{path}`.*{re.escape(words)}") as refused:
        nsys_pp.merge(path, tmp_path / "x.pftrace")
    assert refused.value.hint
    assert not (tmp_path / "x.pftrace").exists()


_COUNT = 100_000
_LARGE: dict[str, dict[str, _Table]] = {
    "kernels of few bytes": {
        _KERNEL: (("start", "end"), [(i // 900 * 2, i // 900 * 2 + 1) for i in range(_COUNT)])
    },
    "ranges of few bytes": {
        "NVTX_EVENTS": (("eventType", "start", "end", "globalTid"), [(59, 0, 1, 1)] * _COUNT),
        _CALL: (("start", "end", "globalTid", "correlationId"), [(0, 1, 1, 1)] * 3),
        _KERNEL: (("start", "end", "correlationId"), [(0, 1, 1)] * 3),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", _LARGE)
def test_memory_is_a_multiple_of_the_file(shape: str, tmp_path: Path) -> None:
    path = _write(tmp_path / "a.sqlite", _LARGE[shape])
    peak = measure_peak_bytes("merge", path, "-o", tmp_path / "x.pftrace")
    assert peak < _FIXED_BYTES + _BYTES_PER_BYTE * path.stat().st_size


_MOST_BYTES = 4 << 30  # of addresses: 1 GB of memory, of which little is used


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("variables", "number"),
    [(("RANK",), 2**63 - 1), (("RANK", "WORLD_SIZE"), 999_999_999_999), (("LOCAL_RANK",), 2**70)],
)
def test_ranks_of_an_environment(tmp_path: Path, variables: tuple[str, ...], number: int) -> None:
    report = edit(
        Path(shutil.copy(RANK0, tmp_path)),
        "DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'DeviceEnvironment'",
        "DELETE FROM META_DATA_CAPTURE WHERE value LIKE 'SLURM%'",
        *(
            f"UPDATE META_DATA_CAPTURE SET value = '{name}=\"{number}\"' WHERE value LIKE '{name}=%'"
            for name in variables
        ),
    )
    line = ("merge", report, "-o", tmp_path / "run.pftrace")  # the verdict is that of `pipeline`
    done = run(*line, env=environment(PYTHONWARNINGS=""), preexec_fn=_limit)
    assert done.code == 0, done.stderr


def test_ranks_of_job_numbers_in_names(tmp_path: Path) -> None:
    report = edit(
        Path(shutil.copy(RANK0, tmp_path / "job_48151623.sqlite")),
        "DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'DeviceEnvironment'",
        "DELETE FROM META_DATA_CAPTURE WHERE value LIKE 'SLURM%' OR value LIKE '%RANK%'",
    )
    done = run("merge", report, "-o", tmp_path / "x.pftrace", "--rank-from", r"job_(\d+)", preexec_fn=_limit)
    assert done.code == 1
    assert "matches 48151623" in done.stderr
    assert "hint: the number may be that of a job" in done.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("names", "number"), [("%", 2**63 - 1), ("forward%", 2**41), ("step%", 10**12 - 1), ("send%", 99_999_999)]
)
def test_numbers_in_names_of_ranges(tmp_path: Path, names: str, number: int) -> None:
    report = Path(shutil.copy(RANK0, tmp_path))
    with closing(sqlite3.connect(report)) as connection, connection:
        connection.create_function("renumber", 1, lambda text: re.sub(r"\d+", str(number), text))
        connection.execute("UPDATE NVTX_EVENTS SET text = renumber(text) WHERE text LIKE ?", [names])
    assert call("merge", report, "-o", tmp_path / "run.pftrace").code == 0
    assert call("pipeline", report, RANK0.with_name("rank1.sqlite"), "--table", "all").code == 0


_FEW, _FACTOR = 12_000, 4
_MOST_TIMES = 8.0  # with four times the rows; their square would take 16 times as long
_FIXED_S = 0.1  # of tables without rows; a quadratic step of this size is seen at its fourfold
_TRIES = 4
_PROCESS = 1 << 24
_THREAD = _PROCESS + 1
# A value of a row, by its number and the number of rows.
Column = Callable[[int, int], object]


_COLUMNS: dict[str, dict[str, Column]] = {
    _KERNEL: {
        "start": lambda i, n: 10 * i,
        "end": lambda i, n: 10 * i + 5,
        "streamId": lambda i, n: 7,
        "deviceId": lambda i, n: 0,
        "globalPid": lambda i, n: _PROCESS,
        "correlationId": lambda i, n: i,
        "shortName": lambda i, n: 0,
    },
    _CALL: {
        "start": lambda i, n: 10 * i,
        "end": lambda i, n: 10 * i + 4,
        "globalTid": lambda i, n: _THREAD,
        "correlationId": lambda i, n: i,
        "nameId": lambda i, n: 1,
    },
    "NVTX_EVENTS": {
        "eventType": lambda i, n: 59,
        "start": lambda i, n: 10 * i,
        "end": lambda i, n: 10 * i + 5,
        "globalTid": lambda i, n: _THREAD,
        "text": lambda i, n: "a",
        "rangeId": lambda i, n: None,
        "endGlobalTid": lambda i, n: None,
    },
}
_Shape = dict[str, dict[str, Column]]
_NESTED: dict[str, Column] = {"start": lambda i, n: i, "end": lambda i, n: 30 * n - i}
_SHAPES: dict[str, _Shape] = {
    "ranges that are all nested": {"NVTX_EVENTS": _NESTED},
    "ranges that are all equal": {
        "NVTX_EVENTS": {"start": lambda i, n: 0, "end": lambda i, n: 10 * n},
    },
    "ranges that all overlap": {
        "NVTX_EVENTS": {
            "eventType": lambda i, n: 60,
            "start": lambda i, n: i,
            "end": lambda i, n: 5 * n + i,
            "rangeId": lambda i, n: i,
            "endGlobalTid": lambda i, n: _THREAD + i % 3,
        }
    },
    "a name for each range": {"NVTX_EVENTS": {"text": lambda i, n: f"name {i} of {n}"}},
    "a step for each range": {"NVTX_EVENTS": {"text": lambda i, n: f"step {i}"}},
    "jobs that are all nested": {"NVTX_EVENTS": {**_NESTED, "text": lambda i, n: f"forward {i % 7}"}},
    "kernels at one instant": {
        _KERNEL: {"start": lambda i, n: i // 900 * 10, "end": lambda i, n: i // 900 * 10 + 5}
    },
    "kernels longer than the time between them": {_KERNEL: {"end": lambda i, n: 10 * i + 8000}},
    "kernels on hundreds of streams": {
        _KERNEL: {"streamId": lambda i, n: i % 600, "end": lambda i, n: 10 * i + 8000}
    },
    "hundreds of GPUs and processes": {
        _KERNEL: {"deviceId": lambda i, n: i % 8, "globalPid": lambda i, n: _PROCESS * (1 + i % 60)},
        _CALL: {"globalTid": lambda i, n: _PROCESS * (1 + i % 60) + 1},
        "NVTX_EVENTS": {"globalTid": lambda i, n: _PROCESS * (1 + i % 60) + 1},
    },
    "launches without operations": {_KERNEL: {"correlationId": lambda i, n: i + n}},
    "one launch of all operations": {
        _KERNEL: {"correlationId": lambda i, n: 5},
        _CALL: {"correlationId": lambda i, n: 5},
    },
    "huge ids": {
        _KERNEL: {"correlationId": lambda i, n: 2**62 - i, "globalPid": lambda i, n: _PROCESS << 30},
        _CALL: {"correlationId": lambda i, n: 2**62 - i, "globalTid": lambda i, n: (_PROCESS << 30) + 1},
    },
    "thousands of threads": {
        _CALL: {"globalTid": lambda i, n: _PROCESS + i % 8000},
        "NVTX_EVENTS": {"globalTid": lambda i, n: _PROCESS + i % 8000},
    },
    "calls that are all nested": {_CALL: {"start": lambda i, n: i, "end": lambda i, n: 100 * n - i}},
    "messages": {_KERNEL: {"shortName": lambda i, n: 2}, "NVTX_EVENTS": {"text": lambda i, n: "ncclSend"}},
}


def _write_shape(path: Path, shape: _Shape, count: int) -> Path:
    tables: dict[str, _Table] = {}
    for table, usual in _COLUMNS.items():
        columns = {**usual, **shape.get(table, {})}
        rows = [[column(row, count) for column in columns.values()] for row in range(count)]
        tables[table] = (tuple(columns), rows)
    return _write(path, tables)


def _measure_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", _SHAPES)
def test_work_grows_with_the_rows(shape: str, tmp_path: Path) -> None:
    paths = [
        _write_shape(tmp_path / f"{count}.sqlite", _SHAPES[shape], count) for count in (_FEW, _FEW * _FACTOR)
    ]
    analyses: dict[str, Callable[[Path], object]] = {
        "merge": lambda path: nsys_pp.merge(path, tmp_path / "x.pftrace", force=True),
        "pipeline": lambda path: nsys_pp.pipeline(path).tables(),
        "summary": lambda path: nsys_pp.summary(path).tables,
    }
    for name, analyse in analyses.items():
        few, many = (partial(_refusable, analyse, path) for path in paths)
        few()  # imports what it uses
        times = []
        for _ in range(_TRIES):
            few_s, many_s = _measure_s(few), _measure_s(many)
            times.append((few_s, many_s))
            if many_s <= _MOST_TIMES * max(few_s, _FIXED_S):
                break
        else:
            pytest.fail(f"{name}: {times}")


def _refusable(analyse: Callable[[Path], object], path: Path) -> None:
    """Analyse a report; what it lacks or has too much of is a sentence, after as little work."""
    try:
        analyse(path)
    except nsys_pp.NsysPPError:
        return
