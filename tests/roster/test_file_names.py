"""Ranks in names of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys_pp.errors import NsysPPError
from nsys_pp.roster.ranks import guess_ranks, read_ranks


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
    ("pattern", "error", "words"),
    [
        ("rank(", ValueError, "invalid regular expression"),
        (r"rank\d", ValueError, "has no group"),
        (r"nope(\d)", NsysPPError, "matches none of the 1 file names, as `rank3.sqlite`"),
        (r"(ran)k", NsysPPError, "matches `ran`"),
    ],
)
def test_a_pattern_that_finds_no_ranks_is_explained(pattern: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read_ranks(_paths("rank3"), pattern)


def test_a_number_of_a_job_is_no_rank() -> None:
    with pytest.raises(
        NsysPPError, match=r"matches 48151623 .* too large for a rank; expected 0 to 1,048,575"
    ):
        read_ranks(_paths("job48151623"), r"job(\d+)")
