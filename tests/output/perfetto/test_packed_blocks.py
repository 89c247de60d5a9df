"""Packed blocks: they are the packets that a trace has, and damaged ones are refused."""

from __future__ import annotations

import struct
from io import BytesIO

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zlib_ng import zlib_ng

from nsys_pp.output.perfetto import packed_blocks
from nsys_pp.output.perfetto.packed_blocks import HEAD_BYTES, check_block, pack_block, read_head, unpack_block
from nsys_pp.output.perfetto.packets import PacketBlock, PacketGroup, compress_block
from nsys_pp.output.perfetto.trace import encode_drawing, write_perfetto
from nsys_pp.output.perfetto.wire import field, fixed64, message
from tests.arrays.ways import use_numpy
from tests.output.drawings import encode, random_drawing

WORDS = st.integers(0, 300) | st.integers(0, 2**64 - 1) | st.just(0)
ROWS = st.lists(
    st.tuples(st.integers(0, 2), WORDS, WORDS, st.floats(), st.integers(-(2**63), 3)), max_size=50
)
checked = settings(deadline=None, max_examples=150)


def build_block(rows: list[tuple[int, int, int, float, int]], head: bytes = b"") -> PacketBlock:
    groups = []
    for kind in range(3):
        own = [row for row in rows if row[0] == kind]
        first, second = (np.array([row[i] for row in own], dtype=np.uint64) for i in (1, 2))
        signed, shares = (
            np.array([row[4] for row in own]),
            np.array([row[3] for row in own], dtype=np.float64),
        )
        parts = message(
            1,
            field(2, first),
            field(3, kind),
            *([fixed64(4, shares), field(5, signed)][:kind]),
            field(6, second),
        )
        positions = np.array([at for at, row in enumerate(rows) if row[0] == kind], dtype=np.int64)
        groups.append(PacketGroup(positions=positions, parts=parts))
    return PacketBlock(head=head, groups=groups)


def there_and_back(block: PacketBlock) -> bytes:
    packed = pack_block(block)
    length, checksum = read_head(packed[:HEAD_BYTES])
    assert length == len(packed) - HEAD_BYTES
    return unpack_block(check_block(packed[HEAD_BYTES:], checksum))


@checked
@given(rows=ROWS, head=st.binary(max_size=20))
def test_a_block_comes_back_to_the_byte(rows: list[tuple[int, int, int, float, int]], head: bytes) -> None:
    block = build_block(rows, head)
    assert there_and_back(block) == compress_block(block)


@checked
@given(rows=ROWS, head=st.binary(max_size=20))
def test_compiled_functions_and_numpy_unpack_alike(
    rows: list[tuple[int, int, int, float, int]], head: bytes
) -> None:
    block = build_block(rows, head)
    compiled = there_and_back(block)
    with pytest.MonkeyPatch.context() as patch:
        use_numpy(patch)
        assert there_and_back(block) == compiled


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_packed_drawings_are_the_same_trace(seed: int) -> None:
    drawn = random_drawing(seed)
    expected, packed = encode(drawn), encode(drawn, is_packed=True)
    assert all(report.encoded.is_packed for report in packed)
    assert b"".join(write_perfetto(packed, threads=2)) == b"".join(write_perfetto(expected))
    without = [
        msgspec.structs.replace(
            report,
            placement=msgspec.structs.replace(
                report.placement, rows=dict(list(report.placement.rows.items())[1:])
            ),
        )
        for report in packed
    ]
    as_they_are = [
        msgspec.structs.replace(report, placement=other.placement)
        for report, other in zip(expected, without, strict=True)
    ]
    assert b"".join(write_perfetto(without)) == b"".join(write_perfetto(as_they_are))


def test_the_bytes_do_not_depend_on_threads() -> None:
    drawn, _ = random_drawing(7)[0]
    packed = []
    for threads in (1, 3):
        sink = BytesIO()
        encode_drawing(drawn, sink, is_packed=True, threads=threads)
        packed.append(sink.getvalue())
    assert packed[0] == packed[1] != b""


def test_blocks_of_unusual_shapes_are_stored_as_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = field(2, np.zeros((5, 3), dtype=np.uint8))
    odd = PacketBlock(head=b"x", groups=[PacketGroup(positions=np.arange(5), parts=raw)])
    assert pack_block(odd)[HEAD_BYTES] == 0
    assert there_and_back(odd) == compress_block(odd)
    usual = build_block([(0, 1, 2, 0.5, 3)] * 50)
    assert pack_block(usual)[HEAD_BYTES] == 1
    monkeypatch.setattr(packed_blocks, "MAX_UNPACKED_BYTES", 100)
    assert pack_block(usual)[HEAD_BYTES] == 0


@checked
@given(at=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.integers(1, 10**6))
def test_damaged_blocks_are_packets_or_an_error(at: int, value: int, cut: int) -> None:
    packed = pack_block(build_block([(i % 3, i, i * i, 0.5, -i) for i in range(40)], b"head"))[HEAD_BYTES:]
    inner = bytearray(zlib_ng.decompress(packed[1:]))
    inner[at % len(inner)] = value
    outer = bytearray(packed)
    outer[at % len(packed)] ^= value
    for data in (
        packed[:1] + zlib_ng.compress(bytes(inner)),
        bytes(outer),
        packed[: max(1, cut % len(packed))],
    ):
        try:
            unpack_block(data)
        except ValueError:
            continue


@checked
@given(at=st.integers(0, 10**6), value=st.integers(1, 255))
def test_a_damaged_block_differs_from_its_checksum(at: int, value: int) -> None:
    packed = bytearray(pack_block(build_block([(i % 3, i, i * i, 0.5, -i) for i in range(40)], b"head")))
    _, checksum = read_head(bytes(packed[:HEAD_BYTES]))
    packed[HEAD_BYTES + at % (len(packed) - HEAD_BYTES)] ^= value
    with pytest.raises(ValueError, match="differs from its checksum"):
        check_block(bytes(packed[HEAD_BYTES:]), checksum)


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ([], "no packets"),
        ([[2**40, [b"x" * 100]]], "larger than any"),
        ([[2**40, []]], "larger than any"),
        ([[2**40, [b"x" * 8, [1, False, ["plain", 1, -(2**42), -1]]]]], "invalid"),
        ([[1, [[1, False, ["map", 0, 2**40, -1]]]]], "larger than any"),
        ([[-1, [b"x"]]], "fewer packets"),
        ([[1, [[99, False, ["plain", 1, 1, -1]]]]], "impossible width"),
        ([[1, [[1, False, ["plain", 1, 1, 0]]]]], "later one"),
        ([[1, [[1, False, ["plain", 1, 2, -1]]]]], "short"),
        ([[1, [[1, False, ["plain", 0, 2, -1]]]]], "another length than its group"),
        ([[1, [[1, False, ["plain", 9, 1, -1]]]]], "invalid"),
        ([[1, [[1, False, ["new", 1, 1, -1]]]]], "description"),
    ],
)
def test_descriptions_that_cannot_be(groups: list[object], reason: str) -> None:
    description = msgspec.msgpack.encode([0, groups])
    data = zlib_ng.compress(struct.pack("<I", len(description)) + description + b"\1")
    with pytest.raises(ValueError, match=reason):
        unpack_block(b"\1" + data)


def test_blocks_that_inflate_without_end_are_refused() -> None:
    bomb = zlib_ng.compress(bytes(packed_blocks.MAX_UNPACKED_BYTES + 1), 9)
    with pytest.raises(ValueError, match="larger than any block"):
        unpack_block(b"\1" + bomb)
    with pytest.raises(ValueError, match="impossible length"):
        read_head(struct.pack("<II", packed_blocks.MAX_UNPACKED_BYTES + 1, 0))
    with pytest.raises(ValueError, match="unknown form"):
        unpack_block(b"\7")
    with pytest.raises(ValueError, match="is empty"):
        unpack_block(b"")
