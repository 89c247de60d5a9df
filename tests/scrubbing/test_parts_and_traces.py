"""Scrubbed parts and traces: pseudonyms of machines and GPUs, and nothing else is changed."""

from __future__ import annotations

import re
import sqlite3
import zipfile
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import nsys_pp
from nsys_pp.errors import OptionError, ReportError
from nsys_pp.write.perfetto.texts import list_attributes, read_packets, replace_texts
from tests.cli.calls import assert_refused, call
from tests.unpacking import find_words

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
HOSTS = ("node2", "node10")
UUIDS = ("93023106-c21f-5b7d-a71e-7f206706c2cd", "4efa2c7a-17ed-5e5d-9128-bb613fc4c4c7")

pytestmark = pytest.mark.usefixtures("reports_read_once")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("traces")
    paths = {name: folder / f"run.{name}" for name in ("pftrace", "json", "json.gz")}
    for path in paths.values():
        nsys_pp.merge(PIPELINE, path)
    return paths


@pytest.mark.parametrize("name", ["pftrace", "json", "json.gz"])
def test_a_trace_without_hosts(name: str, traces: dict[str, Path], tmp_path: Path) -> None:
    original, copy = traces[name], tmp_path / f"clean.{name}"
    assert find_words(original.read_bytes(), [*HOSTS, UUIDS[0]]) >= {*HOSTS}
    result = nsys_pp.scrub(original, copy, hosts=True)
    assert result.pseudonyms == {"node2": "host1", "node10": "host2"}
    assert find_words(copy.read_bytes(), [*HOSTS, *UUIDS]) == set()
    assert find_words(copy.read_bytes(), ["host1", "host2"]) == {"host1", "host2"}
    assert call("scrub", original, "-o", copy, "--force").code == 2  # without `--hosts` it would be equal


@pytest.mark.few(2)
@pytest.mark.parametrize("detail", ["jobs", "cpu"])
def test_a_trace_with_its_own_texts_is_the_same(detail: str, tmp_path: Path) -> None:
    """Also where packets are decompressed and compressed again."""
    trace = tmp_path / "run.pftrace"
    nsys_pp.merge(PIPELINE, trace, detail=detail, flows=detail == "cpu")  # type: ignore[arg-type]
    data = trace.read_bytes()
    kept = b"".join(replace_texts(BytesIO(data), rows=str, events=str))
    assert kept == data
    states = [data]
    for old, new in (("a", "\1"), ("\1", "a")) * 2:
        states.append(_swap(states[-1], old, new))
    assert states[1] != data
    assert states[2] == states[4]  # lengths have the bytes that they need, from the first change on
    assert states[1] == states[3]
    assert detail == "cpu" or states[2] == data


def _swap(trace: bytes, old: str, new: str) -> bytes:
    def replace(text: str) -> str:
        return text.replace(old, new)

    return b"".join(replace_texts(BytesIO(trace), rows=replace, events=replace))


def test_names_of_events_are_replaced(tmp_path: Path) -> None:
    report = tmp_path / "rank0.sqlite"
    report.write_bytes((PIPELINE / "node2" / "rank0.sqlite").read_bytes())
    with closing(sqlite3.connect(report)) as connection, connection:
        ((name_id,),) = connection.execute("SELECT shortName FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1")
        connection.execute("UPDATE StringIds SET value = 'kernel of node2' WHERE id = ?", (name_id,))
    trace, copy = tmp_path / "run.pftrace", tmp_path / "clean.pftrace"
    nsys_pp.merge(report, trace)
    nsys_pp.scrub(trace, copy, hosts=True)
    assert find_words(copy.read_bytes(), ["node2", "kernel of host1"]) == {"kernel of host1"}
    part = tmp_path / "rank0.nspart"
    nsys_pp.extract(report, part)
    with pytest.raises(ReportError, match="has the name of a machine in names of its ranges, kernels"):
        nsys_pp.scrub(part, tmp_path / "clean.nspart", hosts=True)
    nsys_pp.scrub(report, tmp_path / "clean.sqlite", hosts=True)
    assert find_words((tmp_path / "clean.sqlite").read_bytes(), ["node2", "kernel of host1"]) == {
        "kernel of host1"
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_parts_without_hosts(tmp_path: Path) -> None:
    nsys_pp.extract(PIPELINE, tmp_path / "parts")
    parts = sorted((tmp_path / "parts").iterdir())
    result = nsys_pp.scrub(parts, tmp_path / "clean", hosts=True)
    for copy in result.copies.values():
        assert find_words(copy.read_bytes(), [*HOSTS, *UUIDS]) == set()
    nsys_pp.merge(tmp_path / "clean", tmp_path / "run.pftrace")
    assert find_words((tmp_path / "run.pftrace").read_bytes(), [*HOSTS, *UUIDS, "host1"]) == {"host1"}
    before, after = nsys_pp.pipeline(parts).tables(), nsys_pp.pipeline(tmp_path / "clean").tables()
    for name, table in before.items():
        named = table.to_dict(as_series=False)
        text = re.sub(r"\bnode2\b", "host1", re.sub(r"\bnode10\b", "host2", repr(named)))
        assert text == repr(after[name].to_dict(as_series=False)), name
    assert_frame_equal(
        nsys_pp.align(parts).clocks.drop("machine"), nsys_pp.align(tmp_path / "clean").clocks.drop("machine")
    )


def test_reports_of_a_run_have_pseudonyms_of_one_call(tmp_path: Path) -> None:
    result = nsys_pp.scrub(sorted(PIPELINE.rglob("*.sqlite")), tmp_path / "clean", hosts=True, paths=True)
    for copy in result.copies.values():
        assert find_words(copy.read_bytes(), [*HOSTS, *UUIDS]) == set()
    before, after = nsys_pp.pipeline(PIPELINE), nsys_pp.pipeline(tmp_path / "clean")
    for name, table in before.tables().items():
        text = re.sub(
            r"\bnode2\b", "host1", re.sub(r"\bnode10\b", "host2", repr(table.to_dict(as_series=False)))
        )
        assert text == repr(after.tables()[name].to_dict(as_series=False)), name


def test_clocks_are_those_of_copies(tmp_path: Path) -> None:
    """A file of clocks has names of machines; it is refused, and the copies of its parts make another one."""
    nsys_pp.extract(PIPELINE, tmp_path / "parts")
    clocks, copies = tmp_path / "run.nsclocks", tmp_path / "clean.nsclocks"
    nsys_pp.align(tmp_path / "parts", clocks)
    refused = call("scrub", clocks, "--hosts", "-o", tmp_path / "other.nsclocks")
    assert_refused(
        refused, f"`{clocks}` has the clocks of a run, and `scrub` copies reports, parts and traces"
    )
    nsys_pp.scrub(tmp_path / "parts", tmp_path / "clean", hosts=True)
    nsys_pp.align(tmp_path / "clean", copies)
    with zipfile.ZipFile(clocks) as old, zipfile.ZipFile(copies) as new:
        assert find_words(b"".join(map(old.read, old.namelist())), HOSTS) == {*HOSTS}
        assert find_words(b"".join(map(new.read, new.namelist())), HOSTS) == set()
    nsys_pp.merge(tmp_path / "clean", tmp_path / "run.pftrace", clocks=copies)


def test_options_that_change_nothing_are_refused(traces: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="needs reports"):
        nsys_pp.scrub(traces["pftrace"], tmp_path / "a.pftrace", hosts=True, users=True)
    for name, data in (
        ("a.pftrace", b"\x0a\x05abc"),
        ("b.pftrace", b"junk"),
        ("c.json", b"[]"),
        ("d.json.gz", b"x"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        assert_refused(
            call("scrub", path, "-o", tmp_path / f"clean.{name}", "--hosts"),
            "is damaged, or not a trace of nsys-pp",
        )
    assert len([*tmp_path.iterdir()]) == 4


def test_a_packet_that_claims_exabytes_is_refused() -> None:
    with pytest.raises(ValueError, match="a packet has 9,223,372,036,854,775,807 bytes"):
        next(read_packets(BytesIO(b"\x0a" + b"\xff" * 8 + b"\x7f")))


@given(data=st.binary(max_size=60))
def test_bytes_that_are_no_trace(data: bytes) -> None:
    for body in (data, b"\x0a" + bytes([len(data)]) + data):
        try:
            for packet in read_packets(BytesIO(body)):
                list_attributes(packet)
            b"".join(replace_texts(BytesIO(body), rows=str, events=str))
        except ValueError:
            continue
