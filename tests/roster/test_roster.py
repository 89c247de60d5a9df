"""Machines, GPUs and ranks of all reports: which reports are of one machine, and its label."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.recording.export import Session, write_report
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.raw import ALL_GROUPS, Group
from nsys_pp.frames.report import DEVICES, GPUS, PROCESSES, RANKS
from nsys_pp.frames.report import Session as OurSession
from nsys_pp.frames.roster import COORDINATES, ROSTER, Identity, capture_window
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.roster.identity import MAX_GAP_NS, find_repeated, identify, split_runs
from nsys_pp.roster.machines import find_machines
from nsys_pp.roster.ranks import (
    AXES,
    Layout,
    count_ranks,
    guess_ranks,
    locate_ranks,
    parse_layout,
    read_ranks,
)
from nsys_pp.roster.roster import build_roster, find_inconsistencies, find_strangers
from tests.read.test_arrow import write_folder

NS = 1_000_000_000


_fingerprints = count(1)


Gpu = tuple[str | None, str | None]  # uuid, place on the bus


def process(pid: int) -> int:
    return (1 << 48) | (pid << 24)


def identity(
    path: str,
    *,
    hostname: str | None = "worker",
    hardware_id: str | None = None,
    pids: Sequence[int] = (100,),
    devices: Sequence[tuple[int, int, str | None, str | None]] | None = None,
    is_recorded: bool = True,
    gpus: Sequence[Gpu] = (),
    ranks: Sequence[tuple[int | None, int | None, int, str, int | None]] = (),
    coordinates: Sequence[tuple[int, int | None, int | None, int | None]] = (),
    launcher: Mapping[str, str] | None = None,
    start_ns: int | None = 0,
    duration_ns: int | None = NS,
    fingerprint: int | None = None,
) -> Identity:
    """Make an identity.

    Args:
        path: The report's.
        hostname: As recorded.
        hardware_id: As recorded.
        pids: Processes; without `devices`, each has device 0.
        devices: pid, ordinal, uuid and place on the bus of each device.
        is_recorded: Whether uuids and places of devices are more than guessed by ordinals.
        gpus: uuid and place of each GPU that the report lists.
        ranks: pid, ordinal, rank, source and world size.
        coordinates: pid, stage, tensor part, replica.
        launcher: Variables.
        start_ns: UTC of the start.
        duration_ns: Of the capture.
        fingerprint: One of its own if None.
    """
    if devices is None:
        devices = [(pid, 0, None, None) for pid in pids]
    session = OurSession(
        nsys_version=None,
        schema_version=None,
        hostname=hostname,
        hardware_id=hardware_id,
        machine="",
        machine_source="",
        utc_epoch_ns=start_ns,
        system_clock_ns=None,
        time_shift_ns=0,
        capture_end_ns=duration_ns,
        graph_mode=None,
        launcher=dict(launcher or {}),
        rank=None,
        rank_source=None,
    )
    return Identity(
        path=Path(path),
        session=session,
        processes=pl.DataFrame(
            [(process(pid), pid, "python") for pid in pids], schema=PROCESSES, orient="row"
        ),
        gpus=pl.DataFrame([(*gpu, "H100") for gpu in gpus], schema=GPUS, orient="row"),
        devices=pl.DataFrame(
            [
                (process(pid), ordinal, f"GPU {ordinal}", "H100", uuid, bus, is_recorded)
                for pid, ordinal, uuid, bus in devices
            ],
            schema=DEVICES,
            orient="row",
        ),
        ranks=pl.DataFrame(
            [(None if pid is None else process(pid), *rest) for pid, *rest in ranks],
            schema=RANKS,
            orient="row",
        ),
        coordinates=pl.DataFrame(
            [(process(pid), *rest) for pid, *rest in coordinates], schema=COORDINATES, orient="row"
        ),
        fingerprint=next(_fingerprints) if fingerprint is None else fingerprint,
    )


BOOT_A, BOOT_B, BOOT_C = "aaaaaaaa-1", "bbbbbbbb-2", "cccccccc-3"


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
            {"gpus": [(BOOT_A, BUS0)]},
            {"gpus": [(BOOT_B, BUS0)]},
            ["worker (aaaaaaaa)", "worker (bbbbbbbb)"],
            "GPU uuids",
        ),
        # places are unknown: only the uuids of both
        (
            {"gpus": [(BOOT_A, None)]},
            {"gpus": [(BOOT_B, None)]},
            ["worker (aaaaaaaa)", "worker (bbbbbbbb)"],
            "GPU uuids",
        ),
        # hardware ids are believed more than GPUs; those that begin alike are numbered
        (
            {"hardware_id": "x1", "gpus": [(BOOT_A, BUS0)]},
            {"hardware_id": "x2", "gpus": [(BOOT_A, BUS0)]},
            ["worker (x1)", "worker (x2)"],
            "hardware id",
        ),
        (
            {"hardware_id": "same-beginning-1"},
            {"hardware_id": "same-beginning-2"},
            ["worker (1)", "worker (2)"],
            "hardware id",
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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({"hardware_id": "abc"}, {}),
        ({"gpus": [(BOOT_A, BUS0), (BOOT_B, BUS1)]}, {"gpus": [(BOOT_B, BUS1)]}),
        # each sees its own GPU, at another place: a job's ranks under cgroups
        ({"gpus": [(BOOT_A, BUS0)]}, {"gpus": [(BOOT_B, BUS1)]}),
        ({"gpus": [(BOOT_A, BUS0)]}, {}),
        # two parts of one GPU
        (
            {"gpus": [(BOOT_A, BUS0)], "launcher": {"CUDA_VISIBLE_DEVICES": f"MIG-{BOOT_A}"}},
            {"gpus": [(BOOT_B, BUS0)], "launcher": {"CUDA_VISIBLE_DEVICES": f"MIG-{BOOT_B}"}},
        ),
    ],
)
def test_one_name_is_one_machine_unless_something_speaks_against_it(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    reports = [identity("a.sqlite", pids=[1], **one), identity("b.sqlite", pids=[2], **other)]
    assert _told(*reports) == {"worker": [0, 1]}


def test_containers_of_one_machine_meet_by_their_gpus() -> None:
    shared = [(BOOT_A, BUS0), (BOOT_B, BUS1)]
    reports = [
        identity("machine0/a.sqlite", hostname="pod-b", gpus=shared, pids=[7]),
        identity("machine1/b.sqlite", hostname="pod-a", gpus=shared, pids=[7]),
        identity("c.sqlite", hostname="pod-b", gpus=[(BOOT_C, BUS0)], pids=[8]),
    ]
    assert _told(*reports) == {"pod-a": [0, 1], "pod-b": [2]}
    by_id = [identity(f"{name}.sqlite", hostname=name, hardware_id="x") for name in "ab"]
    assert _told(*by_id) == {"a": [0, 1]}


def test_what_fits_two_machines_joins_neither() -> None:
    known = [
        identity("a.sqlite", gpus=[(BOOT_A, BUS0)], pids=[1]),
        identity("b.sqlite", gpus=[(BOOT_B, BUS0)], pids=[2]),
    ]
    unknown = [identity("c.sqlite", pids=[3]), identity("d.sqlite", pids=[4])]
    told = _told(*known, *unknown)
    assert told == {"worker (3)": [2, 3], "worker (aaaaaaaa)": [0], "worker (bbbbbbbb)": [1]}
    assert _told(known[0], *unknown) == {"worker": [0, 1, 2]}


def test_many_reports_of_one_name_are_told_in_time() -> None:
    reports = [identity(f"{n}.sqlite", pids=[100 + n % 8]) for n in range(400)]
    assert len(_told(*reports)) == 400


PIPELINE = Path(__file__).parent.parent.parent / "fixtures" / "pipeline"


NOTHING: frozenset[Group] = frozenset()


def _identify(path: Path, need: frozenset[Group] = NOTHING) -> Identity:
    return identify(build_report(read_report(path, need=need)))


def _report(path: Path, shift_ns: int = 0, pid: int = 1000, **session: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_report(
        path,
        ranges=[{"start": 10 + shift_ns, "end": 20 + shift_ns, "name": "step", "pid": pid}],
        api_calls=[{"start": 11 + shift_ns, "end": 12 + shift_ns, "pid": pid}],
        kernels=[{"start": 30 + shift_ns, "end": 40 + shift_ns, "correlation": 1, "pid": pid}],
        session=Session(time_shift_ns=shift_ns, pid=pid, **{"duration_ns": 500, **session}),
    )


def test_one_recording_has_one_fingerprint(tmp_path: Path) -> None:
    report = _report(tmp_path / "a.sqlite")
    copy = tmp_path / "machine3" / "rank7.sqlite"
    copy.parent.mkdir()
    shutil.copy(report, copy)
    utc = _report(tmp_path / "utc.sqlite", shift_ns=1_790_000_000_000_000_000)
    prints = {
        _identify(path, need).fingerprint
        for path in (report, copy, utc, write_folder(report, tmp_path / "a_pqtdir", "parquet"))
        for need in (NOTHING, ALL_GROUPS)
    }
    assert len(prints) == 1
    assert 0 <= prints.pop() < 1 << 64


_VARIANTS: list[dict[str, Any]] = [
    {},
    {"hostname": "node2"},
    {"utc_epoch_ns": 1_790_000_000_000_000_001},
    {"duration_ns": 501},
    {"pid": 1001},
    {"environment": {"RANK": "0"}},
    {"environment": {"RANK": "1"}},
]


def test_two_recordings_have_two(tmp_path: Path) -> None:
    reports = [_report(tmp_path / f"{n}.sqlite", **changes) for n, changes in enumerate(_VARIANTS)]
    assert len({_identify(path).fingerprint for path in reports}) == len(reports)
    ranks = sorted(PIPELINE.rglob("*.sqlite"))
    assert len({_identify(path).fingerprint for path in ranks}) == len(ranks) == 4


def test_real_recordings_are_different(shared_reports: list[Path]) -> None:
    identities = [_identify(path) for path in shared_reports]
    assert find_repeated(identities) == {}
    assert find_repeated([*identities, identities[3]]) == {len(identities): 3}


def test_what_is_known_without_reading_events(tmp_path: Path) -> None:
    report = _report(tmp_path / "rank3.sqlite", environment={"RANK": "3", "WORLD_SIZE": "8"})
    little, much = _identify(report), _identify(report, ALL_GROUPS)
    for name in ("devices", "ranks", "gpus"):
        assert getattr(little, name).equals(getattr(much, name)), name
    assert little.ranks.select("rank", "rank_source", "world_size").rows() == [(3, "RANK", 8)]
    assert len(little.devices) == len(little.gpus) == 1


def test_places_that_a_program_names(tmp_path: Path) -> None:
    def name(text: str, pid: int) -> dict[str, Any]:
        return {"start": 1, "end": 2, "name": text, "pid": pid}

    report = write_report(
        tmp_path / "a.sqlite",
        ranges=[
            name("rank=3; pp=1/4 dp=0 tp=1", 1),
            name("pp=1", 2),  # may be anything
            name("pp_rank: 2, tp_rank: 0", 3),
            name("pp=0 tp=0", 4),
            name("pp=0 tp=1", 4),  # not what it said before
            name("pp=4/4 tp=1", 5),  # counted from 1, or what?
            name("app=3 tp=1", 6),
        ],
        marks=[{"time": 5, "name": "PP=7 DP=2", "pid": 7}],
    )
    places = _identify(report, ALL_GROUPS).coordinates
    assert places.select("stage", "tensor", "replica").rows() == [(1, 1, 0), (2, 0, None), (7, None, 2)]
    assert _identify(report).coordinates.is_empty()


@pytest.mark.parametrize("shift_ns", [0, 1_790_000_000_000_000_000])
def test_windows_do_not_depend_on_the_exports_shift(tmp_path: Path, shift_ns: int) -> None:
    session: OurSession = _identify(
        _report(tmp_path / "a.sqlite", shift_ns=shift_ns, utc_epoch_ns=70)
    ).session
    assert capture_window(session) == (70, 570)


A, B, C, D = (f"{letter * 8}-1111-2222-3333-444444444444" for letter in "abcd")


BUS = [f"0000:{place}:00.0" for place in ("1b", "3b", "5b", "7b")]


def _column(column: str, *identities: Identity, **options: object) -> list[object]:
    return build_roster(identities, **options)[column].to_list()  # type: ignore[arg-type]


def _told_ranks(*identities: Identity, rank_from: str | None = None) -> list[tuple[Any, ...]]:
    return build_roster(identities, rank_from=rank_from).select("rank", "rank_source").rows()


def _files(*names: str) -> list[Identity]:
    return [identity(f"{name}.sqlite", pids=[pid]) for pid, name in enumerate(names)]


def _ranked(path: str, pid: int, rank: int, source: str = "RANK", world: int | None = None) -> Identity:
    return identity(path, pids=[pid], ranks=[(pid, None, rank, source, world)])


def test_a_row_per_process_and_device() -> None:
    roster = build_roster(
        [
            identity("b.sqlite", hostname="node2", devices=[(8, 1, None, None), (8, 0, None, None)]),
            identity("a.sqlite", hostname="node10", devices=[]),
        ]
    )
    assert roster.schema == ROSTER
    assert roster.select("report", "machine", "machine_order", "pid", "device_id", "gpu").rows() == [
        (0, "node2", 0, 8, 0, "GPU 0"),
        (0, "node2", 0, 8, 1, "GPU 1"),
        (1, "node10", 1, None, None, None),
    ]


def test_gpus_are_numbered_along_the_bus_of_the_whole_machine() -> None:
    # each report lists only what it was allowed to see, and calls it device 0
    reports = [
        identity(f"{pid}.sqlite", gpus=[(uuid, bus.upper())], devices=[(pid, 0, uuid, bus)])
        for pid, uuid, bus in ((1, C, BUS[2]), (2, A, BUS[0]), (3, C, BUS[2]))
    ]
    reports.append(identity("4.sqlite", pids=[4], devices=[(4, 0, D, None)], gpus=[(B, BUS[1]), (D, BUS[3])]))
    roster = build_roster(reports)
    assert roster.select("machine", "gpu", "gpu_number").rows() == [
        ("worker", f"GPU {number}", number) for number in (2, 0, 2, 3)
    ]
    assert roster["bus_location"][3] == BUS[3]  # as the list says


def test_parts_of_a_gpu_are_rows_of_their_own() -> None:
    listed = [(A, BUS[0]), (B, BUS[1])]
    parts = [(f"{n}{C[1:]}", n) for n in (2, 1)]
    reports = [
        identity(f"{n}.sqlite", gpus=listed, devices=[(n, 0, uuid, BUS[1])], pids=[n]) for uuid, n in parts
    ]
    reports.append(identity("3.sqlite", gpus=listed, devices=[(3, 0, A, BUS[0])], pids=[3]))
    expected = [("GPU 1 MIG 1", 1), ("GPU 1 MIG 0", 1), ("GPU 0", 0)]
    assert build_roster(reports).select("gpu", "gpu_number").rows() == expected
    # nothing is known of the GPU that it is a part of
    lone = identity(
        "m.sqlite", devices=[(9, 0, C, None)], launcher={"CUDA_VISIBLE_DEVICES": f"MIG-{C.upper()}"}
    )
    assert build_roster([lone]).select("gpu", "gpu_number").row(0) == ("MIG cccccccc", 0)


@pytest.mark.parametrize(
    ("launchers", "expected"),
    [
        ([{"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA_VISIBLE_DEVICES": "1"}], [3, 1]),
        ([{"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA_VISIBLE_DEVICES": "3"}], [3, 3]),
        ([{"LOCAL_RANK": "1"}, {"LOCAL_RANK": "0"}], [1, 0]),
        ([{"SLURM_LOCALID": "2"}, {"SLURM_LOCALID": "5"}], [2, 5]),
        # nothing tells, or not enough: two GPUs, never one
        ([{"LOCAL_RANK": "1"}, {}], [0, 1]),
        ([{"LOCAL_RANK": "1"}, {"LOCAL_RANK": "1"}], [0, 1]),
        ([{}, {}], [0, 1]),
        ([{"CUDA_VISIBLE_DEVICES": "1"}, {}], [1, 0]),
    ],
)
def test_device_0_of_two_reports_without_a_list_of_gpus(
    launchers: Sequence[dict[str, str]], expected: list[int]
) -> None:
    reports = [identity(f"{n}.sqlite", pids=[n], launcher=told) for n, told in enumerate(launchers)]
    assert _column("gpu_number", *reports) == expected
    assert _column("gpu", *reports) == [f"GPU {number}" for number in expected]


def test_ordinals_that_nobody_else_claims_are_kept() -> None:
    reports = [identity(f"{n}.sqlite", devices=[(n, n, None, None)]) for n in (3, 1)]
    assert _column("gpu", *reports) == ["GPU 3", "GPU 1"]
    shared = identity("s.sqlite", devices=[(7, 0, None, None), (8, 0, None, None), (8, 1, None, None)])
    assert _column("gpu", shared) == ["GPU 0", "GPU 0", "GPU 1"]


def test_captures_of_one_process_are_on_one_gpu_of_one_machine() -> None:
    roster = build_roster([identity(f"r.{n}.sqlite", start_ns=n * NS) for n in range(3)])
    # no ranks: the numbers count captures
    assert roster.select("machine", "gpu", "rank").rows() == [("worker", "GPU 0", None)] * 3


def test_gpus_that_nothing_is_known_of_are_numbered_by_rank() -> None:
    reports = [_ranked(f"{name}.sqlite", pid, rank) for name, pid, rank in (("a", 1, 5), ("b", 2, 4))]
    assert _column("gpu", *reports) == ["GPU 1", "GPU 0"]


def test_a_rank_is_of_a_process_or_of_its_device() -> None:
    two = identity(
        "two.sqlite",
        devices=[(1, 0, None, None), (1, 1, None, None), (2, 0, None, None), (3, 4, None, None)],
        ranks=[(1, 0, 6, "XLA", None), (1, 1, 7, "XLA", None), (2, None, 8, "MPI", 9), (3, 0, 2, "NCCL", 9)],
    )
    assert _told_ranks(two) == [(6, "XLA"), (7, "XLA"), (8, "MPI"), (2, "NCCL")]


def test_groups_of_nccl_are_not_taken_for_all() -> None:
    # tensor-parallel pairs: each has a rank 0
    pairs = [
        identity(
            f"{n}.sqlite",
            pids=[n],
            ranks=[(n, 0, n % 2, "NCCL", 2)],
            launcher={"RANK": str(n)} if n < 3 else {},
        )
        for n in range(4)
    ]
    assert _told_ranks(*pairs) == [(0, "RANK"), (1, "RANK"), (2, "RANK"), (None, None)]
    assert _told_ranks(pairs[0], _ranked("all.sqlite", 9, 3, "NCCL", 8)) == [(0, "RANK"), (3, "NCCL")]


@pytest.mark.parametrize(
    ("identities", "rank_from", "ranks", "source"),
    [
        (_files("rank1", "rank0"), None, [1, 0], "file name"),
        (_files("b10", "b9"), None, [1, 0], "file order"),
        (_files("b10", "b9"), r"b(\d+)", [10, 9], "--rank-from"),
        (_files("rank3", "rank4"), r"k(\d)", [3, 4], "--rank-from"),
        (_files("b"), None, [None], None),
        # files are not counted where that means nothing: hours apart, or of several processes
        ([identity(f"{n}.sqlite", pids=[n], start_ns=n * 3600 * NS) for n in (1, 2)], None, [None] * 2, None),
        ([identity("a.sqlite", pids=[1, 2]), identity("b.sqlite", pids=[3])], None, [None] * 3, None),
        ([identity("rank3.sqlite", pids=[1, 2])], None, [None] * 2, None),
    ],
)
def test_names_of_files_come_last(
    identities: list[Identity], rank_from: str | None, ranks: list[int | None], source: str | None
) -> None:
    assert _told_ranks(*identities, rank_from=rank_from) == [(rank, source) for rank in ranks]


def test_what_a_report_says_is_better_than_its_name() -> None:
    known = _ranked("rank7.sqlite", 50, 1, "MPI")
    assert _column("rank", known, *_files("rank0"), rank_from=r"rank(\d)") == [1, 0]
    assert _column("rank", known, *_files("rank1")) == [1, None]


def test_stages() -> None:
    reports = [_ranked(f"{rank}.sqlite", rank + 1, rank) for rank in range(4)]
    reports.append(identity("x.sqlite", hostname="x", pids=[77, 78]))
    roster = build_roster(reports, layout=parse_layout("pp=2,dp=2,order=pp-dp"))
    assert roster.select("stage", "tensor", "replica").rows() == [
        *((0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1), (None, None, None), (None, None, None))
    ]
    assert roster["stage_source"].to_list() == ["--layout"] * 4 + [None, None]
    files = [identity(f"b{number}.sqlite", pids=[number]) for number in (1, 2, 4)]
    assert build_roster(files, layout=parse_layout("pp=3"))["stage"].to_list() == [0, 1, 2]
    assert build_roster(files, layout=parse_layout("pp=4"))["stage"].to_list() == [None] * 3
    with pytest.raises(NsysPPError, match=r"the layout has 2 ranks, but rank 2 is in `2.sqlite`"):
        build_roster(reports, layout=parse_layout("pp=2"))


def test_stages_that_programs_tell() -> None:
    roster = build_roster([identity("a.sqlite", pids=[1, 2], coordinates=[(1, 3, 0, None)])])
    assert roster.select("pid", "stage", "tensor", "replica", "stage_source").rows() == [
        (1, 3, 0, None, "NVTX"),
        (2, None, None, None, None),
    ]
    assert build_roster([_ranked("b.sqlite", 1, 1)], layout=parse_layout("pp=2"))["stage"].item() == 1


_reports = st.lists(
    st.builds(
        lambda number, host, folder, bus, pid, local, rank: identity(
            f"{folder}/{number}.sqlite",
            hostname=host,
            pids=[pid],
            gpus=[] if bus is None else [(f"{host}-{bus}", BUS[bus])],
            devices=[(pid, 0, None if bus is None else f"{host}-{bus}", None)],
            launcher={} if local is None else {"LOCAL_RANK": str(local)},
            ranks=[] if rank is None else [(pid, None, rank, "RANK", None)],
        ),
        st.integers(0, 10**6),
        st.sampled_from(["h1", "h2", None]),
        st.sampled_from(["x", "machine1", "machine2"]),
        st.sampled_from([None, 0, 1, 2]),
        st.integers(1, 4),
        st.sampled_from([None, 0, 1]),
        st.sampled_from([None, 0, 1, 2]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda one: str(one.path),
)


@settings(max_examples=30, deadline=None)
@given(_reports, st.randoms(use_true_random=False))
def test_the_order_of_reports_does_not_matter(reports: list[Identity], random: object) -> None:
    shuffled = list(range(len(reports)))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    expected = build_roster(reports)
    told = build_roster([reports[place] for place in shuffled])
    back = dict(enumerate(shuffled))
    told = told.with_columns(report=told["report"].replace_strict(back, return_dtype=told["report"].dtype))
    assert told.sort("report", "process_key", "device_id").rows() == expected.rows()
    # one label is one machine, and on it one label is one GPU
    assert expected["machine"].n_unique() == expected.select("machine", "machine_order").n_unique()
    labels = expected.drop_nulls("uuid").group_by("machine", "gpu").agg(pl.col("uuid").n_unique())
    assert set(labels["uuid"]) <= {1}


def _inconsistencies(*identities: Identity, layout: str | None = None) -> list[str]:
    how = parse_layout(layout) if layout else None
    return find_inconsistencies(identities, build_roster(identities, layout=how), layout=how)


def _rank(rank: int, world: int | None = None, pid: int | None = None, **more: object) -> Identity:
    pid = rank + 1 if pid is None else pid
    return identity(
        f"r{rank}-{pid}.sqlite",
        pids=[pid],
        ranks=[(pid, None, rank, "RANK", world)],
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("identities", "layout", "expected"),
    [
        ([_rank(rank, 3) for rank in range(3)], None, []),
        ([_rank(rank, 3) for rank in range(3)], "pp=3", []),
        ([_rank(5, 16)], None, []),  # one report is no run
        ([_rank(0, 4), _rank(2, 4)], None, ["of 4 ranks, ranks 1, 3 have no report"]),
        ([_rank(0), _rank(2)], "pp=3", ["of 3 ranks, rank 1 has no report"]),
        (
            [_rank(0, 20), _rank(1, 20)],
            None,
            ["of 20 ranks, ranks 2, 3, 4, 5, 6, 7, 8, 9 and 10 more have no report"],
        ),
        ([_rank(0), _rank(2)], None, []),
        # counted files leave out none, and are not counted where some are missing
        (_files("a", "b"), "pp=2", []),
        (
            _files("a", "b"),
            "pp=4",
            [
                "`--layout` cannot place 2 GPU processes of `a.sqlite` and `b.sqlite`: their ranks are unknown, and"
                " their order says nothing, as they are 2 of 4 ranks; specify `--rank-from`"
            ],
        ),
        (
            [identity(f"machine{n}/{n}.sqlite", pids=[n]) for n in range(5)],
            None,
            [
                "5 machines share the hostname `worker`, distinguished by folder:"
                " `machine0/0.sqlite`, `machine1/1.sqlite`, `machine2/2.sqlite` and 2 more"
            ],
        ),
    ],
)
def test_what_is_missing_or_unclear_is_told(
    identities: list[Identity], layout: str | None, expected: list[str]
) -> None:
    assert _inconsistencies(*identities, layout=layout) == expected


@pytest.mark.parametrize(("gap_ns", "expected"), [(0, 1), (MAX_GAP_NS, 1), (MAX_GAP_NS + 1, 2)])
def test_runs_are_an_hour_apart(gap_ns: int, expected: int) -> None:
    sessions = [_rank(0).session, _rank(1, start_ns=NS + gap_ns).session, _rank(2, start_ns=None).session]
    assert len(split_runs(sessions)) == expected
    # a long capture holds together what lies in it
    around = identity("long.sqlite", start_ns=-NS, duration_ns=10 * NS + gap_ns).session
    assert split_runs([*sessions, around]) == [[3, 0, 1]]
    assert split_runs([]) == []


def _strangers(*identities: Identity, **options: Any) -> dict[int, str]:
    found = find_strangers(identities, build_roster(identities), **options)
    return {report: error.message for report, error in found.items()}


def test_reports_of_different_runs() -> None:
    old, new = [_rank(n, start_ns=7200 * NS * (n > 2)) for n in range(3)], _rank(3, start_ns=7300 * NS)
    doubt = "`r0-1.sqlite` ended 2 hours before `r3-4.sqlite` began: not of one run"
    assert _strangers(*old, new) == {3: doubt}
    assert _inconsistencies(*old, new) == [doubt]
    latest = _rank(4, start_ns=400_000 * NS)
    assert _strangers(*old, new, latest)[4].startswith("`r0-1.sqlite` ended 4 days before `r4-5.sqlite`")
    assert _inconsistencies(*old, new, latest) == [f"{doubt} (and 1 more reports)"]
    # the largest group is the run; UTC may be unknown, or known to be wrong
    assert [*_strangers(new, *old)] == [0]
    assert _strangers(*old, _rank(3, start_ns=None)) == {}
    elsewhere = _rank(3, start_ns=7300 * NS, hostname="late")
    assert _strangers(*old, elsewhere, offsets_ns={"late": -7300 * NS}) == {}


def test_a_rank_that_two_claim() -> None:
    twice = [_rank(3, pid=7), _rank(3, pid=8)]
    assert _strangers(*twice) == {
        1: "`r3-7.sqlite` and `r3-8.sqlite` are both rank 3 at one time: not of one run"
    }
    # captures of one process are one rank; where a run began again, a rank has new processes
    again = [
        identity(f"r.{n}.sqlite", ranks=[(100, None, 3, "RANK", None)], start_ns=n * NS) for n in range(3)
    ]
    assert _inconsistencies(*again) == []
    restarted = [_rank(rank, pid=rank + pid, start_ns=5 * pid * NS) for rank in (3, 4) for pid in (10, 70)]
    assert _strangers(*restarted) == {}
    assert _inconsistencies(*restarted) == [
        "rank 3 (and 1 more) ran in several processes: `r3-13.sqlite` and `r3-73.sqlite`"
    ]
    unknown = [_rank(3, pid=7), _rank(3, pid=8, start_ns=None)]
    assert _inconsistencies(*unknown) == ["rank 3 ran in several processes: `r3-7.sqlite` and `r3-8.sqlite`"]


def test_two_runs_at_one_time_are_divided() -> None:
    """The second run began half a second later, and its rank 2 is the only one."""
    first = [_rank(rank, pid=10 + rank) for rank in (0, 1)]
    second = [_rank(rank, pid=20 + rank, start_ns=NS // 2) for rank in (0, 1, 2)]
    assert [*_strangers(*first, *second)] == [0, 1]
    assert [*_strangers(*second, *first)] == [3, 4]
    assert _strangers(*first, _rank(3, pid=13), _rank(4, pid=14), *second)[6] == (
        "`r0-10.sqlite` and `r0-20.sqlite` are both rank 0 at one time, and `r2-22.sqlite` began with the second:"
        " not of one run"
    )


def test_machines_of_one_name_are_told() -> None:
    reports = [identity(f"machine{n}/{n}.sqlite", pids=[n]) for n in (10, 2, 0)]
    assert list(_told(*reports)) == ["worker (machine0)", "worker (machine2)", "worker (machine10)"]


def _paths(*names: str) -> dict[int, Path]:
    return {place: Path(f"{name}.sqlite") for place, name in enumerate(names)}


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["rank3", "rank12"], [3, 12]),
        (["run_rank_3", "run_rank_4"], [3, 4]),
        (["profile_77_node_1_rank_9_on_x", "profile_77_node_1_rank_8_on_y"], [9, 8]),
        (["imagenet.p4.r1.mpi0", "imagenet.p4.r1.mpi1"], [0, 1]),
        (["x.r3.prof", "x.r4.prof"], [3, 4]),
        (["node7.0.3", "node8.1.4"], [3, 4]),
        (["report_0", "report_1"], [0, 1]),
        (["rank5"], [5]),
        # no word for it, not one pattern, twice, a date, the number of ranks, a word that ends alike
        (["report_5"], []),
        (["rank0", "other"], []),
        (["a/rank0", "b/rank0"], []),
        (["r_20240101", "r_20240102"], []),
        (["x-ranks8-a", "x-ranks8-b"], []),
        (["crank3", "crank4"], []),
        (["report1", "report2"], []),
    ],
)
def test_usual_names(names: list[str], ranks: list[int]) -> None:
    assert [*guess_ranks(_paths(*names), []).values()] == ranks


def test_a_guess_takes_no_rank_that_is_taken() -> None:
    assert guess_ranks(_paths("rank0", "rank1"), [1]) == {}
    assert guess_ranks({}, []) == {}


def test_the_users_pattern() -> None:
    assert read_ranks(_paths("node3-a", "node10-b", "x"), r"node(\d+)") == {0: 3, 1: 10}
    assert read_ranks({}, r"(\d)") == {}


@pytest.mark.parametrize(
    ("name", "pattern", "error", "words"),
    [
        ("rank3", "rank(", ValueError, "invalid regular expression"),
        ("rank3", r"rank\d", ValueError, "has no group"),
        ("rank3", r"nope(\d)", NsysPPError, "matches none of the 1 file names, as `rank3.sqlite`"),
        ("rank3", r"(ran)k", NsysPPError, "matches `ran`"),
        (
            "job48151623",
            r"job(\d+)",
            NsysPPError,
            "matches 48151623 .* too large for a rank; expected 0 to 1,048,575",
        ),
    ],
)
def test_a_pattern_that_finds_no_ranks_is_explained(
    name: str, pattern: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        read_ranks(_paths(name), pattern)


@given(st.fixed_dictionaries({axis: st.integers(1, 4) for axis in AXES}), st.permutations(AXES))
def test_every_place_is_one_ranks(sizes: dict[str, int], order: list[str]) -> None:
    layout = Layout(**sizes, order=tuple(order))
    ranks = pl.Series(range(count_ranks(layout)))
    places = locate_ranks(ranks, layout)
    assert places.unique().height == len(ranks)
    assert {axis: (places[axis].max() or 0) + 1 for axis in AXES} == sizes  # type: ignore[operator]
    # neighbours differ in the first of the order that has several parts
    first = next((axis for axis in order if sizes[axis] > 1), None)
    if first is not None:
        assert places[0].drop(first).equals(places[1].drop(first))


def test_megatron_counts_tensors_first_and_the_pipeline_last() -> None:
    assert locate_ranks(pl.Series([0, 1, 2, 3, 4, 7]), parse_layout("pp=2,tp=2,dp=2")).select(
        "tp", "dp", "pp"
    ).rows() == [*((0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1))]
    assert parse_layout("TP=2, pp=2 ,order=pp-tp") == Layout(pp=2, tp=2, order=("pp", "tp"))


def test_a_rank_beyond_the_layout_has_no_place() -> None:
    places = locate_ranks(pl.Series([None, -1, 0, 1, 2]), Layout(pp=2))
    assert places["pp"].to_list() == [None, None, 0, 1, None]
    assert places.schema == pl.Schema(dict.fromkeys(AXES, pl.Int64))
    assert locate_ranks(pl.Series([], dtype=pl.Int64), Layout()).is_empty()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "invalid part of a layout"),
        ("4", "invalid part of a layout"),
        ("pp=4,xp=2", "invalid part of a layout `xp=2`"),
        ("pp=4,pp=2", "`pp` occurs twice"),
        ("pp=four", "invalid number of parts `pp=four`"),
        ("pp=-1", "invalid number of parts `pp=-1`"),
        ("pp=0", "invalid number of parts `pp=0`"),
        ("pp=2,order=pp-xp", "invalid axis `xp`"),
        ("pp=2,order=pp-pp", "`pp` twice"),
        ("pp=2,tp=2,order=pp", "lacks `tp`, which has 2 parts"),
    ],
)
def test_a_layout_that_cannot_be_is_explained(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_layout(text)
