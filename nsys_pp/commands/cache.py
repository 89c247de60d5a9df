"""`nsys-pp cache`: the cache of exported reports."""

from __future__ import annotations

from nsys_pp.read.export import clear_cache as clear_cache
from nsys_pp.read.export import find_cache as find_cache
