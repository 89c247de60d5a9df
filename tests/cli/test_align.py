"""`nsys-pp align`: the table, JSON, what is given, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fixtures.recording.export import Session, write_report
from fixtures.simulate import main as simulate
from tests.cli.calls import assert_refused, call, succeed

CLOCKS = Path(__file__).parents[2] / "fixtures" / "clocks"


def align(*arguments: str | Path) -> list[dict[str, Any]]:
    done = succeed("align", "--json", *arguments)
    found: list[dict[str, Any]] = json.loads(done.stdout)["clocks"]
    return found


def true_offsets_ns() -> dict[str, float]:
    """What must be added to each report's UTC in the middle of the run, but for a common shift."""
    clocks = pl.read_parquet(CLOCKS / "truth" / "clocks.parquet")
    middle = clocks["capture_utc_ns"].max() + clocks["duration_ns"].min() // 2  # type: ignore[operator]
    return {
        row["report"]: row["capture_utc_ns"]
        - row["recorded_utc_ns"]
        - row["drift_ppb"] / 1e9 * (middle - row["capture_utc_ns"])
        for row in clocks.iter_rows(named=True)
    }


def test_every_clock_is_told_with_its_error() -> None:
    found = align(CLOCKS)
    assert [one["machine"] for one in found] == ["node1", "node1", "node2", "node2", "node10", "node10"]
    true = true_offsets_ns()
    apart = [one["offset_ns"] - true[Path(one["reports"][0]).relative_to(CLOCKS).as_posix()] for one in found]
    assert max(apart) - min(apart) < 2 * max(one["bound_ns"] for one in found)
    for one in found:
        assert one["source"] == "collectives"
        assert 0 < one["residual_median_ns"] <= one["residual_p95_ns"] <= one["bound_ns"] < 60_000
        assert one["collective_count"] == 8
        assert one["message_count"] > 0
    drifts = {one["machine"]: one["drift_ppm"] for one in found}
    assert drifts["node10"] - drifts["node2"] == pytest.approx(58 + 35, abs=10)  # a capture of 0.2 s


def test_what_is_recorded_can_be_believed_instead() -> None:
    of_utc = align(CLOCKS, "--clock", "utc")
    assert {(one["source"], one["offset_ns"]) for one in of_utc} == {("UTC", 0)}
    assert {one["source"] for one in align(CLOCKS, "--clock", "none")} == {"nothing"}
    assert "no operation is shared" not in call("align", CLOCKS, "--clock", "utc").stderr


def test_an_offset_of_an_unknown_machine_is_refused() -> None:
    done = call("align", CLOCKS, "--offset", "node7=1ms")
    assert_refused(done, "there is no machine `node7`")
    assert "hint: the machines are `node1`, `node2`, `node10`" in done.stderr


def test_machines_that_share_nothing_are_said(tmp_path: Path) -> None:
    for number in range(2):
        session = Session(hostname=f"node{number}", pid=1000 + number)
        write_report(tmp_path / f"{number}.sqlite", kernels=[{"start": 0, "end": 9}], session=session)
    done = call("align", tmp_path)
    assert "`node0`, `node1`: no operation is shared beyond doubt with other reports" in done.stderr
    assert done.stdout.count("UTC alone") == 2
    assert done.stdout.count("unknown") == 2


def test_system_clocks_make_one_of_a_machines_reports(tmp_path: Path) -> None:
    options = "--pp 2 --dp 2 --machines 2 --steps 4 --layers 1 --schema 3.25.0 --offsets-ms 5"
    simulate([str(tmp_path), *options.split(), "--utc-error-us", "100", "--skew-us", "5", "--no-truth"])
    found = align(tmp_path)
    assert [len(one["reports"]) for one in found] == [2, 2]
    assert max(one["bound_ns"] for one in found) < 30_000


def test_an_offset_before_the_beginning_of_time_is_refused(tmp_path: Path) -> None:
    for node in ("node1", "node2"):
        (tmp_path / node).mkdir()
        write_report(
            tmp_path / node / "x.sqlite",
            kernels=[{"start": 0, "end": 9}],
            session=Session(hostname=node, pid=7),
            omit={"TARGET_INFO_SESSION_START_TIME"},
        )
    assert_refused(call("align", tmp_path, "--offset", "node1=-172800s"), "offset")
