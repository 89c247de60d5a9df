"""Roster of all reports: GPUs of machines, ranks, stages."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.errors import NsysPPError, ReportError
from nsys_pp.frames.roster import ROSTER, Identity
from nsys_pp.roster.ranks import parse_layout
from nsys_pp.roster.roster import build_roster
from tests.roster.identities import NS, identity

A, B, C, D = (f"{letter * 8}-1111-2222-3333-444444444444" for letter in "abcd")
BUS = [f"0000:{place}:00.0" for place in ("1b", "3b", "5b", "7b")]


def _column(column: str, *identities: Identity, **options: object) -> list[object]:
    return build_roster(identities, **options)[column].to_list()  # type: ignore[arg-type]


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


def test_the_same_recording_twice_is_refused() -> None:
    one = identity("a.sqlite", fingerprint=7)
    with pytest.raises(ReportError, match=r"`a.sqlite` and `copy/b.sqlite` are the same") as caught:
        build_roster([one, identity("c.sqlite"), identity("copy/b.sqlite", fingerprint=7)])
    assert caught.value.hint == "name each report once"


def test_gpus_are_numbered_along_the_bus_of_the_whole_machine() -> None:
    # each report lists only what it was allowed to see, and calls it device 0
    reports = [
        identity(f"{pid}.sqlite", gpus=[(uuid, bus.upper())], devices=[(pid, 0, uuid, bus)])
        for pid, uuid, bus in ((1, C, BUS[2]), (2, A, BUS[0]), (3, C, BUS[2]))
    ]
    reports.append(identity("4.sqlite", pids=[4], devices=[(4, 0, D, None)], gpus=[(B, BUS[1]), (D, BUS[3])]))
    roster = build_roster(reports)
    assert roster["gpu"].to_list() == ["GPU 2", "GPU 0", "GPU 2", "GPU 3"]
    assert roster["gpu_number"].to_list() == [2, 0, 2, 3]
    assert roster["machine"].unique().to_list() == ["worker"]
    assert roster["bus_location"][3] == BUS[3]  # as the list says


def test_parts_of_a_gpu_are_rows_of_their_own() -> None:
    listed = [(A, BUS[0]), (B, BUS[1])]
    parts = [(f"{n}{C[1:]}", n) for n in (2, 1)]
    reports = [
        identity(f"{n}.sqlite", gpus=listed, devices=[(n, 0, uuid, BUS[1])], pids=[n]) for uuid, n in parts
    ]
    reports.append(identity("3.sqlite", gpus=listed, devices=[(3, 0, A, BUS[0])], pids=[3]))
    roster = build_roster(reports)
    assert roster["gpu"].to_list() == ["GPU 1 MIG 1", "GPU 1 MIG 0", "GPU 0"]
    assert roster["gpu_number"].to_list() == [1, 1, 0]
    # nothing is known of the GPU that it is a part of
    lone = identity(
        "m.sqlite", devices=[(9, 0, C, None)], launcher={"CUDA_VISIBLE_DEVICES": f"MIG-{C.upper()}"}
    )
    roster = build_roster([lone])
    assert roster.select("gpu", "gpu_number").row(0) == ("MIG cccccccc", 0)


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


def test_ranks_do_not_share_what_only_an_ordinal_tells() -> None:
    def hidden(rank: int | None, pid: int, local: int | None = None) -> Identity:
        return identity(
            f"{pid}.sqlite",
            pids=[pid],
            gpus=[(A, BUS[0]), (B, BUS[1]), (C, BUS[2])],
            devices=[(pid, 0, A, BUS[0])],
            is_recorded=False,
            launcher={} if local is None else {"LOCAL_RANK": str(local)},
            ranks=[] if rank is None else [(pid, None, rank, "RANK", None)],
        )

    known = identity("0.sqlite", gpus=[(A, BUS[0])], devices=[(90, 0, A, BUS[0])])
    assert _column("gpu", hidden(5, 1), hidden(4, 2)) == ["GPU 1", "GPU 0"]
    assert _column("gpu", hidden(5, 1, 1), hidden(4, 2, 2)) == ["GPU 1", "GPU 2"]
    assert _column("uuid", hidden(5, 1, 1), hidden(4, 2, 2)) == [None, None]
    assert _column("gpu", known, hidden(5, 1), hidden(4, 2)) == ["GPU 0", "GPU 2", "GPU 1"]
    # nothing speaks against it
    for reports in ([hidden(5, 1), hidden(5, 2)], [hidden(5, 1), hidden(None, 2)], [hidden(None, 1), known]):
        assert _column("uuid", *reports) == [A, A]
        assert _column("gpu", *reports) == ["GPU 0", "GPU 0"]
    # processes of one report
    two = identity(
        "two.sqlite",
        devices=[(1, 0, A, BUS[0]), (2, 0, A, BUS[0])],
        is_recorded=False,
        ranks=[(1, None, 1, "MPI", 2), (2, None, 0, "MPI", 2)],
    )
    assert _column("gpu", two) == ["GPU 1", "GPU 0"]


def test_ordinals_that_nobody_else_claims_are_kept() -> None:
    reports = [identity(f"{n}.sqlite", devices=[(n, n, None, None)]) for n in (3, 1)]
    assert _column("gpu", *reports) == ["GPU 3", "GPU 1"]
    shared = identity("s.sqlite", devices=[(7, 0, None, None), (8, 0, None, None), (8, 1, None, None)])
    assert _column("gpu", shared) == ["GPU 0", "GPU 0", "GPU 1"]


def test_captures_of_one_process_are_on_one_gpu() -> None:
    reports = [identity(f"r.{n}.sqlite", start_ns=n * NS) for n in range(3)]
    roster = build_roster(reports)
    assert roster["gpu"].to_list() == ["GPU 0"] * 3
    assert roster["rank"].to_list() == [None] * 3  # the numbers count captures


def test_gpus_that_nothing_is_known_of_are_numbered_by_rank() -> None:
    reports = [_ranked(f"{name}.sqlite", pid, rank) for name, pid, rank in (("a", 1, 5), ("b", 2, 4))]
    assert _column("gpu", *reports) == ["GPU 1", "GPU 0"]


def test_a_rank_is_of_a_process_or_of_its_device() -> None:
    two = identity(
        "two.sqlite",
        devices=[(1, 0, None, None), (1, 1, None, None), (2, 0, None, None), (3, 4, None, None)],
        ranks=[(1, 0, 6, "XLA", None), (1, 1, 7, "XLA", None), (2, None, 8, "MPI", 9), (3, 0, 2, "NCCL", 9)],
    )
    roster = build_roster([two])
    assert roster["rank"].to_list() == [6, 7, 8, 2]
    assert roster["rank_source"].to_list() == ["XLA", "XLA", "MPI", "NCCL"]


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
    assert _column("rank", *pairs) == [0, 1, 2, None]
    assert _column("rank_source", *pairs) == ["RANK", "RANK", "RANK", None]
    larger = _ranked("all.sqlite", 9, 3, "NCCL", 8)
    assert _column("rank", pairs[0], larger) == [0, 3]
    assert _column("rank_source", pairs[0], larger) == ["RANK", "NCCL"]


def test_names_of_files_come_last() -> None:
    def files(*names: str) -> list[Identity]:
        return [identity(f"{name}.sqlite", pids=[pid]) for pid, name in enumerate(names)]

    assert _column("rank", *files("rank1", "rank0")) == [1, 0]
    assert _column("rank_source", *files("rank1", "rank0")) == ["file name"] * 2
    assert _column("rank", *files("b10", "b9")) == [1, 0]
    assert _column("rank_source", *files("b10", "b9")) == ["file order"] * 2
    assert _column("rank", *files("b10", "b9"), rank_from=r"b(\d+)") == [10, 9]
    assert _column("rank_source", *files("rank3", "rank4"), rank_from=r"k(\d)") == ["--rank-from"] * 2
    # what a report says is better
    known = _ranked("rank7.sqlite", 50, 1, "MPI")
    assert _column("rank", known, *files("rank0"), rank_from=r"rank(\d)") == [1, 0]
    assert _column("rank", known, *files("rank1")) == [1, None]
    assert _column("rank", *files("b")) == [None]


def test_files_are_not_counted_where_that_means_nothing() -> None:
    apart = [identity(f"{name}.sqlite", pids=[n], start_ns=n * 3600 * NS) for n, name in enumerate("ab")]
    assert _column("rank", *apart) == [None, None]
    of_two = [identity("a.sqlite", pids=[1, 2]), identity("b.sqlite", pids=[3])]
    assert _column("rank", *of_two) == [None, None, None]
    assert _column("rank", identity("rank3.sqlite", pids=[1, 2])) == [None, None]


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
    said = identity("a.sqlite", pids=[1, 2], coordinates=[(1, 3, 0, None)])
    roster = build_roster([said])
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
