"""Choices read from bytes: the fuzzer changes bytes, and a target makes its input of the choices that they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """A sequence of choices; at the end of the bytes all are 0, the first, and nothing."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_used_up(self) -> bool:
        return self._at >= len(self._data)

    def byte(self) -> int:
        value = self._data[self._at] if self._at < len(self._data) else 0
        self._at += 1
        return value

    def below(self, limit: int) -> int:
        """Choose a number from 0 on; of one byte if that is enough."""
        size = max(1, (max(limit, 1) - 1).bit_length() + 7 >> 3)
        value = int.from_bytes(bytes(self.byte() for _ in range(size)), "little")
        return value % max(limit, 1)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def take(self, length: int) -> bytes:
        chunk = self._data[self._at : self._at + length]
        self._at += length
        return chunk
