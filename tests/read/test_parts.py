"""Frames of parts: read when they are used, joined over parts, and with limits."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import nsys_pp
from nsys_pp.arrays.packed_frames import decode_frame, pack_frame
from nsys_pp.errors import ReportError
from nsys_pp.frames.part import (
    FACTS_MEMBER,
    FRAMES_MEMBER,
    METRIC_FRAMES,
    PART_FRAMES,
    SUBTRACKS,
    EncodedSubtrack,
    Part,
    PartOptions,
    list_subtracks,
    read_subtracks,
)
from nsys_pp.output.blocks import write_part
from nsys_pp.read import parts as reading
from nsys_pp.read import read_part
from nsys_pp.read.parts import PackedFrames, concat_frames, list_frames
from nsys_pp.run.report import extract_report
from tests.cli.calls import assert_refused, call

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
REPORTS = [PIPELINE / "node2" / "rank0.sqlite", PIPELINE / "node10" / "rank3.sqlite"]
NUMBERS = st.integers(-(2**63), 2**63 - 1)

SUBTRACK = st.builds(
    EncodedSubtrack,
    track=st.lists(st.text(max_size=5) | st.sampled_from(["a\0b", '"', ""]), max_size=3).map(tuple),
    ordinal=NUMBERS,
    kind=st.sampled_from(["slices", "marks", "counter"]),
    rows=NUMBERS,
    first_ns=NUMBERS,
    last_ns=NUMBERS,
    size_bytes=NUMBERS,
)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Part]:
    paths = []
    for number, report in enumerate(REPORTS):
        path = tmp_path_factory.mktemp("parts") / f"{number}.nspart"
        write_part(path, partial(extract_report, report, PartOptions(detail="jobs"), nsys=None), force=False)
        paths.append(path)
    return [read_part(path, version="1") for path in paths]


@settings(deadline=None, max_examples=80)
@given(subtracks=st.lists(SUBTRACK, max_size=8))
def test_subtracks_come_back(subtracks: list[EncodedSubtrack]) -> None:
    frame = list_subtracks(subtracks)
    assert frame.schema == SUBTRACKS
    decoded = decode_frame(pack_frame(frame, SUBTRACKS, measure=len), SUBTRACKS)
    assert read_subtracks(decoded.list_values(SUBTRACKS)) == subtracks


def test_a_subtrack_without_a_field_is_refused() -> None:
    frame = list_subtracks(
        [EncodedSubtrack(track=("a",), ordinal=0, kind="marks", rows=1, first_ns=0, last_ns=0, size_bytes=0)]
    ).with_columns(rows=pl.lit(None, pl.Int64))
    decoded = decode_frame(pack_frame(frame, SUBTRACKS, measure=len), SUBTRACKS)
    with pytest.raises(ValueError, match="`rows` is null"):
        decoded.list_values(SUBTRACKS)


@pytest.mark.parametrize(
    "name", [name for name in PART_FRAMES if name not in {"subtracks", "mpi_messages", *METRIC_FRAMES}]
)
def test_frames_of_parts_are_joined(name: str, parts: list[Part]) -> None:
    packed = [part.frames for part in parts]
    assert all(isinstance(frames, PackedFrames) for frames in packed)
    expected = pl.concat([frames[name] for frames in packed])
    mixed = [packed[0], {name: packed[1][name]}]
    for frames in (packed, mixed):
        frame, sizes = concat_frames(frames, name)
        assert_frame_equal(frame, expected, check_exact=True)
        assert frame.schema == PART_FRAMES[name]
        assert sizes == [len(of_part[name]) for of_part in packed]
        listed = list_frames(frames, name)
        assert len(listed) == len(frames)
        for own, of_part in zip(listed, packed, strict=True):
            assert_frame_equal(own, of_part[name], check_exact=True)
    assert list_frames([], name) == []


def test_a_frame_is_decoded_when_it_is_used(parts: list[Part], tmp_path: Path) -> None:
    frames = parts[0].frames
    assert frames["jobs"] is not frames["jobs"]  # not kept: a run has thousands of parts
    broken = PackedFrames({"jobs": b"x", "steps": b""}, tmp_path / "x.nspart")
    for name in broken:
        with pytest.raises(ReportError, match=r"x\.nspart` is damaged"):
            broken[name]
        with pytest.raises(ReportError, match=r"x\.nspart` is damaged"):
            concat_frames([frames, broken], name)
        with pytest.raises(ReportError, match=r"x\.nspart` is damaged"):
            list_frames([frames, broken], name)
    with pytest.raises(KeyError):
        frames["projections"]


def test_facts_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.nspart"
    write_part(path, partial(extract_report, REPORTS[0], PartOptions(), nsys=None), force=False)
    monkeypatch.setattr(reading, "_MOST_FACTS_BYTES", 100)
    with pytest.raises(ReportError, match="is damaged"):
        read_part(path, version="1")


RANK0 = Path(__file__).parents[2] / "fixtures" / "pipeline" / "node2" / "rank0.sqlite"
_GIB = 1 << 30


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("part") / "rank0.nspart"
    nsys_pp.extract([RANK0], output)
    return output


def _rewrite(
    part: Path, output: Path, edit: Callable[[dict[str, Any], dict[str, bytes]], None], packing: int
) -> None:
    with ZipFile(part) as archive, ZipFile(output, "w", ZIP_STORED) as changed:
        facts = json.loads(archive.read(FACTS_MEMBER))
        data, at, frames = archive.read(FRAMES_MEMBER), 0, {}
        for name, size in facts["frame_bytes"].items():
            frames[name], at = data[at : at + size], at + size
        edit(facts, frames)
        facts["frame_bytes"] = {name: len(frame) for name, frame in frames.items()}
        for info in archive.infolist():
            content = archive.read(info)
            if info.filename == FACTS_MEMBER:
                content = json.dumps(facts).encode()
            if info.filename == FRAMES_MEMBER:
                content = b"".join(frames.values())
            changed.writestr(
                info.filename, content, packing if info.filename == FRAMES_MEMBER else info.compress_type
            )


def _bomb(facts: dict[str, Any], frames: dict[str, bytes]) -> None:
    packer = zlib.compressobj(9)
    zeros = bytes(1 << 24)
    frames["jobs"] = b"".join(packer.compress(zeros) for _ in range(5 * _GIB // len(zeros))) + packer.flush()


def _nest(facts: dict[str, Any], frames: dict[str, bytes]) -> None:
    deep = b"[" * 100_000
    frames["jobs"] = zlib.compress(struct.pack("<I", len(deep)) + deep)


def _mistype(facts: dict[str, Any], frames: dict[str, bytes]) -> None:
    frames["jobs"] = frames["anchors"]


@pytest.mark.parametrize(
    ("edit", "packing"),
    [(_bomb, ZIP_STORED), (_nest, ZIP_STORED), (_mistype, ZIP_STORED), (lambda *_: None, ZIP_DEFLATED)],
)
def test_a_hostile_part_is_refused(
    part: Path, tmp_path: Path, edit: Callable[[dict[str, Any], dict[str, bytes]], None], packing: int
) -> None:
    hostile = tmp_path / "hostile.nspart"
    _rewrite(part, hostile, edit, packing)
    for command in (["merge", "-o", tmp_path / "run.pftrace"], ["pipeline"]):
        assert_refused(call(*command, hostile), "is damaged, or not a part of nsys-pp")


def test_an_unchanged_part_is_read(part: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.nspart"
    _rewrite(part, again, lambda *_: None, ZIP_STORED)
    assert call("pipeline", again).code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "[" * 100_000, "is nested too deeply"),
        ("a = " + "{b = " * 50_000, "is nested too deeply"),
        ("#" * ((1 << 20) + 1), "is larger than 1 MiB"),
    ],
)
def test_hostile_rules_are_refused(tmp_path: Path, text: str, words: str) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(text)
    assert_refused(call("pipeline", RANK0, "--preset", rules), words)
