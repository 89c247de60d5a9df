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
    ("version", "option"),
    [
        ("2022.4.2.1", "--gpu-metrics-device=all"),
        ("2023.4.4.54", "--gpu-metrics-device=all"),
        ("2024.5.1.1", "--gpu-metrics-devices=all"),
        ("2026.2.1.210", "--gpu-metrics-devices=all"),
        (None, "--gpu-metrics-devices=all"),
    ],
)
def test_options_are_those_of_the_reports_nsys(version: str | None, option: str) -> None:
    assert _missing({}, version)["gpu_metrics"] == option


def test_nodes_are_missed_only_where_graphs_ran_as_wholes() -> None:
    assert "graph_nodes" not in _missing({"kernel": 3})
    assert _missing({"graph": 3})["graph_nodes"] == "--cuda-graph-trace=node"
    assert _missing({}, has_graphs=True)["graph_nodes"] == "--cuda-graph-trace=node"
    assert "graph_nodes" not in _missing({"kernel": 3, "kernel_in_graph": 3}, has_graphs=True)


def test_calls_of_nccl_are_missed_only_beside_its_kernels() -> None:
    assert "nccl_calls" not in _missing({}, "2026.1.1")
    assert _missing({"communication": 2}, "2026.1.1")["nccl_calls"] == "--trace=nccl"
    assert "nccl_calls" not in _missing({"communication": 2}, "2023.4.4.54")  # it had no such trace
    assert "nccl_calls" not in _missing({"communication": 2, "nccl_calls": 1}, "2026.1.1")


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
