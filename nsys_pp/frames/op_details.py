"""Details of operations: grids, registers, bytes, and whole names of kernels.

A report has millions of operations and few distinct launches, so each set of details is held once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from nsys_pp.frames.conform import build_schema

OP_DETAILS = build_schema(
    {  # one row per distinct set of details
        "full_name": pl.Categorical(),  # demangled with its parameter list; null where equal to name
        "grid": pl.Categorical(),  # "x,y,z"; null unless a kernel
        "block": pl.Categorical(),  # "x,y,z"; null unless a kernel
        "registers_per_thread": pl.Int32,
        "static_shared_bytes": pl.Int64,
        "dynamic_shared_bytes": pl.Int64,
        "size_bytes": pl.Int64,  # copies and sets
    },
    name="OP_DETAILS",
)


def _no_rows() -> npt.NDArray[np.uint32]:
    return np.zeros(0, dtype=np.uint32)


class OpDetails(Struct, frozen=True, kw_only=True):
    """Details of the operations of a report.

    Attributes:
        distinct: `OP_DETAILS`.
        row: Row of `distinct` of each operation: item i belongs to op_id i. Empty unless details were read.
    """

    distinct: pl.DataFrame = field(default_factory=OP_DETAILS.to_frame)
    row: npt.NDArray[np.uint32] = field(default_factory=_no_rows)

    def gather(self, column: str, op_id: pl.Series) -> pl.Series:
        """Return a column of the details of some operations; nulls if details were not read."""
        if not len(self.row):
            return self.distinct[column].clear().extend_constant(None, len(op_id))
        return self.distinct[column][pl.Series(self.row[op_id.to_numpy()])]  # without a query

    def expand(self) -> pl.DataFrame:
        """Return the details of all operations, a row for each."""
        return self.distinct[self.row]
