"""Replacement of the texts of a finished trace: names of rows and events, descriptions, attributes.

Wire format: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import IO, TypeAlias, Union

from zlib_ng import zlib_ng

from nsys_pp.output.perfetto.clocks import compress
from nsys_pp.output.perfetto.protobuf import (
    Attribute,
    Interned,
    InternedData,
    Trace,
    TraceAttributes,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from nsys_pp.output.perfetto.wire import DELIMITED, FIXED64, VARINT, tag, varint

_Fields: TypeAlias = Mapping[int, Union["_Fields", None]]
_FIXED32 = 5  # wire type
_MOST_PACKET_BYTES = 1 << 28  # also decompressed; those of nsys-pp have some MB
_INTERNED: _Fields = {Interned.TEXT: None}
_TEXTS: _Fields = {  # fields that are texts, in the messages that hold them
    TracePacket.TRACK_DESCRIPTOR: {TrackDescriptor.NAME: None, TrackDescriptor.DESCRIPTION: None},
    TracePacket.TRACE_ATTRIBUTES: {TraceAttributes.ATTRIBUTE: {Attribute.KEY: None, Attribute.STRING: None}},
    TracePacket.TRACK_EVENT: {TrackEvent.NAME: None},
    TracePacket.INTERNED_DATA: {
        InternedData.EVENT_NAMES: _INTERNED,
        InternedData.ANNOTATION_NAMES: _INTERNED,
        InternedData.ANNOTATION_STRINGS: _INTERNED,
        InternedData.CORRELATION_STRINGS: _INTERNED,
    },
}

Replace: TypeAlias = Callable[[str], str]


def replace_texts(trace: IO[bytes], *, rows: Replace, events: Replace) -> Iterator[bytes]:
    """Yield the packets of a trace with other texts.

    Args:
        trace: A trace of nsys-pp.
        rows: Replaces a text of the header: names of rows, descriptions, attributes.
        events: Replaces a text of compressed packets: names of events. It is first called with all bytes of a packet as text,
            and packets that it does not change are copied.

    Raises:
        ValueError: It is no trace, or damaged.
    """
    for packet in read_packets(trace):
        fields = list(_read_fields(packet))
        compressed = [data for number, data, _ in fields if number == TracePacket.COMPRESSED_PACKETS]
        if not compressed:
            yield _encode(Trace.PACKET, _rewrite(packet, _TEXTS, rows))
            continue
        plain = _decompress(compressed[0])
        text = plain.decode("latin-1")
        changed = events(text) != text
        yield (
            compress(_rewrite(plain, {Trace.PACKET: _TEXTS}, events))
            if changed
            else _encode(Trace.PACKET, packet)
        )


def read_packets(trace: IO[bytes]) -> Iterator[bytes]:
    """Yield the packets of a trace.

    Raises:
        ValueError: It is no trace, or damaged.
    """
    while first := trace.read(1):
        if first[0] != Trace.PACKET << 3 | DELIMITED:
            raise ValueError("a trace has another field than packets")
        size = shift = 0
        while True:
            byte = trace.read(1)
            if not byte or shift > 63:
                raise ValueError("a packet is cut")
            size |= (byte[0] & 0x7F) << shift
            shift += 7
            if byte[0] < 0x80:
                break
        if size > _MOST_PACKET_BYTES:  # reading would allocate as much
            raise ValueError(f"a packet has {size:,} bytes")
        packet = trace.read(size)
        if len(packet) != size:
            raise ValueError("a packet is cut")
        yield packet


def list_attributes(packet: bytes) -> dict[str, str]:
    """List the attributes of a trace that a packet has, by key; none but in one packet of the header.

    Raises:
        ValueError: It is damaged.
    """
    attributes = {}
    for number, data, _ in _read_fields(packet):
        if number != TracePacket.TRACE_ATTRIBUTES:
            continue
        for _, attribute, _ in _read_fields(data):
            values = {kind: value.decode("utf-8", "replace") for kind, value, _ in _read_fields(attribute)}
            attributes[values.get(Attribute.KEY, "")] = values.get(Attribute.STRING, "")
    return attributes


def read_description(packet: bytes) -> str:
    """Return the description of the row that a packet describes; empty for other packets.

    Raises:
        ValueError: It is damaged.
    """
    for number, data, _ in _read_fields(packet):
        if number == TracePacket.TRACK_DESCRIPTOR:
            for inner, text, _ in _read_fields(data):
                if inner == TrackDescriptor.DESCRIPTION:
                    return text.decode("utf-8", "replace")
    return ""


def decompress_packet(packet: bytes) -> bytes:
    """Return the packets in an encoded packet that `compress` made.

    Raises:
        ValueError: It is damaged, or larger than any packet.
    """
    for number, data, _ in _read_fields(packet):
        for inner, compressed, _ in _read_fields(data):
            if number == Trace.PACKET and inner == TracePacket.COMPRESSED_PACKETS:
                return _decompress(compressed)
    raise ValueError("a packet is not compressed")


def _decompress(data: bytes) -> bytes:
    inflater = zlib_ng.decompressobj()
    try:
        plain: bytes = inflater.decompress(data, _MOST_PACKET_BYTES)
    except zlib_ng.error as error:  # type: ignore[misc]
        raise ValueError("a packet cannot be decompressed") from error
    if not inflater.eof:
        raise ValueError("a packet is cut, or larger than any packet")
    return plain


def _rewrite(message: bytes, texts: _Fields, replace: Replace) -> bytes:
    parts = []
    for number, data, whole in _read_fields(message):
        if number not in texts:
            parts.append(whole)
            continue
        inner = texts[number]
        if inner is not None:
            changed = _rewrite(data, inner, replace)
        else:
            changed = replace(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        # some lengths have more bytes than they need
        parts.append(whole if changed == data else _encode(number, changed))
    return b"".join(parts)


def _read_fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the number of each field, its bytes if it has a length, and the whole field."""
    at = 0
    while at < len(message):
        start = at
        key, at = _read_varint(message, at)
        kind, data = key & 7, b""
        if kind == VARINT:
            _, at = _read_varint(message, at)
        elif kind in (FIXED64, _FIXED32):
            at += 8 if kind == FIXED64 else 4
        elif kind == DELIMITED:
            size, at = _read_varint(message, at)
            data = message[at : at + size]
            at += size
        else:
            raise ValueError("a field is of an unknown kind")
        if at > len(message):
            raise ValueError("a field is cut")
        yield key >> 3, data, message[start:at]


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number is cut")


def _encode(number: int, data: bytes) -> bytes:
    return tag(number, DELIMITED) + varint(len(data)) + data
