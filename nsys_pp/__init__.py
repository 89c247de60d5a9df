"""nsys-pp: when every NVTX range really ran on every GPU, across machines, on one clock."""

from __future__ import annotations
