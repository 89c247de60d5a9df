"""Compression of the planes of bytes (`nsys_pp.arrays.byte_planes`) of parts, and of frames between processes."""

from __future__ import annotations

from zlib_ng import zlib_ng

_LEVEL = 6  # higher ones take five times as long for one percent
_MEMORY_LEVEL = (
    6  # below the default of 8: a table of codes for each 4,096 symbols fits planes better, by two percent
)
_QUICK_LEVEL = 2
_QUICKEST_LEVEL = 1
_WINDOW_BITS = 15


def deflate(data: bytes) -> bytes:
    """Compress bytes; the same bytes have the same result."""
    deflater = zlib_ng.compressobj(_LEVEL, zlib_ng.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL)
    return b"".join([deflater.compress(data), deflater.flush()])


def deflate_quickly(data: bytes) -> bytes:
    """Compress bytes that are read once."""
    return zlib_ng.compress(data, _QUICKEST_LEVEL)


def inflate(data: bytes) -> bytes:
    """Decompress bytes of `deflate_quickly`."""
    return zlib_ng.decompress(data)


def measure_deflated(data: bytes) -> int:
    """Return the approximate size of bytes after compression, quickly."""
    return len(zlib_ng.compress(data, _QUICK_LEVEL))
