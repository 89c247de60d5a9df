"""Decode the result of a query: cells of mixed kinds, in batches, into a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

# perfetto/protos/perfetto/trace_processor/trace_processor.proto, QueryResult.CellsBatch.CellType
NULL, VARINT, FLOAT, STRING, BLOB = 1, 2, 3, 4, 5


def decode_result(names: list[str], batches: list[Any]) -> pl.DataFrame:
    """Return a frame with one column per name; a column without any value has the type Null.

    Args:
        names: Column names of the query.
        batches: `QueryResult.CellsBatch` messages in order; cells are row-major.

    Returns:
        A frame; integers are Int64, a column that mixes integers and floats is Float64.
    """
    frames = [frame for batch in batches if (frame := _decode_batch(names, batch)).height]
    if not frames:
        return pl.DataFrame({name: [] for name in names})
    return pl.concat(frames, how="vertical_relaxed")


def _decode_batch(names: list[str], batch: Any) -> pl.DataFrame:
    kinds = np.array(batch.cells, dtype=np.uint8)
    cells = np.empty(len(kinds), dtype=object)
    cells[kinds == VARINT] = list(batch.varint_cells)
    cells[kinds == FLOAT] = list(batch.float64_cells)
    cells[kinds == STRING] = _split(batch.string_cells)
    cells[kinds == BLOB] = list(batch.blob_cells)
    table = cells.reshape(-1, max(len(names), 1))
    return pl.DataFrame([pl.Series(name, table[:, i].tolist(), strict=False) for i, name in enumerate(names)])


def _split(strings: str | bytes) -> list[str]:
    """Split strings that each end in NUL."""
    text = strings.decode("utf-8", "replace") if isinstance(strings, bytes) else strings
    return text.split("\0")[:-1]
