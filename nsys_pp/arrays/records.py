"""Rows of records: structs whose fields are arrays of one length."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.arrays.types import Bools

Record = TypeVar("Record", bound=Struct)


def select_rows(record: Record, rows: npt.NDArray[np.integer[Any]] | Bools) -> Record:
    """Return a record with some of its rows: indices in any order, or a mask."""
    return type(record)(**{name: getattr(record, name)[rows] for name in record.__struct_fields__})


def join_rows(first: Record, *others: Record) -> Record:
    """Return a record with the rows of several, one after the other."""
    parts = (first, *others)
    return type(first)(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in first.__struct_fields__}
    )
