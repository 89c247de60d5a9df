"""The figures of speed, memory and size that the project holds itself to, each of whole commands.

Times are ratios of two processes that run in turn, so they hold on a noisy machine; medians of several rounds.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from fixtures import simulate
from fixtures.recording.bulk import Shape, draw_shape, write_bulk_report
from fixtures.recording.metrics import add_metrics
from nsys_pp.frames.raw import Group
from tests.bench import measure
from tests.sql import select

KERNELS: frozenset[Group] = frozenset({"ranges", "ops", "details"})
BYTES_PER_MIB = 1 << 20
ROUNDS = 5
MILLION = 1_000_000
SATURATED = 2_000  # ranges that overlap
USUAL = 10
_EMPTY_PROGRAM = "import click\n@click.group()\ndef main(): pass\nmain(['--help'])"
_FIT = "from tests.bench.clocks import fit_many; fit_many(4096)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure.

    Attributes:
        work: What is measured.
        unit: Unit of the values: "x" is a ratio.
        at_most: What a value must not exceed.
        aim: What it should come to.
        measure: Measures it; the empty folder is for its files.
    """

    work: str
    unit: str
    at_most: float
    aim: float
    measure: Callable[[Path], float]


def _write_shape(folder: Path, *, kernels: int = MILLION, overlap: int = USUAL, seed: int = 1) -> Path:
    return write_bulk_report(
        folder / "bulk.sqlite",
        kernels=kernels,
        ranges=kernels,
        seed=seed,
        shape=Shape(threads=3, streams=8, domains=2, overlap=overlap, unique=0.1),
    )


def _compare_with_scan(report: Path, need: frozenset[Group], *words: str | Path) -> float:
    measure.scan(report, need)
    pairs = [(measure.scan(report, need), measure.nsys_pp(*words)) for _ in range(ROUNDS)]
    return median(own.wall_s / floor.wall_s for floor, own in pairs)


def _merge_one(folder: Path, *, overlap: int) -> float:
    report = _write_shape(folder, overlap=overlap)
    return _compare_with_scan(report, KERNELS, "merge", report, "-o", folder / "run.pftrace", "--force")


def _write_metrics(folder: Path) -> tuple[Path, Path]:
    """Write the same report without metrics, and with ten rows of GPU metrics a kernel."""
    bare = _write_shape(folder)
    [(end_ns,)] = select(bare, "SELECT max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    path = Path(shutil.copy(bare, folder / "metrics.sqlite"))
    return bare, add_metrics(path, rows=10 * MILLION, end_ns=end_ns)


def _merge_metrics(folder: Path, words: tuple[str, ...] = ()) -> float:
    bare, path = _write_metrics(folder)
    output = ("-o", folder / "run.pftrace", "--force")
    measure.nsys_pp("merge", bare, *output)
    pairs = [
        (measure.nsys_pp("merge", bare, *output), measure.nsys_pp("merge", path, *words, *output))
        for _ in range(ROUNDS)
    ]
    return median(own.wall_s / floor.wall_s for floor, own in pairs)


def _measure_peak_of_metrics(folder: Path) -> float:
    _, path = _write_metrics(folder)
    words = ("merge", path, "--show", "metrics", "-o", folder / "run.pftrace")
    return measure.measure_peak_bytes(*words) / BYTES_PER_MIB


def _project_one(folder: Path) -> float:
    report = _write_shape(folder)
    return _compare_with_scan(
        report, frozenset({"ranges", "ops"}), "project", report, "-o", folder / "x.parquet", "--force"
    )


def _measure_peak(folder: Path, *, kernels: int) -> float:
    report = _write_shape(folder, kernels=kernels)
    return measure.measure_peak_bytes("merge", report, "-o", folder / "run.pftrace") / BYTES_PER_MIB


def _start(_: Path) -> float:
    empty = [sys.executable, "-c", _EMPTY_PROGRAM]
    pairs = [(measure.run(empty), measure.nsys_pp("--help")) for _ in range(3 * ROUNDS)]
    return median(own.wall_s / floor.wall_s for floor, own in pairs)


def _merge_small(folder: Path) -> float:
    report = write_bulk_report(folder / "small.sqlite", kernels=2_500, ranges=2_500)
    assert report.stat().st_size < BYTES_PER_MIB
    words = ("merge", report, "-o", folder / "run.pftrace", "--force")
    measure.nsys_pp(*words)
    return median(measure.nsys_pp(*words).wall_s for _ in range(ROUNDS))


def _simulate_many(folder: Path) -> Path:
    """Simulate 64 reports of about 14,000 kernels each."""
    options = "--pp 8 --dp 8 --machines 8 --micro-batches 32 --steps 8 --layers 1 --no-truth"
    simulate.main([str(folder / "run"), *options.split()])
    return folder / "run"


def _merge_many(folder: Path) -> float:
    run = _simulate_many(folder)
    words = ("merge", run, "-o", folder / "run.pftrace", "--force", "--processes", "1")
    measure.nsys_pp(*words)
    return median(measure.nsys_pp(*words).cpu_s for _ in range(3)) / len(list(run.rglob("*.sqlite")))


def _merge_parts(folder: Path) -> float:
    parts = folder / "parts"
    measure.nsys_pp("extract", _simulate_many(folder), "-o", parts)
    paths = sorted(parts.rglob("*.nspart"))
    ratios = []
    for _ in range(ROUNDS):
        floor = (
            measure.run(["cat", *paths]).wall_s + measure.run([sys.executable, "-c", _EMPTY_PROGRAM]).wall_s
        )
        ratios.append(measure.nsys_pp("merge", parts, "-o", folder / "run.pftrace", "--force").wall_s / floor)
    return median(ratios)


def _measure_part(folder: Path) -> float:
    """Return the largest share of its export that a part takes: of both shapes, and of a training."""
    exports = [
        write_bulk_report(
            folder / f"{overlap}.sqlite",
            kernels=MILLION // 10,
            ranges=MILLION // 10,
            shape=draw_shape(overlap, overlap=overlap),
        )
        for overlap in (USUAL, SATURATED)
    ]
    simulate.main([str(folder / "run"), *["--steps", "8", "--micro-batches", "32", "--no-truth"]])
    exports.append(min((folder / "run").rglob("*.sqlite")))
    shares = []
    for number, export in enumerate(exports):
        part = folder / f"{number}.nspart"
        measure.nsys_pp("extract", export, "-o", part)
        shares.append(100 * part.stat().st_size / export.stat().st_size)
    return max(shares)


def _measure_peak_of_parts(folder: Path) -> float:
    """Return the peak of merging 1,000 parts of 12,000 kernels."""
    for number in range(1_000):
        write_bulk_report(
            folder / "run" / f"{number}.sqlite",
            kernels=12_000,
            ranges=12_000,
            seed=number,
            hostname=f"node{number}",
        )
    parts = folder / "parts"
    measure.nsys_pp("extract", folder / "run", "-o", parts)
    peak_bytes = measure.measure_peak_bytes("merge", parts, "-o", folder / "run.pftrace", "--processes", "1")
    return peak_bytes / BYTES_PER_MIB


def _fit_clocks(_: Path) -> float:
    return measure.run([sys.executable, "-c", _FIT]).wall_s


def _compare_growth(folder: Path, *, small: tuple[int, int], large: tuple[int, int]) -> float:
    """Return the growth of the time of a merge, relative to that of the scan, between two reports, in percent.

    Args:
        folder: For the reports.
        small: Kernels, and ranges that overlap.
        large: The same, of the larger report.
    """
    ratios = []
    for kernels, overlap in (small, large):
        report = _write_shape(folder, kernels=kernels, overlap=overlap, seed=kernels + overlap)
        ratios.append(
            _compare_with_scan(report, KERNELS, "merge", report, "-o", folder / "run.pftrace", "--force")
        )
    return 100 * (ratios[1] / ratios[0] - 1)


# All figures, in order of the table. Each is measured alone (`python -m tests.bench --only WORDS`) or with the others.
FIGURES = [
    Figure(
        work="`merge` of 1M kernels and 1M ranges, against SQLite's scan",
        unit="x",
        at_most=2.5,
        aim=1.3,
        measure=partial(_merge_one, overlap=USUAL),
    ),
    Figure(
        work="the same, where 2,000 ranges overlap",
        unit="x",
        at_most=3.5,
        aim=2,
        measure=partial(_merge_one, overlap=SATURATED),
    ),
    Figure(work="`project` of it to Parquet", unit="x", at_most=1.8, aim=1.0, measure=_project_one),
    Figure(
        work="peak memory of that `merge`",
        unit="MiB",
        at_most=750,
        aim=400,
        measure=partial(_measure_peak, kernels=MILLION),
    ),
    Figure(
        work="`merge` of 1M kernels and 10M rows of GPU metrics, against without these",
        unit="x",
        at_most=2,
        aim=1.3,
        measure=_merge_metrics,
    ),
    Figure(
        work="the same with `--show metrics`",
        unit="x",
        at_most=2,
        aim=1.5,
        measure=partial(_merge_metrics, words=("--show", "metrics")),
    ),
    Figure(
        work="peak memory of `merge --show metrics` of them",
        unit="MiB",
        at_most=900,
        aim=600,
        measure=_measure_peak_of_metrics,
    ),
    Figure(
        work="peak memory of `merge` of 10M kernels in one report",
        unit="MiB",
        at_most=3_000,
        aim=700,
        measure=partial(_measure_peak, kernels=10 * MILLION),
    ),
    Figure(work="`--help`, against an empty click program", unit="x", at_most=2, aim=1.3, measure=_start),
    Figure(
        work="`merge` of a report below 1 MB, with start-up",
        unit="s",
        at_most=0.5,
        aim=0.35,
        measure=_merge_small,
    ),
    Figure(
        work="`merge` of 64 reports of 14k kernels, processor time of each",
        unit="s",
        at_most=0.10,
        aim=0.04,
        measure=_merge_many,
    ),
    Figure(
        work="`merge` of 64 parts, against `cat` of their bytes and start-up",
        unit="x",
        at_most=10,
        aim=3,
        measure=_merge_parts,
    ),
    Figure(work="a part, of its export's size", unit="%", at_most=25, aim=15, measure=_measure_part),
    Figure(
        work="peak memory of `merge` of 1,000 parts of 12k kernels",
        unit="MiB",
        at_most=500,
        aim=500,
        measure=_measure_peak_of_parts,
    ),
    Figure(work="fit of 4,096 clocks", unit="s", at_most=60, aim=10, measure=_fit_clocks),
    *(
        Figure(
            work=f"growth of `merge` from {small:,} to {large:,} kernels, beyond that of the scan",
            unit="%",
            at_most=15,
            aim=0,
            measure=partial(_compare_growth, small=(small, USUAL), large=(large, USUAL)),
        )
        for small, large in ((100_000, MILLION), (MILLION, 5 * MILLION))
    ),
    *(
        Figure(
            work=f"growth of `merge` of 300,000 kernels from 1 to {overlap:,} overlapping ranges",
            unit="%",
            at_most=15,
            aim=0,
            measure=partial(_compare_growth, small=(300_000, 1), large=(300_000, overlap)),
        )
        for overlap in (10, 100, 2_000)
    ),
]
