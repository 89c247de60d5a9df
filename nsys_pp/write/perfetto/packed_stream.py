"""Streams of packed blocks, read block by block."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from nsys_pp.write.perfetto.packed_blocks import HEAD_BYTES, check_block, read_head

_READ_BYTES = 1 << 20


class Source(Protocol):
    """Reader of blocks."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, fewer only at the end."""


def read_packed(source: Source, size: int, *, is_drawn: bool) -> Iterator[bytes]:
    """Read the packed blocks of a subtrack one by one, without their heads; yield them if they are drawn.

    Raises:
        ValueError: A block is damaged, or longer than its subtrack.
        EOFError: The blocks end early.
    """
    while size > 0:
        length, checksum = read_head(b"".join(read_pieces(source, HEAD_BYTES)))
        size -= HEAD_BYTES + length
        if size < 0:
            raise ValueError("a block is longer than its subtrack")
        pieces = read_pieces(source, length)
        if is_drawn:
            yield check_block(b"".join(pieces), checksum)
        else:
            deque(pieces, maxlen=0)


def read_pieces(source: Source, size: int) -> Iterator[bytes]:
    """Read a number of bytes in pieces.

    Raises:
        EOFError: The blocks end early.
    """
    while size:
        data = source.read(min(size, _READ_BYTES))
        if not data:
            raise EOFError("the blocks of a report end early")
        size -= len(data)
        yield data
