"""Packets of rows: fields have values of any size, and a row may lack some of them; compiled (`core.c`).

Values are read where they are, so nothing is gathered, widened or grouped before it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.core_arguments import find_address
from nsys_pp.arrays.types import Bools, Bytes, Int64s

MAX_NULLABLE = 64
"""Most columns that some rows lack: the fields of a row are bits of a number of 64 bits."""
_MOST_SHAPES = 255
_UNSIGNED, _SIGNED, _RAW, _NUMBER = range(4)
_WORD_BYTES = (1, 2, 4, 8)
_WORDS, _NUMBERS = np.dtype(np.uint64), np.dtype(np.uint32)


class RowColumn(Struct, frozen=True, kw_only=True):
    """Values of a field of rows.

    Attributes:
        values: Integers or booleans, written as varints; or 8 bytes each, written as they are.
        rows: Of the values, for each row; None: one value per row, in order.
        present: Mask of the values that are not null; None: all of them.
        is_raw: Write the bytes of the values.
        is_number: A row with the value 0 lacks the field.
    """

    values: NDArray[Any]
    rows: Int64s | None = None
    present: Bools | None = None
    is_raw: bool = False
    is_number: bool = False


class Layout(Struct, frozen=True):
    """A packet with any bytes for its columns, and the offsets and widths of these.

    Raises:
        ValueError: A column is not in the packet.
    """

    packet: bytes
    offsets: tuple[int, ...]
    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check the columns."""
        size = len(self.packet)
        for offset, width in zip(self.offsets, self.widths, strict=True):
            if width < 1 or not 0 <= offset <= size - width:
                raise ValueError("a column beyond its packet")


class RowShape(Struct, frozen=True):
    """Rows of a block with the same fields.

    Attributes:
        columns: Numbers of the columns that these rows have.
        widths: Bytes of the widest time, then of the widest value of each of these columns.
        count: Number of rows.
    """

    columns: tuple[int, ...]
    widths: tuple[int, ...]
    count: int


class RowBlock:
    """Rows of a block, by shape.

    Attributes:
        shapes: In order of appearance.
        end_width: Bytes of the widest time of an end; 1 without ends.
    """

    def __init__(self, table: Int64s, held: list[Any], shapes: list[RowShape], end_width: int) -> None:
        self.shapes = shapes
        self.end_width = end_width
        self._table = table
        self._held = held

    @property
    def table(self) -> Int64s:
        """The block as the library reads it."""
        return self._table


class RowPackets:
    """Rows of a batch, ready to be written block by block.

    Args:
        core: The library.
        begin: Event that begins each row, ascending.
        deltas: Time of each event.
        columns: Fields of the rows, at most `MAX_NULLABLE` of them with nulls.

    Raises:
        ValueError: Columns have other lengths than rows, refer to values that are not there, or are not of a kind that
            can be written.
    """

    def __init__(
        self, core: Core, begin: Int64s, deltas: NDArray[np.uint64], columns: Sequence[RowColumn]
    ) -> None:
        self._core = core
        self._begin, self._deltas = np.ascontiguousarray(begin), np.ascontiguousarray(deltas, dtype=_WORDS)
        if len(begin) and (begin[0] < 0 or begin[-1] >= len(deltas)):
            raise ValueError("a row beyond the events")
        self._nullable = [column.present is not None or column.is_number for column in columns]
        if sum(self._nullable) > MAX_NULLABLE:
            raise ValueError("too many columns with nulls")
        self._is_raw = [column.is_raw for column in columns]
        self._held: list[Any] = []
        sizes: dict[int, int] = {}
        fields = [self._check(column, sizes) for column in columns]
        self._fields = np.array(fields, dtype=np.int64).reshape(-1)

    def _check(self, column: RowColumn, sizes: dict[int, int]) -> tuple[int, ...]:
        """Return a column as the library reads it; `sizes` are the values that each array of rows needs."""
        values, rows, present = np.ascontiguousarray(column.values), column.rows, column.present
        needed = len(self._begin)
        if rows is not None:
            if id(rows) not in sizes:
                if rows.dtype != np.int64 or not rows.flags.c_contiguous or len(rows) != needed:
                    raise ValueError("rows of another length")
                sizes[id(rows)] = int(rows.max(initial=-1)) + 1 if rows.min(initial=0) >= 0 else 1 << 62
            needed = sizes[id(rows)]
        if present is not None:
            present = np.ascontiguousarray(present, dtype=np.bool_)
        kind = values.dtype.kind
        is_known = values.itemsize == 8 if column.is_raw else kind in "biu" and values.itemsize in _WORD_BYTES
        if len(values) < needed or (present is not None and len(present) < needed):
            raise ValueError("a column of another length than its rows")
        if values.ndim != 1 or not is_known or not values.dtype.isnative:
            raise ValueError("a column of a kind that cannot be written")
        self._held += [values, rows, present]
        code = (
            _RAW if column.is_raw else _NUMBER if column.is_number else _SIGNED if kind == "i" else _UNSIGNED
        )
        addresses = [0 if array is None else find_address(array) for array in (values, rows, present)]
        return (*addresses, values.itemsize, code)

    def find_shapes(self, first: int, stop: int) -> RowBlock | None:
        """Group the rows [first, stop) by their fields; None if there are too many groups."""
        if not 0 <= first < stop <= len(self._begin):
            raise ValueError("rows beyond the batch")
        fields = len(self._is_raw)
        low = int(self._begin[first])
        high = int(self._begin[stop]) if stop < len(self._begin) else len(self._deltas)
        shape_of, key_of = np.empty(stop - first, np.uint8), np.empty(stop - first, np.uint64)
        keys, counts = np.empty(_MOST_SHAPES, np.uint64), np.empty(_MOST_SHAPES, np.int64)
        bits = np.empty(_MOST_SHAPES * (fields + 1) + 1, np.uint64)
        addresses = find_address(self._begin), find_address(self._deltas)
        numbers = (
            first,
            stop,
            low,
            high,
            *addresses,
            fields,
            find_address(self._fields),
            find_address(shape_of),
        )
        table = np.array(numbers, dtype=np.int64)
        count = self._core.find_shapes(
            *(find_address(array) for array in (table, keys, counts, bits, key_of))
        )
        if count < 0:
            return None
        words = bits[: count * (fields + 1) + 1].tolist()
        shapes = [
            self._describe(key, words[at * (fields + 1) : (at + 1) * (fields + 1)], rows)
            for at, (key, rows) in enumerate(zip(keys[:count].tolist(), counts[:count].tolist(), strict=True))
        ]
        return RowBlock(table, [shape_of, self], shapes, _width(words[-1]))

    def _describe(self, key: int, bits: list[int], count: int) -> RowShape:
        columns, widths = [], [_width(bits[0])]
        for at, (is_nullable, is_raw) in enumerate(zip(self._nullable, self._is_raw, strict=True)):
            is_there = True
            if is_nullable:
                is_there, key = bool(key & 1), key >> 1
            if is_there:
                columns.append(at)
                widths.append(8 if is_raw else _width(bits[at + 1]))
        return RowShape(tuple(columns), tuple(widths), count)

    def write(
        self,
        block: RowBlock,
        layouts: Sequence[Layout],
        end: Layout,
        opening: Layout | None = None,
        opened: tuple[Int64s, NDArray[np.uint64]] | None = None,
    ) -> Bytes:
        """Write the packets of a block, in order of its events.

        Args:
            block: Of `find_shapes`.
            layouts: Packet of each shape: the columns are the time and those of the shape.
            end: Packet of an event that begins no row; the column is the time.
            opening: Packet before some rows; the column is a value of each.
            opened: These rows, ascending, and the values.

        Raises:
            ValueError: Layouts do not have the columns of their shapes.
        """
        widths = [shape.widths for shape in block.shapes]
        if [layout.widths for layout in layouts] != widths or end.widths != (block.end_width,):
            raise ValueError("packets of other columns than their rows")
        first, stop, low, high = (int(number) for number in block.table[:4])
        size = (high - low - (stop - first)) * len(end.packet)
        columns: list[int] = []
        table: list[tuple[int, ...]] = []
        packets = [np.frombuffer(layout.packet, np.uint8) for layout in (*layouts, end)]
        for shape, layout, packet in zip(block.shapes, layouts, packets, strict=False):
            at = len(columns) // 3
            for column in zip(shape.columns, layout.offsets[1:], layout.widths[1:], strict=True):
                columns += column
            head = (find_address(packet), len(packet), layout.offsets[0], layout.widths[0])
            table.append((*head, at, len(columns) // 3))
            size += shape.count * len(packet)
        table.append((find_address(packets[-1]), len(packets[-1]), end.offsets[0], end.widths[0], 0, 0))
        rows, values = np.empty(0, np.int64), np.empty(0, np.uint64)
        if opening is not None and opened is not None:
            rows = np.ascontiguousarray(opened[0], dtype=np.int64)
            values = np.ascontiguousarray(opened[1], dtype=np.uint64)
            if len(opening.offsets) != 1 or len(rows) != len(values):
                raise ValueError("packets of other columns than their rows")
            packets.append(np.frombuffer(opening.packet, np.uint8))
            table.append(
                (find_address(packets[-1]), len(packets[-1]), opening.offsets[0], opening.widths[0], 0, 0)
            )
            size += len(rows) * len(packets[-1])
        tables = np.array(table, dtype=np.int64), np.array(columns, dtype=np.int64)
        data = np.empty(size, dtype=np.uint8)
        shapes_at, row_bytes = find_address(tables[0]), tables[0].strides[0]
        end_at = shapes_at + len(layouts) * row_bytes
        written = self._core.write_rows(
            *(find_address(block.table), shapes_at, find_address(tables[1]), end_at, end_at + row_bytes),
            *(len(rows), find_address(rows), find_address(values), find_address(data)),
        )
        if written != size:
            raise ValueError("rows that begin a subtrack are not in order")
        return data


def number_columns(
    core: Core, codes: Sequence[NDArray[np.uint32]], rows: Int64s, groups: Sequence[int], most: int
) -> tuple[list[NDArray[np.uint32]], list[NDArray[np.uint32]]]:
    """Number the codes of rows 1, 2, ... in order of appearance.

    Args:
        core: The library.
        codes: Of each column, at most `most`; 0 for null.
        rows: Rows of the columns, in order.
        groups: Of each column: the columns of a group are numbered on.
        most: Largest code.

    Returns:
        The number of each row, column by column, 0 for null; and per column the codes in order of their numbers.

    Raises:
        ValueError: There is no such row, or a code is larger.
    """
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    height = min((len(column) for column in codes), default=0)
    if len(rows) and (rows.min() < 0 or rows.max() >= height):
        raise ValueError("rows beyond the columns")
    held = [np.ascontiguousarray(column, dtype=_NUMBERS) for column in codes]
    count, room = len(rows), min(len(rows), most)
    numbers, used = np.empty((len(held), count), _NUMBERS), np.empty((len(held), room), _NUMBERS)
    addresses = np.array([find_address(column) for column in held], dtype=np.int64)
    groups_of, counts = np.array(groups, dtype=np.int64), np.empty(len(held), dtype=np.int64)
    number_of = np.zeros(most + 1, dtype=_NUMBERS)
    arrays = (addresses, groups_of, numbers, used, number_of, counts)
    sizes = len(held), room, most
    if core.number_columns(count, find_address(rows), *sizes, *(find_address(array) for array in arrays)):
        raise ValueError("a code beyond the table")
    return list(numbers), [own[:distinct] for own, distinct in zip(used, counts.tolist(), strict=True)]


def _width(bits: int) -> int:
    """Return the bytes of a varint."""
    return max(1, -(-bits.bit_length() // 7))
