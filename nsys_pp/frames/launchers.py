"""What launchers (torchrun, MPI, Slurm, Flux ...) tell a program by variables: ranks and visible GPUs.

`nsys_pp.read.names` lists the variables that are read; no other one leaves a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Rank(NamedTuple):
    """A rank, and its source: the variable that it was read from, or another one."""

    rank: int
    source: str
    world_size: int | None  # None where unknown


_MOST_DIGITS = 18  # of a number that fits 64 bits
_MOST_GPU_DIGITS = 9

SLURM_TASK = "SLURM_PROCID"
# Variables of the rank, the number of ranks, and the rank on the machine. Most specific first: a framework's
# own, then MPI's, then those of what starts jobs.
_LAUNCHERS: tuple[tuple[str, str | None, str | None], ...] = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    ("PMIX_RANK", None, None),
    ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK"),
    (SLURM_TASK, "SLURM_NTASKS", "SLURM_LOCALID"),
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_RANK_IN_NODE"),
    ("PALS_RANKID", None, "PALS_LOCAL_RANKID"),
    ("ALPS_APP_PE", None, None),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK"),
)


def find_rank(variables: Mapping[str, str]) -> Rank | None:
    """Find the rank of the program that was launched; None without one.

    >>> find_rank({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0"})
    Rank(rank=3, source='RANK', world_size=8)
    >>> find_rank({"RANK": "8", "WORLD_SIZE": "8", "SLURM_PROCID": "0"})  # RANK cannot be
    Rank(rank=0, source='SLURM_PROCID', world_size=None)
    """
    for name, size_name, _ in _LAUNCHERS:
        rank = _as_count(variables.get(name))
        world_size = _as_count(variables.get(size_name or ""))
        if rank is not None and (world_size is None or rank < world_size):
            return Rank(rank, name, world_size)
    return None


def find_local_rank(variables: Mapping[str, str]) -> int | None:
    """Find the rank among the ranks of its machine; None without one.

    >>> find_local_rank({"SLURM_LOCALID": "1"})
    1
    """
    ranks = (_as_count(variables.get(name or "")) for *_, name in _LAUNCHERS)
    return next((rank for rank in ranks if rank is not None), None)


def list_visible(variables: Mapping[str, str]) -> list[str]:
    """List the visible devices by ordinal: numbers or ids; CUDA ignores a list with repetitions.

    >>> list_visible({"CUDA_VISIBLE_DEVICES": "2,3"})
    ['2', '3']
    >>> list_visible({"CUDA_VISIBLE_DEVICES": "GPU-8932f937,2"})  # all numbers or no number
    []
    """
    listed = [part.strip() for part in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    numbers = [part.isdecimal() for part in listed]
    is_list = (all(numbers) and max(map(len, listed), default=0) <= _MOST_GPU_DIGITS) or not any(numbers)
    return listed if is_list and len(set(listed)) == len(listed) else []


def _as_count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) <= _MOST_DIGITS else None
