"""Kinds of data that are recorded or missing, and anomalies."""

from __future__ import annotations

import functools
import re
import subprocess

import pytest

from nsys_pp.model.contents import list_missing, list_recorded
from tests.cli.calls import PATIENCE_S


def _missing(
    counts: dict[str, int], nsys_version: str | None = None, *, has_graphs: bool = False
) -> dict[str, str]:
    missing = list_missing(counts, nsys_version=nsys_version, has_graphs=has_graphs)
    return dict(missing.select("kind", "option").rows())


def test_what_is_recorded_is_not_missing() -> None:
    counts = {"ranges": 5, "os_calls": 2, "mpi_messages": 3, "mpi_other": 4, "kernel": 0}
    assert list_recorded(counts).select("kind", "row_count").rows() == [
        *(("ranges", 5), ("mpi_calls", 7), ("os_calls", 2))
    ]
    assert not {"ranges", "mpi_calls", "os_calls"} & _missing(counts).keys()
    assert _missing(counts)["kernels"] == "--trace=cuda"


@pytest.mark.parametrize(
    ("kind", "counts", "version", "has_graphs", "option"),
    [
        # options are those of the report's nsys
        ("gpu_metrics", {}, "2022.4.2.1", False, "--gpu-metrics-device=all"),
        ("gpu_metrics", {}, "2023.4.4.54", False, "--gpu-metrics-device=all"),
        ("gpu_metrics", {}, "2024.5.1.1", False, "--gpu-metrics-devices=all"),
        ("gpu_metrics", {}, "2026.2.1.210", False, "--gpu-metrics-devices=all"),
        ("gpu_metrics", {}, None, False, "--gpu-metrics-devices=all"),
        # nodes are missed only where graphs ran as wholes
        ("graph_nodes", {"kernel": 3}, None, False, None),
        ("graph_nodes", {"graph": 3}, None, False, "--cuda-graph-trace=node"),
        ("graph_nodes", {}, None, True, "--cuda-graph-trace=node"),
        ("graph_nodes", {"kernel": 3, "kernel_in_graph": 3}, None, True, None),
        # calls of NCCL are missed only beside its kernels
        ("nccl_calls", {}, "2026.1.1", False, None),
        ("nccl_calls", {"communication": 2}, "2026.1.1", False, "--trace=nccl"),
        ("nccl_calls", {"communication": 2}, "2023.4.4.54", False, None),  # it had no such trace
        ("nccl_calls", {"communication": 2, "nccl_calls": 1}, "2026.1.1", False, None),
    ],
)
def test_what_is_missed_has_its_option(
    kind: str, counts: dict[str, int], version: str | None, has_graphs: bool, option: str | None
) -> None:
    missing = _missing(counts, version, has_graphs=has_graphs)
    assert missing[kind] == option if option else kind not in missing


def test_options_are_real(nsys: str) -> None:
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    version = re.search(r"\d{4}\.\d+[.\d]*", run([nsys, "--version"]).stdout)
    assert version is not None
    words = run([nsys, "profile", "--help"]).stdout
    for option in _missing({"communication": 1, "graph": 1}, version[0]).values():
        name, value = option.split("=")
        assert re.search(rf"{name}\b", words), option
        if name == "--trace" or value == "process-tree":
            assert f"'{value}'" in words, option
