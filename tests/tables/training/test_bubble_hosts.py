"""Activities of hosts in bubbles: equal from parts and from reports, of all bubbles, and of other threads by their definition."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsys_pp
from fixtures.simulate import main as simulate
from nsys_pp.frames.training import LANE_STATES
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.run import requested as bubble_hosts
from nsys_pp.run.requested import OTHERS, sum_host_times
from tests.read.tables import PROCESS, THREAD, Row, call, op, os_call, strings, write_export

_RUN = "--steps 4 --micro-batches 4 --layers 1 --dp 2 --no-truth"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ("--host --stall 11=8 --host-stall 2,12=9", None),
        (
            "--names megatron --evaluation-every 2 --checkpoint-every 2 --offsets-ms 50 --drift-ppm random:40",
            None,
        ),
        ("--stall 11=8 --per machine --offsets-ms 50", "11:13"),
        ("--window-ms 20 --loads 0.3=4 --pauses 0.2=3 --skew-us 5 --utc-error-us 200", None),
        ("--restart-after 2 --schedule interleaved", None),
    ],
)
def test_hosts_of_parts_are_those_of_the_reports(tmp_path: Path, options: str, steps: str | None) -> None:
    folder = tmp_path / "run"
    simulate([*f"{_RUN} {options} --seed 81".split(), str(folder)])
    nsys_pp.extract(folder, tmp_path / "parts")
    runs = [nsys_pp.pipeline(path, steps=steps) for path in (folder, tmp_path / "parts")]
    of_reports, of_parts = (result.tables(["host"])["host"] for result in runs)
    assert of_reports.equals(of_parts)
    whole = dict(of_reports.filter(pl.col("activity").is_null()).select("cause", "time_ns").iter_rows())
    length = pl.col("end_ns") - pl.col("start_ns")
    states = runs[0].training.lane_states.filter(pl.col("cause").is_in(["host", "data"]))
    expected = dict(states.group_by("cause").agg(length.sum()).iter_rows())
    # times are moved from clock to clock, whose rates differ
    assert {cause: pytest.approx(time, rel=5e-4) for cause, time in expected.items()} == whole


def test_names_beyond_the_most_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    simulate([*f"{_RUN} --dp 1 --pp 2 --host --seed 82".split(), str(folder)])
    before = nsys_pp.pipeline(folder).tables(["host"])["host"]
    monkeypatch.setattr(bubble_hosts, "MOST_ROWS", 40)
    after = nsys_pp.pipeline(folder).tables(["host"])["host"]
    assert OTHERS in after["name"].to_list()
    assert len(after) < len(before)
    sums = [
        frame.group_by("activity").agg(pl.col("time_ns").sum()).sort("activity", nulls_last=True)
        for frame in (before, after)
    ]
    # rows below a share of 0.1 % are left out of the table
    for (_, all_ns), (_, kept_ns) in zip(*(frame.rows() for frame in sums), strict=True):
        assert kept_ns == pytest.approx(all_ns, rel=0.02)


BUBBLES = st.lists(st.tuples(st.integers(0, 10), st.integers(1, 10)), min_size=1, max_size=4)
CALLS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(1, 20), st.integers(0, 1)), max_size=10
)


@settings(deadline=None, max_examples=50)
@given(BUBBLES, CALLS)
def test_other_threads_are_those_of_the_definition(
    drawn: list[tuple[int, int]], calls: list[tuple[int, int, int, int]]
) -> None:
    bubbles, at = [], 0
    for gap, length in drawn:
        bubbles.append((at + gap, at + gap + length))
        at += gap + length
    last = bubbles[-1][1]
    apart: list[tuple[int, int, int, int]] = []
    reached: dict[int, int] = {}
    for thread, start, length, name in sorted(calls):
        begin = max(start, reached.get(thread, 0))
        apart.append((thread, begin, begin + length, name))
        reached[thread] = begin + length
    words = ("read", "sem_wait")
    tables: dict[str, list[Row]] = {
        "StringIds": strings(*words, "worker 1", "worker 22", "main"),
        "ThreadNames": [
            {"globalTid": THREAD, "nameId": 4, "priority": 0},
            {"globalTid": THREAD + 1, "nameId": 2, "priority": 0},
            {"globalTid": THREAD + 2, "nameId": 3, "priority": 0},
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(last, last + 1, 1)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [op(last, last + 9, 1, shortName=0, demangledName=0)],
        "OSRT_API": [
            os_call(start, end, nameId=name, globalTid=THREAD + thread) for thread, start, end, name in apart
        ]
        + [os_call(0, last, nameId=1)],  # of the launching thread: not another one
    }
    with TemporaryDirectory() as folder:
        path = write_export(Path(folder) / "report.sqlite", tables)
        report = build_report(read_report(path, need=bubble_hosts._HOST_GROUPS))
    frame = pl.DataFrame(
        [(PROCESS, 0, 7, "host", start, end) for start, end in bubbles],
        schema={
            "process_key": pl.Int64(),
            "device_id": pl.Int32(),
            "step": pl.Int64(),
            "cause": LANE_STATES["cause"],
            "start_ns": pl.Int64(),
            "end_ns": pl.Int64(),
        },
        orient="row",
    )
    found = sum_host_times(report, frame).filter(pl.col("activity") == "other thread")
    inside = {moment for start, end in bubbles for moment in range(start, end)}
    titles = {1: "worker *", 2: "worker *", 3: "(no name)"}
    times: dict[str, int] = {}
    threads: dict[str, set[int]] = {}
    for thread, start, end, name in apart:
        key = f"{titles[thread]}: {words[name]}()"
        own = len(inside & set(range(start, end)))
        if own:
            times[key] = times.get(key, 0) + own
            threads.setdefault(key, set()).add(thread)
    sizes = {
        title: len({thread for thread, *_ in apart if titles[thread] == title}) for title in titles.values()
    }
    expected = {key: (time // sizes[key.split(":")[0]], len(threads[key])) for key, time in times.items()}
    assert {row["name"]: (row["time_ns"], row["count"]) for row in found.iter_rows(named=True)} == expected
