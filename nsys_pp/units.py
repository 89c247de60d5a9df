"""Units of time and size: the only powers of ten and two, and formats of values."""

from __future__ import annotations

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
NS_PER_DAY = 86_400 * NS_PER_S
HERTZ_PER_MEGAHERTZ = 1_000_000


def format_duration(duration_ns: int) -> str:
    """Format a duration in a unit with one to three digits before the point.

    >>> format_duration(768), format_duration(1_234_567), format_duration(-2_500_000_000)
    ('768 ns', '1.235 ms', '-2.500 s')
    """
    for size, unit in ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "us")):
        if abs(duration_ns) >= size:
            return f"{duration_ns / size:.3f} {unit}"
    return f"{duration_ns} ns"


def format_bytes(count_bytes: int) -> str:
    """Format a size in binary units.

    >>> format_bytes(512), format_bytes(3 << 20)
    ('512 B', '3.0 MiB')
    """
    size = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_count(count: int, noun: str) -> str:
    """Return a count and its noun, in the plural unless the count is 1.

    >>> format_count(1, "slice"), format_count(12_000, "slice")
    ('1 slice', '12,000 slices')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
