"""Processes that are no ranks of a training: other programs on its GPUs, and tasks that start several ranks."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import nsys_pp
from fixtures import simulate
from tests.lives import add_process

_OPTIONS = "--micro-batches 4 --machines 2 --layers 1 --names megatron --steps 4 --no-truth --schema 3.25.0"


def test_a_program_on_the_gpu_of_a_rank_is_not_compared(tmp_path: Path) -> None:
    simulate.main([str(tmp_path), *_OPTIONS.split(), "--dp", "4", "--pp", "1", "--slow-rank", "1=1.4"])
    alone = nsys_pp.pipeline([tmp_path])
    assert alone.verdict.lines[0].startswith(
        "Rank 1 (stage 0, node0 GPU 1) computes 40 % longer than its peers"
    )
    add_process(tmp_path / "node0" / "rank1.sqlite", kernels=40)
    result = nsys_pp.pipeline([tmp_path])
    assert result.verdict.lines == alone.verdict.lines
    assert result.training.lanes["rank"].to_list() == [0, 1, 2, 3]
    (note,) = [note for note in result.training.notes if note.startswith("process ")]
    assert note.endswith("on a GPU of the training (node0 GPU 1) is no rank of it: it is not compared")
    # sums have its kernels
    labels = nsys_pp.summarise([tmp_path], by="rank", tables=["device"]).tables["device"]["label"]
    assert len(labels) == 5


def test_a_task_that_starts_several_ranks_is_no_rank(tmp_path: Path) -> None:
    """Machines of three GPUs and of one, each with a task of Slurm that runs torchrun under nsys."""
    options = [*_OPTIONS.split(), "--pp", "4", "--machine-ranks", "3,1", "--per", "machine"]
    simulate.main([str(tmp_path), *options])
    for task in range(2):
        with sqlite3.connect(tmp_path / f"node{task}" / "report.sqlite") as report:
            environment = f"UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'SLURM_PROCID={task};SLURM_NTASKS=2'"
            report.execute(f"{environment} WHERE name = 'DeviceEnvironment'")
        report.close()
    lanes = nsys_pp.pipeline([tmp_path]).training.lanes
    assert lanes["rank"].to_list() == [None] * 4
    assert lanes["stage"].to_list() == [0, 1, 2, 3]
