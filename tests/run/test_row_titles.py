"""Titles of the rows of GPUs."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.roster import ROSTER
from nsys_pp.run.layout import build_titles


def roster(*rows: tuple[int, str, str | None, int | None, int | None]) -> pl.DataFrame:
    """Rows of report, machine, GPU, rank and stage."""
    machines = sorted({machine for _, machine, *_ in rows})
    filled = [
        {
            "report": report,
            "machine": machine,
            "machine_order": machines.index(machine),
            "gpu": gpu,
            "gpu_number": None if gpu is None else int(gpu.split()[1]),
            "rank": rank,
            "stage": stage,
        }
        for report, machine, gpu, rank, stage in rows
    ]
    return pl.DataFrame(filled, schema=ROSTER)


def texts(found: pl.DataFrame) -> list[str]:
    titles = build_titles(found).values()
    return [title.text for title in sorted(titles, key=lambda title: title.order)]


def test_ranks_stand_in_order_of_their_stages() -> None:
    found = roster(
        (0, "a", "GPU 0", 0, 1), (1, "a", "GPU 1", 1, 0), (2, "b", "GPU 0", 10, 0), (3, "b", "GPU 1", 9, 0)
    )
    assert texts(found) == ["rank 1 · stage 0", "rank 9 · stage 0", "rank 10 · stage 0", "rank 0 · stage 1"]


def test_a_gpu_without_a_rank_is_named_by_its_machine_where_there_are_several() -> None:
    assert texts(roster((0, "a", "GPU 0", None, None), (0, "a", "GPU 1", None, None))) == ["GPU 0", "GPU 1"]
    assert texts(roster((0, "a", "GPU 0", None, None), (1, "b", "GPU 0", None, None))) == [
        "a · GPU 0",
        "b · GPU 0",
    ]


def test_what_tells_equal_titles_apart_is_added() -> None:
    assert texts(roster((0, "a", "GPU 0", 3, None), (0, "a", "GPU 1", 3, None))) == [
        "rank 3 · GPU 0",
        "rank 3 · GPU 1",
    ]
    assert texts(roster((0, "a", "GPU 0", 3, None), (1, "b", "GPU 0", 3, None))) == [
        "rank 3 · GPU 0 · a",
        "rank 3 · GPU 0 · b",
    ]


def test_ranks_that_share_a_gpu_share_its_row() -> None:
    found = roster((0, "a", "GPU 0", 0, 0), (0, "a", "GPU 0", 1, 0))
    assert texts(found) == ["ranks 0, 1 · stage 0"]


def test_several_reports_of_one_gpu_have_one_title() -> None:
    found = roster((0, "a", "GPU 0", 0, None), (1, "a", "GPU 0", 0, None))
    assert {title.text for title in build_titles(found).values()} == {"rank 0"}


def test_reports_without_gpus_have_no_titles() -> None:
    assert build_titles(roster((0, "a", None, None, None))) == {}
