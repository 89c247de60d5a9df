"""Clocks of reports without GPU rows: barriers of MPI align them, and without these recorded UTC places them, with an unknown bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec import Struct

import nsys_pp
from tests.draws import count_draws
from tests.importer import Importer, slices_by_track
from tests.read.tables import Row, os_call, strings, write_export

EPOCH_NS = 1_700_000_000_000_000_000
LENGTH_NS = 20_000_000_000
LATEST_NS = 20_000  # of the end of a barrier on a rank, after its end on the first one

pytestmark = pytest.mark.filterwarnings("ignore:no report has GPU operations")


class Machine(Struct, frozen=True, kw_only=True):
    """A machine of a world: the error of its UTC at the start of the recording, and of the rate of its clock."""

    name: str
    error_ns: int
    drift_ppm: float
    monotonic_ns: int  # of its other clock, at the start

    def to_recorded(self, true_ns: float) -> int:
        """Map the time since the start of the recording to its clock."""
        return round(true_ns * (1 + self.drift_ppm / 1e6))

    def offset_ns(self) -> float:
        """Return the true correction of its recorded UTC in the middle of the recording."""
        middle = LENGTH_NS / 2
        return -self.error_ns + middle / (1 + self.drift_ppm / 1e6) - middle


def write_world(
    folder: Path, random: np.random.Generator, *, with_barriers: bool, with_monotonic: bool
) -> list[Machine]:
    """Write the reports of two ranks on each of two to four machines, and return the machine of each report."""
    machines = [
        Machine(
            name=f"host{number}",
            error_ns=int(random.normal(0, 2_000_000)),
            drift_ppm=float(random.normal(0, 10)),
            monotonic_ns=int(random.integers(1, 1 << 50)),
        )
        for number in range(random.integers(2, 5))
    ]
    owners = [machine for machine in machines for _ in range(2)]
    ends = np.sort(random.uniform(0.01, 0.99, 300)) * LENGTH_NS
    folder.mkdir()
    for rank, machine in enumerate(owners):
        late = random.gamma(2, LATEST_NS / 10, len(ends)).clip(max=LATEST_NS)
        begins = ends - random.uniform(50_000, 2_000_000, len(ends))
        thread = (1 << 48) | (rank + 1 << 24) | rank + 1
        tables: dict[str, list[Row]] = {
            "StringIds": strings("read", "MPI_Barrier"),
            "PROCESSES": [{"globalPid": thread & ~0xFFFFFF, "pid": rank + 1, "name": "solver"}],
            "OSRT_API": [os_call(machine.to_recorded(1e9), machine.to_recorded(2e9), globalTid=thread)],
            "ANALYSIS_DETAILS": [{"duration": LENGTH_NS, "startTime": 0, "stopTime": 0}],
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": EPOCH_NS + machine.error_ns}],
            "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "nameEnum": 619, "value": machine.name}],
        }
        if with_monotonic:
            session = {"utcEpochNs": EPOCH_NS + machine.error_ns, "systemClockNs": machine.monotonic_ns}
            tables["TARGET_INFO_SESSION_START_TIME"] = [session]
        if with_barriers:
            tables["MPI_RANKS"] = [{"globalTid": thread, "rank": rank}]
            tables["MPI_COMMUNICATORS"] = [
                {"rank": rank, "timestamp": 0, "commHandle": 7, "size": len(owners)}
            ]
            tables["MPI_COLLECTIVES_EVENTS"] = [
                {"start": machine.to_recorded(begin), "end": machine.to_recorded(end)}
                | {"globalTid": thread, "textId": 1, "commHandle": 7}
                for begin, end in zip(begins, ends + late, strict=True)
            ]
        write_export(folder / f"{rank}.sqlite", tables)
    return owners


def list_clocks(folder: Path) -> tuple[pl.DataFrame, list[str]]:
    """Align a world; a row per report, in order of their names."""
    result = nsys_pp.align([folder])
    clocks = result.clocks.explode("reports")
    names = [path.stem for path in result.paths]
    ordered = clocks.with_columns(rank=pl.Series([int(names[at]) for at in clocks["reports"]])).sort("rank")
    return ordered, ordered["source"].cast(pl.String).to_list()


@pytest.mark.few(1)
@pytest.mark.draws
@pytest.mark.parametrize("with_monotonic", [False, True])
def test_barriers_align_within_their_bounds(with_monotonic: bool, tmp_path: Path) -> None:
    random = np.random.Generator(np.random.PCG64(7))
    compared = wrong = 0
    largest = 0.0
    for number in range(count_draws(24, least=8)):
        folder = tmp_path / f"{number}"
        owners = write_world(folder, random, with_barriers=True, with_monotonic=with_monotonic)
        clocks, sources = list_clocks(folder)
        assert set(sources) <= {"MPI", "same machine"}
        assert clocks["group"].n_unique() == 1
        errors = clocks["offset_ns"].to_numpy() - np.array([owner.offset_ns() for owner in owners])
        bounds = clocks["bound_ns"].to_numpy()
        for first in range(len(owners)):
            for second in range(first):
                compared += 1
                wrong += abs(errors[first] - errors[second]) > bounds[first] + bounds[second]
        largest = max(largest, float(bounds.max()))
    assert compared > 100
    assert wrong <= compared // 100  # as docs/accuracy.md says of all worlds
    assert largest < 20 * LATEST_NS


def test_without_barriers_utc_places_reports_with_an_unknown_bound(
    importer: Importer, tmp_path: Path
) -> None:
    random = np.random.Generator(np.random.PCG64(8))
    for number in range(count_draws(6, least=1)):
        folder = tmp_path / f"{number}"
        owners = write_world(folder, random, with_barriers=False, with_monotonic=number % 2 == 0)
        with pytest.warns(UserWarning, match="only (recorded )?UTC (places|relates) them"):
            clocks, _ = list_clocks(folder)
        assert clocks["bound_ns"].null_count() > 0
        assert clocks["offset_ns"].to_list() == [0] * len(owners)
        trace = tmp_path / f"{number}.pftrace"
        with pytest.warns(UserWarning, match="only (recorded )?UTC (places|relates) them"):
            merged = nsys_pp.merge([folder], trace)
        assert merged.machines == len({owner.name for owner in owners})
        drawn = slices_by_track(importer, trace)
        drawn = drawn.filter(pl.col("path").str.contains("/OS calls "))
        expected = sorted(EPOCH_NS + owner.error_ns + owner.to_recorded(1e9) for owner in owners)
        first = min(expected)
        starts = sorted(drawn["ts"].to_list())
        assert [start - starts[0] for start in starts] == [time - first for time in expected]
