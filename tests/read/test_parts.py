"""Frames of parts: read when they are used, joined over parts, and with limits."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED

import polars as pl
import pytest

import nsys_pp
from nsys_pp.arrays.packed_frames import pack_frame
from nsys_pp.frames.part import PART_FRAMES
from tests.cli.calls import RANK0, arguments_of, assert_refused, call
from tests.commands.test_parts import change_frames, rewrite


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("part") / "rank0.nspart"
    nsys_pp.extract([RANK0], output)
    return output


def _bomb(frames: dict[str, bytes]) -> None:
    """Make rows of zeros: a frame of 100 times as many bytes as real ones would have."""
    schema, zeros = PART_FRAMES["gaps"], pl.repeat(0, 2_000_000, eager=True)
    columns = [
        zeros.cast(dtype) if dtype.is_integer() else pl.repeat(None, len(zeros), dtype=dtype, eager=True)
        for dtype in schema.values()
    ]
    frames["gaps"] = zlib.compress(pack_frame(pl.DataFrame(dict(zip(schema, columns, strict=True))), schema))


def _nest(frames: dict[str, bytes]) -> None:
    deep = b"[" * 100_000
    frames["jobs"] = zlib.compress(struct.pack("<I", len(deep)) + deep)


def _mistype(frames: dict[str, bytes]) -> None:
    frames["jobs"] = frames["anchors"]


@pytest.mark.parametrize(
    ("edit", "packing", "command"),
    [
        (_bomb, ZIP_STORED, "pipeline"),
        (_nest, ZIP_STORED, "merge"),
        (_mistype, ZIP_STORED, "pipeline"),
        (lambda _: None, ZIP_DEFLATED, "merge"),
    ],
)
def test_a_hostile_part_is_refused(
    part: Path,
    tmp_path: Path,
    edit: Callable[[dict[str, bytes]], None],
    packing: int,
    command: str,
) -> None:
    hostile = tmp_path / "hostile.nspart"
    rewrite(part, hostile, lambda members: change_frames(members, edit), packing=packing)
    assert_refused(
        call(*arguments_of(command, hostile, folder=tmp_path)), "is damaged, or not a part of nsys-pp"
    )


def test_an_unchanged_part_is_read(part: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.nspart"
    rewrite(part, again, lambda members: change_frames(members, lambda _: None))
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
