"""Titles of the rows of GPUs, as they are shown above all machines: `rank 6 · stage 1`, in order of stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from msgspec import Struct


class Title(Struct, frozen=True, kw_only=True):
    """Title of a row, and its position among all titles."""

    text: str
    order: tuple[int, ...]


def build_titles(roster: pl.DataFrame) -> dict[tuple[int, str], Title]:
    """Build the title of each GPU of each report: its rank and stage, or the GPU itself without a rank.

    The GPU, and then its machine, are added where titles would be equal; the machine of a GPU without a rank is omitted
    if there is only one.

    Args:
        roster: `ROSTER`.

    Returns:
        Titles by index of the report and label of the GPU, in order of stage, rank, machine and GPU; empty without GPUs.
    """
    several = (
        pl.col("rank", "stage").drop_nulls().unique().sort()
    )  # processes of several ranks may share a GPU
    gpus = (
        roster.drop_nulls("gpu")
        .group_by("report", "machine", "machine_order", "gpu", "gpu_number", maintain_order=True)
        .agg(several)
        .to_dicts()
    )
    is_one_machine = len({gpu["machine"] for gpu in gpus}) <= 1
    texts = [_format_title(gpu, with_machine=not is_one_machine) for gpu in gpus]
    additions: list[Callable[[Mapping[str, Any]], Any]] = [lambda gpu: gpu["gpu"], lambda gpu: gpu["machine"]]
    for add in additions:
        rows = {(text, gpu["machine"], gpu["gpu"]) for text, gpu in zip(texts, gpus, strict=True)}
        shared = Counter(text for text, *_ in rows)
        texts = [
            f"{text} · {add(gpu)}" if shared[text] > 1 and gpu["rank"] else text
            for text, gpu in zip(texts, gpus, strict=True)
        ]
    return {
        (gpu["report"], gpu["gpu"]): Title(text=text, order=_order(gpu))
        for text, gpu in zip(texts, gpus, strict=True)
    }


def _format_title(gpu: Mapping[str, Any], *, with_machine: bool) -> str:
    if not gpu["rank"]:
        return " · ".join(
            [gpu["machine"]] * with_machine + [gpu["gpu"], *format_numbers("stage", gpu["stage"])]
        )
    return " · ".join([*format_numbers("rank", gpu["rank"]), *format_numbers("stage", gpu["stage"])])


def format_numbers(word: str, numbers: list[int]) -> list[str]:
    """Format numbers after a word in the singular or plural; no text without numbers.

    >>> format_numbers("rank", [3]), format_numbers("rank", [3, 7]), format_numbers("rank", [])
    (['rank 3'], ['ranks 3, 7'], [])
    """
    if not numbers:
        return []
    return [f"{word}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"]


def _order(gpu: Mapping[str, Any]) -> tuple[int, ...]:
    return (
        (gpu["stage"] or [0])[0],
        (gpu["rank"] or [0])[0],
        gpu["machine_order"],
        gpu["gpu_number"],
    )
