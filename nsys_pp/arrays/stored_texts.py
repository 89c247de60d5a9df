"""Distinct texts in files of a scratch, for names of large reports: memory has texts only while they are used.

polars keeps each category in memory, with twice the bytes of its text, as long as a column has categories. Here a text has a
number, its bytes are in a mapped file, and columns of names (`StoredName`) have the numbers.
"""

from __future__ import annotations

from itertools import count
from threading import Lock
from weakref import WeakValueDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.columns import whole_numbers
from nsys_pp.arrays.scratch import GrowingColumn, is_open, keep_until_closed
from nsys_pp.arrays.text_slices import cut_texts
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.names import StoredName

_MOST = 1 << 25  # texts and bytes that are expected, for columns in memory
_WINDOW = 1 << 16  # texts that are compared at once
_SEED = 1
_stores: WeakValueDictionary[int, StoredTexts] = WeakValueDictionary()
_numbers = count()


class StoredTexts:
    """Texts, each with a number in order of addition; equal ones may be added several times, until `unify`."""

    def __init__(self) -> None:
        self.dtype = StoredName(number := next(_numbers))
        self.count = 0
        self._size = 0
        self._lock = Lock()
        self._bytes = GrowingColumn(_MOST, np.dtype(np.uint8))
        self._ends = GrowingColumn(_MOST, np.dtype(np.int64))
        self._hashes = GrowingColumn(_MOST, np.dtype(np.uint64))
        self._built: tuple[NDArray[np.uint8], Int64s] | None = None
        self._code_of: dict[str, int] = {}
        _stores[number] = self

    def add(self, texts: pl.Series) -> pl.Series:
        """Add texts, without null and empty ones, from any thread; returns them as `StoredName`."""
        lengths = texts.str.len_bytes().to_numpy().astype(np.int64)
        joined = np.frombuffer((texts.str.join("").item() or "").encode(), np.uint8)
        hashes = _hash(texts)
        with self._lock:
            first = self.count
            if len(texts):
                self._bytes.put(self._size, joined)
                self._ends.put(first, self._size + np.cumsum(lengths))
                self._hashes.put(first, hashes)
                self.count, self._size = first + len(texts), self._size + len(joined)
        codes = np.arange(first, first + len(texts), dtype=np.uint32)
        return pl.Series(texts.name, codes).ext.to(self.dtype)

    def add_word(self, word: str) -> None:
        """Add a text whose code can be asked for (`find_word`)."""
        self._code_of[word] = self.count
        self.add(pl.Series([word]))

    def find_word(self, word: str) -> int:
        """Return the number of a word that was added by `add_word`."""
        return self._code_of[word]

    def unify(self) -> NDArray[np.uint32]:
        """Find the first equal text of each text, by number; to be called once, after at least one was added."""
        hashes = self._hashes.build(self.count)
        order = np.argsort(hashes, kind="stable")  # of equal texts, the first one comes first
        ordered = hashes[order]
        is_first = np.append(True, ordered[1:] != ordered[:-1])
        begin = np.flatnonzero(is_first)
        first_of = np.empty(self.count, dtype=np.uint32)
        first_of[order] = np.repeat(order[begin], np.diff(np.append(begin, self.count)))
        repeated = np.flatnonzero(first_of != np.arange(self.count))
        for at in range(0, len(repeated), _WINDOW):
            numbers = repeated[at : at + _WINDOW]
            is_equal = self._decode(numbers) == self._decode(first_of[numbers].astype(np.int64))
            if not is_equal.all():  # different texts have the same hash
                self._separate(first_of, hashes, np.unique(hashes[numbers[~is_equal.to_numpy()]]))
        self._code_of = {word: int(first_of[code]) for word, code in self._code_of.items()}
        return first_of

    def _separate(
        self, first_of: NDArray[np.uint32], hashes: NDArray[np.uint64], shared: NDArray[np.uint64]
    ) -> None:
        """Correct the first equal text of texts with a hash that different ones share."""
        first: dict[str, int] = {}
        numbers = np.flatnonzero(np.isin(hashes, shared))
        for number, text in zip(numbers.tolist(), self._decode(numbers).to_list(), strict=True):
            first_of[number] = first.setdefault(text, number)

    def decode(self, codes: pl.Series) -> pl.Series:
        """Return the texts of a column of numbers, null for null; no text can be added after it."""
        if codes.null_count() == len(codes):
            return pl.Series(codes.name, [None], dtype=pl.String).new_from_index(0, len(codes))
        return self._decode(whole_numbers(codes)).alias(codes.name)

    def _decode(self, numbers: Int64s) -> pl.Series:
        if self._built is None:
            self._built = self._bytes.build(self._size), self._ends.build(self.count)
        data, ends = self._built
        starts = np.where(numbers > 0, ends[np.maximum(numbers - 1, 0)], 0)
        return cut_texts("", data, starts, np.where(numbers < 0, 0, ends[numbers] - starts))


def _hash(texts: pl.Series) -> NDArray[np.uint64]:
    return texts.hash(_SEED).to_numpy()


def open_store() -> StoredTexts | None:
    """Open a store of texts that stays as long as the scratch; None without a scratch."""
    if not is_open():
        return None
    store = StoredTexts()
    keep_until_closed(store)
    return store


def find_store(dtype: pl.DataType) -> StoredTexts:
    """Find the texts of a `StoredName`, whose scratch is open."""
    assert isinstance(dtype, StoredName)
    return _stores[dtype.store]


def build_names(texts: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return texts as names of a type.

    Args:
        texts: String without empty texts, null for none, or names of this type. Of few rows: equal ones are added to the store
            once for each call.
        dtype: `NAME` or `StoredName`.
    """
    if not isinstance(dtype, StoredName):
        return texts.cast(dtype)
    if texts.dtype == dtype:
        return texts
    if texts.null_count() == len(texts):
        return pl.Series(texts.name, [None], dtype=dtype).new_from_index(0, len(texts))
    words = texts.drop_nulls().unique(maintain_order=True)
    names = find_store(dtype).add(words)
    if len(words) == len(texts):
        return names
    codes = texts.cast(pl.Enum(words)).to_physical()
    return names[codes.cast(pl.UInt32)].alias(texts.name)
