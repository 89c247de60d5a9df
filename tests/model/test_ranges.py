"""NVTX as it is: names, domains, categories, colours, payloads, and ranges that never ended."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.conform import NAME
from nsys_pp.frames.raw import SCHEMAS
from nsys_pp.frames.report import MARKS, RANGES, Report
from nsys_pp.model import build_report
from nsys_pp.model.names import resolve
from nsys_pp.read import read_report
from tests.read.tables import THREAD, Row, push_pop, strings, write_export

OTHER = (1 << 48) | (5000 << 24)


def _report(tmp_path: Path, events: list[Row], **tables: Sequence[Row]) -> Report:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite"
    return build_report(read_report(write_export(path, {"NVTX_EVENTS": events, **tables})))


def _texts(frame: pl.DataFrame, column: str) -> list[str | None]:
    return frame[column].cast(pl.String).to_list()


@pytest.mark.filterwarnings("ignore:.*left out")
def test_kinds(tmp_path: Path) -> None:
    events = [
        push_pop(i, i + 1, eventType=kind)
        for i, kind in enumerate((59, 60, 70, 71, 34, 33, 39, 75, 76, 65, 99))
    ]
    report = _report(tmp_path, events)
    assert report.ranges.select("range_id", pl.col("kind").cast(pl.String)).rows() == [
        (1, "push_pop"),
        (2, "start_end"),
        (3, "push_pop"),
        (4, "start_end"),
    ]
    assert report.marks["mark_id"].to_list() == [5]
    assert (report.ranges.schema, report.marks.schema) == (RANGES, MARKS)


def test_names_are_registered_or_written_or_absent(tmp_path: Path) -> None:
    events = [
        push_pop(0, 1, textId=1),
        push_pop(2, 3, text="written"),
        push_pop(4, 5),
        push_pop(6, 7, textId=99),
    ]
    report = _report(tmp_path, events, StringIds=strings("secret", "registered"))
    assert _texts(report.ranges, "name") == ["registered", "written", None, None]


def test_domains_are_numbered_by_process(tmp_path: Path) -> None:
    def create(domain: int, thread: int, **name: object) -> Row:
        return push_pop(0, None, eventType=75, domainId=domain, globalTid=thread, **name)

    events = [
        create(1, THREAD, text="mine"),
        create(1, OTHER | 9, text="theirs"),
        create(2, THREAD, textId=0),
        *(push_pop(i, i + 1, domainId=domain) for i, domain in enumerate((0, None, 1, 2, 3))),
        push_pop(8, 9, domainId=1, globalTid=OTHER | 7),
        push_pop(9, 10, domainId=2, globalTid=OTHER | 7),
    ]
    report = _report(tmp_path, events, StringIds=strings("by id"))
    assert _texts(report.ranges, "domain") == [None, None, "mine", "by id", "domain 3", "theirs", "domain 2"]


def test_categories_are_numbered_by_domain(tmp_path: Path) -> None:
    def name(category: int, domain: int, text: str) -> Row:
        return push_pop(0, None, eventType=33, domainId=domain, category=category, text=text)

    events = [name(1, 0, "io"), name(1, 1, "math")]
    events += [
        push_pop(i, i + 1, domainId=d, category=c)
        for i, (d, c) in enumerate(((0, 1), (1, 1), (1, 2), (0, 0), (0, None)))
    ]
    assert _texts(_report(tmp_path, events).ranges, "category") == ["io", "math", "2", None, None]


@pytest.mark.parametrize(
    ("color", "expected"),
    [
        (None, None),
        (0x80123456, 0x80123456),
        (0x123456, 0xFF123456),
        (0, 0xFF000000),
        (0xFFFFFFFF, 0xFFFFFFFF),
    ],
)
def test_colours_without_alpha_are_opaque(tmp_path: Path, color: int | None, expected: int | None) -> None:
    assert _report(tmp_path, [push_pop(0, 1, color=color)]).ranges["color_argb"].to_list() == [expected]


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("uint64Value", -1, "18446744073709551615"),
        ("uint64Value", 7, "7"),
        ("int64Value", -(2**63), "-9223372036854775808"),
        ("doubleValue", 0.1, "0.1"),
        ("uint32Value", 4294967295, "4294967295"),
        ("uint32Value", -1, "4294967295"),
        ("int32Value", -7, "-7"),
        ("floatValue", struct.unpack("f", struct.pack("f", 1.1))[0], "1.1"),
        ("jsonText", '{"a": 1}', '{"a": 1}'),
        ("jsonTextId", 0, '{"b": 2}'),
        ("binaryData", b"\x01\xff", "01ff"),
    ],
)
def test_payloads(tmp_path: Path, column: str, value: object, expected: str) -> None:
    events = [
        push_pop(0, 1),
        push_pop(2, 3, **{column: value}),
        push_pop(4, None, eventType=34, **{column: value}),
    ]
    report = _report(tmp_path, events, StringIds=strings('{"b": 2}'))
    assert report.ranges["payload"].to_list() == [None, expected]
    assert report.marks["payload"].to_list() == [expected]


_NCCL = [
    {"domainId": 1, "schemaId": 9, "idx": 0, "type": 18, "name": "NCCL communicator ID", "offset": None},
    {"domainId": 1, "schemaId": 9, "idx": 1, "type": 22, "name": "Message size [bytes]", "offset": 8},
    {"domainId": 1, "schemaId": 9, "idx": 2, "type": 5, "name": "Peer rank", "offset": 16},
    {"domainId": 1, "schemaId": 9, "idx": 3, "type": 16777232, "name": "Reduction operation", "offset": 20},
]


def _structure(schema: int, data: bytes) -> bytes:
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(data), 32 + len(data)) + data


def test_a_simple_structure_is_read_by_its_layout(tmp_path: Path) -> None:
    first = _structure(9, struct.pack("<QQiI", 2**64 - 1, 1 << 40, -1, 3))
    second = _structure(9, struct.pack("<QQiI", 5, 6, 7, 8))
    unknown, short = _structure(8, b"\1\2"), _structure(9, b"\1\2")
    events = [push_pop(i, i + 1, binaryData=data) for i, data in enumerate((first, unknown, second, short))]
    fields = [{"arrayOrUnionDetail": None, **field} for field in _NCCL * 2]  # each process writes them
    payloads = _report(tmp_path, events, NVTX_PAYLOAD_SCHEMA_ENTRIES=fields).ranges["payload"].to_list()
    names = [str(field["name"]) for field in _NCCL]
    assert json.loads(payloads[0]) == dict(zip(names, (2**64 - 1, 1 << 40, -1, 3), strict=True))
    assert json.loads(payloads[2]) == dict(zip(names, (5, 6, 7, 8), strict=True))
    assert [payloads[1], payloads[3]] == [unknown.hex(), short.hex()]


@pytest.mark.parametrize("change", [{"type": 0}, {"type": 77}, {"arrayOrUnionDetail": 4}])
def test_a_structure_that_is_not_simple_stays_as_it_is(tmp_path: Path, change: dict[str, int]) -> None:
    data = _structure(9, struct.pack("<QQiI", 1, 2, 3, 4))
    fields = [{"arrayOrUnionDetail": None, **field} for field in _NCCL]
    fields[1] = {**fields[1], **change}
    report = _report(tmp_path, [push_pop(0, 1, binaryData=data)], NVTX_PAYLOAD_SCHEMA_ENTRIES=fields)
    assert report.ranges["payload"].to_list() == [data.hex()]


def test_ranges_that_never_ended_are_open(tmp_path: Path) -> None:
    events = [
        push_pop(0, 500),
        push_pop(10, None),
        push_pop(20, 1000),
        push_pop(30, 999),
        push_pop(600, None),
    ]
    ranges = _report(tmp_path, events).ranges
    assert ranges.select("end_ns", "is_open").rows() == [
        (500, False),
        (1000, True),
        (1000, False),
        (999, False),
        (1000, True),
    ]
    details = [{"globalVid": 1, "duration": 1000, "startTime": 0, "stopTime": 1}]
    ranges = _report(tmp_path, events, ANALYSIS_DETAILS=details).ranges
    assert ranges["is_open"].to_list() == [False, True, True, False, True]


def test_a_start_can_be_the_last_moment_of_all(tmp_path: Path) -> None:
    events = [push_pop(0, 5), push_pop(700, None), push_pop(900, None, eventType=34)]  # marks do not count
    assert _report(tmp_path, events).ranges["end_ns"].to_list() == [5, 700]


def test_the_end_of_the_capture_moves_with_the_shift_of_the_export(tmp_path: Path) -> None:
    facts = [{"name": "EXPORT_CONFIG_TIME_SHIFT", "value": "5000"}]
    details = [{"globalVid": 1, "duration": 1000, "startTime": 0, "stopTime": 1}]
    events = [push_pop(5000, 6000), push_pop(5000, 5500), push_pop(900, 1000)]
    report = _report(tmp_path, events, ANALYSIS_DETAILS=details, META_DATA_EXPORT=facts)
    assert (report.session.capture_end_ns, report.ranges["is_open"].to_list()) == (6000, [True, False, False])


def test_a_range_that_ends_on_another_thread_says_so(tmp_path: Path) -> None:
    ends = (None, THREAD, THREAD + 1)
    events = [push_pop(i, i + 1, eventType=60, endGlobalTid=end) for i, end in enumerate(ends)]
    assert _report(tmp_path, events).ranges["end_thread_key"].to_list() == [None, None, THREAD + 1]


def test_hosts_with_the_sign_bit_are_processes_like_others(tmp_path: Path) -> None:
    thread = ((254 << 56) | (1 << 48) | (77 << 24) | 78) - (1 << 64)
    report = _report(tmp_path, [push_pop(0, 1, globalTid=thread)])
    assert report.processes.select("process_key", "pid").rows() == [(thread - 78, 77)]
    assert report.threads.select("thread_key", "process_key", "tid").rows() == [(thread, thread - 78, 78)]


_IDS = st.integers(-3, 9) | st.sampled_from([-(1 << 31), (1 << 31) - 1])


@settings(deadline=None, max_examples=100)
@given(
    rows=st.lists(st.tuples(st.none() | _IDS, st.none() | st.sampled_from("abc")), max_size=8)
    | st.integers(0, 6).map(lambda count: [(number, f"name {number}") for number in range(count)]),
    ids=st.lists(st.none() | _IDS, max_size=12),
    dtype=st.sampled_from([NAME, pl.String()]),
)
def test_a_name_is_that_of_the_first_string_with_its_id(
    rows: list[tuple[int | None, str | None]], ids: list[int | None], dtype: pl.DataType
) -> None:
    strings = pl.DataFrame(rows, schema=SCHEMAS["strings"], orient="row")
    first: dict[int | None, str | None] = {}
    for number, text in rows:
        first.setdefault(number, text)
    first[None] = None
    named = resolve(pl.Series("ids", ids, dtype=pl.Int32), strings, dtype=dtype)
    assert (named.name, named.dtype) == ("ids", dtype)
    assert named.cast(pl.String).to_list() == [first.get(number) for number in ids]
