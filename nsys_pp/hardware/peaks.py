"""Peak rates of GPUs, dense, by data type."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

_TERA = 1e12


class Peak(Struct, frozen=True, kw_only=True):
    """Peak rates of one model of GPU.

    Attributes:
        pattern: Regular expression, searched in the name of the GPU.
        flops_per_s: By data type, dense.
        source: Publication of these numbers.
    """

    pattern: str
    flops_per_s: Mapping[str, float]
    source: str


@cache
def read_peaks() -> tuple[Peak, ...]:
    """Read the peaks of all GPUs, in the order in which their patterns apply."""
    text = (Path(__file__).parent / "peaks.toml").read_text(encoding="utf-8")
    return tuple(
        Peak(
            pattern=entry["pattern"],
            flops_per_s={name: value * _TERA for name, value in entry["tflops"].items()},
            source=entry["source"],
        )
        for entry in tomllib.loads(text)["gpu"]
    )


def find_peak(gpu: str | None) -> Peak | None:
    """Find the peak of a GPU by its name; None for GPUs without an entry, and without a name.

    >>> peak = find_peak("NVIDIA A100-SXM4-80GB")
    >>> peak.flops_per_s["bf16"] / 1e12 if peak else None
    312.0
    >>> find_peak("NVIDIA TITAN X") is None
    True
    """
    return next((peak for peak in read_peaks() if gpu and re.search(peak.pattern, gpu)), None)
