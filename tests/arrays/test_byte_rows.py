"""Numbers and values of rows of bytes that the compiled functions take equal those that were written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nsys_pp.arrays.byte_rows import (
    BYTES,
    INTEGER,
    NULL,
    REAL,
    TEXT,
    ByteRows,
    FieldKind,
    FieldValues,
    check_fields,
    join_slices,
    number_slices,
    read_fields,
    read_number_rows,
    read_numbers,
    read_runs,
)
from nsys_pp.arrays.core import Core, load_core
from tests.arrays.byte_rows import Value, damage_rows, draw_rows, encode_number
from tests.arrays.ways import use_numpy


def find_core() -> Core:
    found = load_core()
    if found is None:
        pytest.skip("no compiled functions: there was no compiler, or `NSYS_PP_CORE=0`")
    return found


def list_values(rows: ByteRows, kind: FieldKind, field: FieldValues) -> list[Value]:
    """List the values of a field, with None for null; an empty text is null."""
    if kind.bits:
        return [None if null else int(value) for value, null in zip(field.values, field.others, strict=True)]
    slices = zip(field.values, field.others, strict=True)
    return [rows.buffer[first : first + length].tobytes() or None for first, length in slices]


@given(st.integers(0, 2**32 - 1))
def test_values_are_those_that_were_written(seed: int) -> None:
    core = find_core()
    rows, codes, kinds, values = draw_rows(seed)
    read = read_number_rows(core, rows.buffer, rows.headers, rows.starts, codes.shape[1])
    assert read is not None
    assert read.tolist() == codes.tolist()
    taken = read_fields(core, rows, codes.shape[1], kinds)
    assert taken is not None
    for kind, field, expected in zip(kinds, taken, values, strict=True):
        found = list_values(rows, kind, field)
        assert found == [value or None if kind.bits == 0 else value for value in expected]
        assert field.null_count == found.count(None)
    joined = join_slices(core, rows.buffer, rows.starts, rows.kept)
    slices = zip(rows.starts, rows.kept, strict=True)
    assert joined.tobytes() == b"".join(rows.buffer[at : at + size].tobytes() for at, size in slices)


def number_in_loop(texts: list[bytes]) -> tuple[list[int], list[int]]:
    """Number texts 1, 2, ... in order of appearance, one without bytes 0: first row of each number, number of each row."""
    known: dict[bytes, int] = {}
    first = []
    for row, text in enumerate(texts):
        if text and text not in known:
            known[text] = len(known) + 1
            first.append(row)
    return first, [known[text] if text else 0 for text in texts]


@given(
    st.lists(st.one_of(st.binary(max_size=3), st.sampled_from([b"", b"12345678", b"12345678\0", b"a" * 21]))),
    st.integers(1, 40),
)
def test_slices_are_numbered_in_order_of_appearance(texts: list[bytes], repeats: int) -> None:
    texts = texts * repeats
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    buffer = np.frombuffer(b"".join(texts), dtype=np.uint8)
    first, numbers = number_slices(find_core(), buffer, np.cumsum(lengths) - lengths, lengths)
    assert (first.tolist(), numbers.tolist()) == number_in_loop(texts)


def test_many_slices_are_numbered() -> None:
    texts = [b"%d" % (row % 70_001) for row in range(150_000)]
    lengths = np.array([len(text) for text in texts])
    buffer = np.frombuffer(b"".join(texts), dtype=np.uint8)
    first, numbers = number_slices(find_core(), buffer, np.cumsum(lengths) - lengths, lengths)
    assert (first.tolist(), numbers.tolist()) == number_in_loop(texts)


def find_kind(code: int) -> int:
    """Find the kind of a field by its code: https://sqlite.org/fileformat2.html, section 2.1."""
    if code >= 12:
        return TEXT if code % 2 else BYTES
    return {0: NULL, 7: REAL, 10: 0, 11: 0}.get(code, INTEGER)


def find_size(code: int) -> int:
    return (code - 12) // 2 if code >= 12 else [0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0][code]


@pytest.mark.parametrize("is_compiled", [False, True])
@given(st.integers(0, 2**32 - 1))
def test_fields_are_checked_as_defined(is_compiled: bool, seed: int) -> None:
    rows, codes, _, _ = draw_rows(seed)
    chance = np.random.Generator(np.random.PCG64(seed))
    kinds = [NULL | INTEGER | REAL | BYTES | TEXT, NULL | INTEGER | TEXT, NULL | INTEGER]
    allowed = chance.choice(kinds, codes.shape[1]).astype(np.uint8)
    sizes = rows.sizes.copy()
    if len(sizes) and chance.random() < 0.5:
        if chance.random() < 0.5:
            sizes[0] += 1
        codes[0, 0] = chance.integers(0, 30)
    expected = (
        all(
            find_kind(code) & kind
            for of_row in codes.tolist()
            for code, kind in zip(of_row, allowed, strict=True)
        )
        and [sum(map(find_size, of_row)) for of_row in codes.tolist()] == sizes.tolist()
    )
    if is_compiled:
        find_core()
    with pytest.MonkeyPatch.context() as patch:
        if not is_compiled:
            use_numpy(patch)
        assert check_fields(codes, allowed, sizes) == expected


@given(st.integers(0, 2**32 - 1))
def test_damaged_rows_are_refused_or_within_the_bytes(seed: int) -> None:
    rows, codes, kinds, _ = draw_rows(seed)
    changed = damage_rows(seed, rows)
    taken = read_fields(find_core(), changed, codes.shape[1], kinds) or []
    for kind, field in zip(kinds, taken, strict=bool(taken)):
        if kind.bits == 0 and len(field.values):
            assert field.values.min() >= 0
            assert (field.values + field.others).max() <= len(rows.buffer)


@given(st.lists(st.integers(0, 2**56 - 1), min_size=3, max_size=9))
def test_successive_numbers_are_read_at_positions(numbers: list[int]) -> None:
    encoded = [encode_number(number) for number in numbers]
    ends = np.cumsum([0, *(len(data) for data in encoded)], dtype=np.int64)
    buffer = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    for count in (1, 2, 3):
        found = read_numbers(find_core(), buffer, ends[:-count], count)
        assert found is not None
        expected = [numbers[place : len(numbers) - count + 1 + place] for place in range(count)]
        assert found[0].tolist() == expected
        assert found[1].tolist() == [
            ends[place + 1 : len(ends) - count + 1 + place].tolist() for place in range(count)
        ]
        assert read_numbers(find_core(), buffer, ends[:-count], count + 1) is None


def test_the_ninth_byte_of_a_number_has_eight_bits() -> None:
    found = read_numbers(find_core(), np.full(9, 255, dtype=np.uint8), np.array([0]))
    assert found is not None
    assert (found[0].tolist(), found[1].tolist()) == ([[-1]], [[9]])


@pytest.mark.parametrize(("data", "at"), [(b"\x81", 0), (b"\x01", 1), (b"\x01", -1), (b"", 0)])
def test_numbers_beyond_the_bytes_are_refused(data: bytes, at: int) -> None:
    buffer = np.frombuffer(data, dtype=np.uint8)
    assert read_numbers(find_core(), buffer, np.array([at])) is None


@given(st.integers(0, 2**32 - 1))
def test_runs_of_numbers_are_within_their_limits(seed: int) -> None:
    random = np.random.Generator(np.random.PCG64(seed))
    numbers = random.integers(0, 1 << 16, 12)
    buffer = np.concatenate([numbers >> 8, numbers & 0xFF]).reshape(2, -1).T.astype(np.uint8).ravel()
    starts, counts, base = random.integers(-1, 9, 3), random.integers(0, 5, 3), random.integers(-9, 9, 3)
    starts, least, most = 2 * starts, random.choice([0, 0, 0, 9_000], 3), int(random.choice([65_535, 60_000]))
    found = read_runs(find_core(), buffer, starts, counts, base, least, most)
    is_within = bool((starts >= 0).all()) and bool((starts + 2 * counts <= len(buffer)).all())
    runs = [numbers[at // 2 : at // 2 + count] for at, count in zip(starts, counts, strict=True)]
    is_within = is_within and all(
        bool((run >= low).all() and (run <= most).all()) for run, low in zip(runs, least, strict=True)
    )
    expected = [run + added for run, added in zip(runs, base, strict=True)]
    assert (None if found is None else found.tolist()) == (
        np.concatenate(expected).tolist() if is_within else None
    )


def write_row(code: int, size: int, *, repeats: int = 1) -> ByteRows:
    """Write rows of one field."""
    header = encode_number(code)
    row = header + bytes(size)
    starts = np.arange(repeats) * len(row)
    sizes = np.full(repeats, size)
    buffer = np.frombuffer(row * repeats + bytes(16), dtype=np.uint8)
    return ByteRows(buffer, starts, starts + len(header), sizes, sizes)


@pytest.mark.parametrize(
    ("code", "bits"), [(7, 64), (10, 64), (11, 64), (13, 64), (5, 32), (6, 32), (1, 0), (9, 0), (10, 0)]
)
def test_values_of_another_kind_are_refused(code: int, bits: int) -> None:
    rows = write_row(code, {7: 8, 5: 6, 6: 8, 1: 1}.get(code, 0))
    assert read_fields(find_core(), rows, 1, [FieldKind(0, bits)]) is None
    assert (read_fields(find_core(), rows, 1, []) is None) == (code in (10, 11))


def test_fields_that_do_not_fill_their_row_are_refused() -> None:
    core, kinds = find_core(), [FieldKind(0, 64)]
    rows = write_row(4, 4, repeats=2)
    assert read_fields(core, rows, 1, kinds) is not None
    for change in (np.array([1, 0]), np.array([0, 1])):  # also of a row with the codes of the row before
        assert read_fields(core, replace(rows, kept=rows.kept - change), 1, kinds) is None
        assert read_fields(core, replace(rows, sizes=rows.sizes + change), 1, kinds) is None
        assert read_fields(core, replace(rows, starts=rows.starts + 40 * change), 1, kinds) is None
        assert read_fields(core, replace(rows, headers=rows.headers - 40 * change), 1, kinds) is None
        assert read_fields(core, replace(rows, headers=rows.headers + 4 * change), 1, kinds) is None
    assert read_fields(core, rows, 2, kinds) is None
    assert read_number_rows(core, rows.buffer, rows.headers, rows.starts + 1, 1) is None


def test_wrong_arguments_do_not_reach_it() -> None:
    core, one = find_core(), np.array([1])
    rows = ByteRows(np.zeros(32, dtype=np.uint8), one, one, one, one)
    for kinds in ([FieldKind(1, 64)], [FieldKind(-1, 64)], [FieldKind(0, 16)]):
        with pytest.raises(ValueError, match="field"):
            read_fields(core, rows, 1, kinds)
    with pytest.raises(ValueError, match="rows of another number"):
        read_fields(core, replace(rows, kept=np.array([1, 1])), 1, [])
    with pytest.raises(ValueError, match="rows with other stops"):
        read_number_rows(core, rows.buffer, one, np.array([1, 1]), 1)
    for counts in (np.array([-1]), np.array([1, 1])):
        with pytest.raises(ValueError, match="runs"):
            read_runs(core, rows.buffer, one, counts, one, one, 1)
    for starts, lengths in ((one, np.array([32])), (one, np.array([-1])), (np.array([-1]), one)):
        with pytest.raises(ValueError, match="a slice"):
            join_slices(core, rows.buffer, starts, lengths)
        with pytest.raises(ValueError, match="a slice"):
            number_slices(core, rows.buffer, starts, lengths)
    with pytest.raises(ValueError, match="slices"):
        number_slices(core, rows.buffer, one, np.array([1, 1]))
