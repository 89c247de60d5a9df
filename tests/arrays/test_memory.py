"""Freed memory goes back to the system, where the C library is glibc; elsewhere nothing happens."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from nsys_pp.arrays import memory
from nsys_pp.units import BYTES_PER_MIB


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_freed_memory_goes_back() -> None:
    if memory._load() is None:
        pytest.skip("the C library is not glibc")
    pieces = [
        np.ones(BYTES_PER_MIB // 16, dtype=np.uint8) for _ in range(4_000)
    ]  # 250 MiB, below the threshold
    last = pieces[-1]  # at the end of the heap, so that freeing the others alone leaves them there
    del pieces
    before = resident_bytes()
    memory.return_freed()
    assert resident_bytes() < before - 200 * BYTES_PER_MIB
    assert last.all()


def test_without_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_load", lambda: None)
    memory.map_large_arrays()
    memory.return_freed()
