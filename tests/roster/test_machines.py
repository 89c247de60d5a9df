"""Which reports are of one machine, and its label."""

from __future__ import annotations

from typing import Any

import pytest

from nsys_pp.frames.roster import Identity
from nsys_pp.roster.machines import find_machines
from tests.roster.identities import NS, identity

A, B, C = "aaaaaaaa-1", "bbbbbbbb-2", "cccccccc-3"
BUS0, BUS1 = "0000:1b:00.0", "0000:3b:00.0"


def _told(*identities: Identity) -> dict[str, list[int]]:
    return {machine.label: list(machine.reports) for machine in find_machines(identities)}


def _sources(*identities: Identity) -> list[str]:
    return [machine.source for machine in find_machines(identities)]


def test_machines_come_in_natural_order() -> None:
    names = ("node10", "node2", "node2", "node1")
    reports = [identity(f"{n}.sqlite", hostname=name, pids=[n]) for n, name in enumerate(names)]
    assert _told(*reports) == {"node1": [3], "node2": [1, 2], "node10": [0]}
    assert list(_told(*reports)) == ["node1", "node2", "node10"]
    assert _sources(*reports) == ["hostname"] * 3


def test_without_a_hostname_there_are_other_names() -> None:
    reports = [
        identity("x/a.sqlite", hostname=None, hardware_id="E0F2"),
        identity("machine10/b.sqlite", hostname=None),
        identity("machine2/b.sqlite", hostname=None),
        identity("machine2/c.sqlite", hostname=None, pids=[101]),
        identity("x/d.sqlite", hostname=None),
    ]
    assert _told(*reports) == {"d": [4], "E0F2": [0], "machine2": [2, 3], "machine10": [1]}
    assert sorted(_sources(*reports)) == ["file name", "folder", "folder", "hardware id"]


@pytest.mark.parametrize(
    ("one", "other", "labels", "source"),
    [
        ({"hardware_id": "abc"}, {"hardware_id": "abd"}, ["worker (abc)", "worker (abd)"], "hardware id"),
        # what is at one place of the bus is one GPU
        (
            {"gpus": [(A, BUS0)]},
            {"gpus": [(B, BUS0)]},
            ["worker (aaaaaaaa)", "worker (bbbbbbbb)"],
            "GPU uuids",
        ),
        # places are unknown: only the uuids of both
        (
            {"gpus": [(A, None)]},
            {"gpus": [(B, None)]},
            ["worker (aaaaaaaa)", "worker (bbbbbbbb)"],
            "GPU uuids",
        ),
        # one process id at one time
        ({"pids": [7]}, {"pids": [7]}, ["worker (1)", "worker (2)"], "process ids"),
    ],
)
def test_one_name_can_be_two_machines(
    one: dict[str, Any], other: dict[str, Any], labels: list[str], source: str
) -> None:
    reports = [identity("a.sqlite", **{"pids": [1], **one}), identity("b.sqlite", **{"pids": [2], **other})]
    assert _told(*reports) == {labels[0]: [0], labels[1]: [1]}
    assert _sources(*reports) == [source, source]


def test_folders_find_machines_of_one_name_apart() -> None:
    reports = [identity(f"machine{n}/rank{n}.sqlite", pids=[n]) for n in (10, 2, 0)]
    assert list(_told(*reports)) == ["worker (machine0)", "worker (machine2)", "worker (machine10)"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({"hardware_id": "abc"}, {}),
        ({"gpus": [(A, BUS0), (B, BUS1)]}, {"gpus": [(B, BUS1)]}),
        # each sees its own GPU, at another place: a job's ranks under cgroups
        ({"gpus": [(A, BUS0)]}, {"gpus": [(B, BUS1)]}),
        ({"gpus": [(A, BUS0)]}, {}),
        # two parts of one GPU
        (
            {"gpus": [(A, BUS0)], "launcher": {"CUDA_VISIBLE_DEVICES": f"MIG-{A}"}},
            {"gpus": [(B, BUS0)], "launcher": {"CUDA_VISIBLE_DEVICES": f"MIG-{B}"}},
        ),
    ],
)
def test_one_name_is_one_machine_unless_something_speaks_against_it(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    reports = [identity("a.sqlite", pids=[1], **one), identity("b.sqlite", pids=[2], **other)]
    assert _told(*reports) == {"worker": [0, 1]}


def test_containers_of_one_machine_meet_by_their_gpus() -> None:
    shared = [(A, BUS0), (B, BUS1)]
    reports = [
        identity("machine0/a.sqlite", hostname="pod-b", gpus=shared, pids=[7]),
        identity("machine1/b.sqlite", hostname="pod-a", gpus=shared, pids=[7]),
        identity("c.sqlite", hostname="pod-b", gpus=[(C, BUS0)], pids=[8]),
    ]
    assert _told(*reports) == {"pod-a": [0, 1], "pod-b": [2]}
    by_id = [identity(f"{name}.sqlite", hostname=name, hardware_id="x") for name in "ab"]
    assert _told(*by_id) == {"a": [0, 1]}


def test_hardware_ids_are_believed_more_than_gpus() -> None:
    reports = [identity(f"{name}.sqlite", hardware_id=name, gpus=[(A, BUS0)]) for name in ("x1", "x2")]
    assert len(_told(*reports)) == 2


def test_captures_of_one_process_are_of_one_machine() -> None:
    reports = [identity(f"r.{n}.sqlite", start_ns=n * NS) for n in range(3)]
    assert _told(*reports) == {"worker": [0, 1, 2]}


def test_what_fits_two_machines_joins_neither() -> None:
    known = [
        identity("a.sqlite", gpus=[(A, BUS0)], pids=[1]),
        identity("b.sqlite", gpus=[(B, BUS0)], pids=[2]),
    ]
    unknown = [identity("c.sqlite", pids=[3]), identity("d.sqlite", pids=[4])]
    told = _told(*known, *unknown)
    assert told == {"worker (3)": [2, 3], "worker (aaaaaaaa)": [0], "worker (bbbbbbbb)": [1]}
    assert _told(known[0], *unknown) == {"worker": [0, 1, 2]}


def test_ids_that_begin_alike_are_numbered() -> None:
    reports = [identity(f"{n}.sqlite", hardware_id=f"same-beginning-{n}", pids=[n]) for n in (1, 2)]
    assert list(_told(*reports)) == ["worker (1)", "worker (2)"]


def test_many_reports_of_one_name_are_told_in_time() -> None:
    reports = [identity(f"{n}.sqlite", pids=[100 + n % 8]) for n in range(400)]
    assert len(_told(*reports)) == 400
