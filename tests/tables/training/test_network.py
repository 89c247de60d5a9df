"""`pipeline --table network`: bytes of network cards by step, of every machine."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nsys_pp
from nsys_pp.frames.part import METRIC_FRAMES
from nsys_pp.model import build_report
from nsys_pp.read import read_part, read_report
from nsys_pp.run import requested as part_network
from tests.cli.calls import call as run_command

PIPELINE = Path(__file__).parents[3] / "fixtures" / "pipeline"
# the DDL of exports of schema 3.28.1
DDL = """
CREATE TABLE NET_NIC_METRIC (
    start INTEGER NOT NULL, end INTEGER NOT NULL, globalId INTEGER NOT NULL, portId INTEGER NOT NULL,
    metricsListId INTEGER NOT NULL, metricsIdx INTEGER NOT NULL, value INTEGER NOT NULL
);
CREATE TABLE NET_IB_SWITCH_METRIC (
    start INTEGER NOT NULL, end INTEGER NOT NULL, globalId INTEGER NOT NULL, metricsListId INTEGER NOT NULL,
    metricsIdx INTEGER NOT NULL, value INTEGER NOT NULL
);
CREATE TABLE TARGET_INFO_NETWORK_METRICS (
    metricsListId INTEGER NOT NULL, metricsIdx INTEGER NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL, unit TEXT NOT NULL
);
CREATE TABLE NIC_ID_MAP (nicId INTEGER NOT NULL, globalId INTEGER NOT NULL);
DROP TABLE IF EXISTS TARGET_INFO_NIC_INFO;
CREATE TABLE TARGET_INFO_NIC_INFO (
    GUID INTEGER NOT NULL, stateName TEXT NOT NULL, nicId INTEGER NOT NULL, name TEXT NOT NULL, deviceId INTEGER NOT NULL,
    vendorId INTEGER NOT NULL, linkLayer INTEGER NOT NULL
);
INSERT INTO TARGET_INFO_NETWORK_METRICS VALUES
    (0, 5, 'IB: Bytes received', '', 'bytes/ms'), (0, 6, 'IB: Bytes sent', '', 'bytes/ms'),
    (0, 7, 'IPoIB: Bytes sent', '', 'bytes/ms'), (0, 10, 'IB: Send waits', '', 'ticks/ms');
INSERT INTO NIC_ID_MAP VALUES (0, 70), (1, 71);
INSERT INTO TARGET_INFO_NIC_INFO VALUES (1, 'Local', 0, 'mlx5_0', 1, 1, 2), (2, 'Local', 1, 'mlx5_1', 1, 1, 2);
"""
SAMPLE_NS = 100_000


def add_network(path: Path, *, until_ns: int, rates: dict[int, int]) -> None:
    """Add samples of 100 us to a report: rates in bytes per ms by the number of the metric, on both ports of two cards."""
    times = range(0, until_ns, SAMPLE_NS)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(DDL)
        connection.executemany(
            "INSERT INTO NET_NIC_METRIC VALUES (?, ?, ?, ?, 0, ?, ?)",
            [
                (at, at + SAMPLE_NS, card, port, metric, rate)
                for at in times
                for card in (70, 71)
                for port in (1, 2)
                for metric, rate in rates.items()
            ],
        )
        connection.execute("INSERT INTO NET_IB_SWITCH_METRIC VALUES (0, ?, 9, 0, 6, 1000)", [until_ns])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the fixture with network metrics in both reports of the first machine, which have the same cards."""
    folder = tmp_path_factory.mktemp("network") / "pipeline"
    shutil.copytree(PIPELINE, folder)
    for name in ("rank0", "rank1"):
        add_network(
            folder / "node2" / f"{name}.sqlite", until_ns=10_000_000_000, rates={5: 3000, 6: 500, 7: 9, 10: 1}
        )
    return folder


def test_bytes_of_a_constant_rate_are_those_of_the_length_of_each_step(recorded: Path) -> None:
    result = nsys_pp.pipeline(recorded)
    table = result.tables(["network"])["network"]
    (machine,) = table["machine"].unique()
    lanes = result.training.lanes.filter(machine=machine)["lane"]
    spans = (
        result.training.steps.filter(pl.col("lane").is_in(lanes.implode()))
        .group_by("step")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("step")
    )
    ends = spans["end_ns"].to_list()
    ends[:-1] = [min(end, start) for end, start in zip(ends, spans["start_ns"][1:].to_list(), strict=False)]
    lengths_ms = [(end - start) / 1e6 for start, end in zip(spans["start_ns"].to_list(), ends, strict=True)]
    cards = table.filter(source="network cards")
    assert cards["step"].to_list() == spans["step"].to_list()
    assert cards["sent_bytes"].to_list() == pytest.approx([4 * 500 * length for length in lengths_ms])
    assert cards["received_bytes"].to_list() == pytest.approx([4 * 3000 * length for length in lengths_ms])
    assert cards["sent_peak_bytes_per_s"].to_list() == pytest.approx([500_000.0] * len(cards))
    switch = table.filter(source="IB switch 9")
    assert switch["sent_bytes"].to_list() == pytest.approx([1000 * length for length in lengths_ms])
    assert switch["received_bytes"].null_count() == len(switch)
    sent = result.training.transfers.join(
        result.training.lanes.select(sender="lane", machine="machine"), on="sender"
    ).join(result.training.lanes.select(receiver="lane", to="machine"), on="receiver")
    away = sent.filter(pl.col("machine") == machine, pl.col("to") != machine)
    assert cards["message_bytes"].sum() == away["size_bytes"].sum()


def test_the_table_is_shown_or_its_absence_explained(recorded: Path) -> None:
    done = run_command("pipeline", recorded, "--table", "network")
    assert done.code == 0, done.stderr
    assert "network cards" in done.stdout
    done = run_command("pipeline", PIPELINE, "--table", "network")
    assert (
        "none of the 4 reports has network metrics: record them with `nsys profile --nic-metrics"
        in done.stdout
    )


def test_parts_have_the_same_bytes(recorded: Path, tmp_path: Path) -> None:
    nsys_pp.extract(recorded, tmp_path / "parts")
    tables = [
        nsys_pp.pipeline(path).tables(["network"])["network"] for path in (recorded, tmp_path / "parts")
    ]
    assert len(tables[0]) > 4
    assert_frame_equal(tables[0], tables[1], rel_tol=1e-9)


def test_parts_of_many_samples_are_bounded(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_network, "_FEWEST_NETWORK_WINDOWS", 50)
    monkeypatch.setattr(part_network, "MOST_NETWORK_WINDOWS", 9 * 1000)
    report = recorded / "node2" / "rank0.sqlite"
    nsys_pp.extract(report, tmp_path / "report.nspart")
    windows = read_part(tmp_path / "report.nspart", (), version="", optional=METRIC_FRAMES).frames[
        "network_windows"
    ]
    assert windows.group_by("owner", "port", "direction").len()["len"].max() == 1000
    tables = [
        nsys_pp.pipeline(path).tables(["network"])["network"] for path in (report, tmp_path / "report.nspart")
    ]
    for name in ("sent_bytes", "received_bytes", "collective_bytes"):
        found, expected = (table[name].fill_null(-1).to_list() for table in reversed(tables))
        assert found == pytest.approx(expected, rel=1e-6), name


def test_a_port_is_a_counter_of_its_own(recorded: Path) -> None:
    report = build_report(read_report(recorded / "node2" / "rank0.sqlite", need=frozenset({"show_network"})))
    names = {metric.name for metric in report.sampled_metrics}
    assert {"mlx5_0 port 1: IB: Bytes sent", "mlx5_0 port 2: IB: Bytes sent"} <= names
    assert "IB switch 9: IB: Bytes sent" in names
    assert all(metric.samples["time_ns"].is_unique().all() for metric in report.sampled_metrics)
