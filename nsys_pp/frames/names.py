"""Type of names in frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

NAME = pl.Categorical()
"""Each string is stored once, and writers use its code."""
NO_NAME = "(no name)"
"""Name of events without a name, where they are drawn."""


class StoredName(pl.BaseExtension):
    """Type of names in place of `NAME` where too many are distinct for memory: numbers of texts in files.

    Equal names have equal numbers. polars refuses to cast it: `nsys_pp.arrays.names` has the functions for
    both types.

    Args:
        store: Number of the texts (`nsys_pp.arrays.stored_texts`) in this process.
    """

    def __init__(self, store: int | str) -> None:
        super().__init__(_EXTENSION, pl.UInt32, str(store))

    @classmethod
    def ext_from_params(cls, name: str, storage: PolarsDataType, metadata: str | None) -> StoredName:
        """Build the type of a column; polars calls this."""
        return cls(metadata or "")

    @property
    def store(self) -> int:
        """Number of the texts."""
        return int(self.ext_metadata() or -1)


_EXTENSION = "nsys_pp.stored_name"
pl.register_extension_type(_EXTENSION, StoredName)
