"""Random rows of bytes: a header of numbers, and a value for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsys_pp.arrays.byte_rows import ByteRows, FieldKind

SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes of an integer by its code
Value = int | bytes | None


def draw_rows(seed: int) -> tuple[ByteRows, NDArray[np.int32], list[FieldKind], list[list[Value]]]:
    """Draw rows of fields, some of them with the codes of the row before.

    Returns:
        The rows, the codes of their fields, fields to take, and the values of these by field.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    width, count = int(random.integers(1, 8)), int(random.integers(0, 12))
    bits = random.choice([0, 32, 64], width)
    data, headers, starts, sizes = bytearray(), [], [], []
    codes = np.zeros((count, width), dtype=np.int32)
    values: list[list[Value]] = [[] for _ in range(width)]
    for row in range(count):
        packed, is_repeated = b"", row > 0 and random.random() < 0.5
        for column in range(width):
            like = int(codes[row - 1, column]) if is_repeated else None
            codes[row, column], value = _draw_field(random, int(bits[column]), like)
            values[column].append(value)
            if isinstance(value, bytes):
                packed += value
            elif value is not None and codes[row, column] < 8:
                packed += value.to_bytes(SIZES[int(codes[row, column])], "big", signed=True)
        data += random.bytes(int(random.integers(0, 5)))
        headers.append(len(data))
        data += b"".join(encode_number(int(code)) for code in codes[row])
        starts.append(len(data))
        sizes.append(len(packed))
        data += packed
    buffer = np.frombuffer(bytes(data) + bytes(16), dtype=np.uint8)
    taken = [column for column in range(width) if random.random() < 0.7]
    return (
        ByteRows(buffer, *map(_as_array, (headers, starts, sizes, sizes))),
        codes,
        [FieldKind(column, int(bits[column])) for column in taken],
        [values[column] for column in taken],
    )


def damage_rows(seed: int, rows: ByteRows) -> ByteRows:
    """Replace some bytes, positions and lengths by any others."""
    random = np.random.Generator(np.random.PCG64(seed))

    def change(values: NDArray[Any], most: int) -> NDArray[Any]:
        changed = values.copy()
        if changed.size:
            wild = [0, 1, most, -1, 200, len(rows.buffer), int(random.integers(0, most))]
            changed.flat[random.integers(0, changed.size)] = random.choice(wild)
        return changed

    far = (1 << 63) - 1
    columns = (change(column, far) for column in (rows.headers, rows.starts, rows.kept, rows.sizes))
    buffer = rows.buffer.copy()
    buffer[random.integers(0, len(buffer), 2)] = random.integers(0, 256, 2)
    return ByteRows(buffer, *columns)


def encode_number(number: int) -> bytes:
    """Encode a number of fewer than 57 bits, seven bits a byte."""
    encoded = [number & 0x7F]
    while number := number >> 7:
        encoded.insert(0, number & 0x7F | 0x80)
    return bytes(encoded)


def _draw_field(random: np.random.Generator, bits: int, like: int | None) -> tuple[int, Value]:
    """Draw the code and the value of a field; like: the code, None: any."""
    if like == 0 or (like is None and random.random() < 0.2):
        return 0, None
    if bits == 0:
        text = random.bytes(int(random.integers(0, 200)) if like is None else (like - 13) // 2)
        return 13 + 2 * len(text), text
    codes = [1, 2, 3, 4, 8, 9] if bits == 32 else [1, 2, 3, 4, 5, 6, 8, 9]
    code = int(random.choice(codes)) if like is None else like
    if code >= 8:
        return code, code - 8
    half = 1 << (8 * SIZES[code] - 1)
    return code, int(random.integers(-half, half - 1, endpoint=True))


def _as_array(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)
