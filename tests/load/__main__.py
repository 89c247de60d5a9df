"""Merge hundreds of reports of which a tenth is broken, in all ways.

`python -m tests.load --count 512 --seed N`.

All ways must skip the broken reports, name each with its reason, and write the same bytes, as does a merge of
the others alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.cli.calls import run
from tests.executors.cluster import Cluster
from tests.load.ways import Merged, check_skipped, draw_run, merge_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each way; an assertion fails where a way differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--count", type=int, default=512, help="Number of reports. Default: 512.")
    parser.add_argument("--seed", type=int, default=1, help="Of the run and its damage. Default: 1.")
    chosen = parser.parse_args(arguments)
    broken = chosen.count // 10 + 1
    with tempfile.TemporaryDirectory(prefix="load-") as name:
        folder, outputs = Path(name, "run"), Path(name, "out")
        outputs.mkdir()
        words = draw_run(folder, count=chosen.count, broken=broken, seed=chosen.seed)
        print(f"{chosen.count} reports, {broken} of them broken")
        cluster_folder = Path(name, "cluster")
        cluster_folder.mkdir()
        cluster = Cluster(cluster_folder)
        try:
            ways = {
                "alone": ("--processes", "1"),
                "processes": ("--processes", "2"),
                "dask": ("--dask-scheduler", str(cluster.file)),
            }
            merged: dict[str, Merged] = {}
            for way, options in ways.items():
                merged[way] = merge_folder(folder, outputs / f"{way}.pftrace", *options)
                check_skipped(merged[way], words)
                print(f"{way:10} {merged[way].wall_s:7.1f} s, {len(merged[way].skipped)} skipped", flush=True)
        finally:
            cluster.close()
        for report in words:
            report.unlink()
        done = run("merge", folder, "-o", outputs / "whole.pftrace")
        assert done.code == 0, done
        expected = (outputs / "whole.pftrace").read_bytes()
        for way, one in merged.items():
            assert one.trace.read_bytes() == expected, way
        print(
            f"all traces have the same {len(expected):,} bytes as that of the {chosen.count - broken} others"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
