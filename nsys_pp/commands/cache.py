"""`nsys-pp cache`: the cache of exported reports."""

from __future__ import annotations

from nsys_pp.read.export_cache import clear_cache as clear_cache
from nsys_pp.read.export_cache import find_cache as find_cache
