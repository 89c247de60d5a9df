"""Parts of which each checksum is right and the content is not: left out and named by `--keep-going`, before anything is written."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import pytest

import nsys_pp
from nsys_pp.errors import ReportError
from nsys_pp.frames.part import BLOCKS_MEMBER, FACTS_MEMBER, FRAMES_MEMBER
from tests.cli.calls import call

REPORTS = sorted((Path(__file__).parents[2] / "fixtures" / "pipeline").rglob("*.sqlite"))[:3]
pytestmark = [
    pytest.mark.filterwarnings("ignore:of 4 ranks"),
    pytest.mark.filterwarnings("ignore:no operation is shared"),
]
Members = dict[str, bytes]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("parts")
    nsys_pp.extract(REPORTS, folder)
    return sorted(folder.iterdir())


def _rewrite(part: Path, output: Path, change: Callable[[Members], None]) -> Path:
    with ZipFile(part) as archive, ZipFile(output, "w", ZIP_STORED) as changed:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
        change(members)
        for name, data in members.items():
            changed.writestr(name, data)
    return output


def _break_blocks(members: Members, start: bytes, *, skipped: int = 0) -> None:
    """Replace the start of the blocks; the checksums of the archive are right."""
    data = members[BLOCKS_MEMBER]
    members[BLOCKS_MEMBER] = data[:skipped] + start + data[skipped + len(start) :]


def _break_frame(members: Members) -> None:
    """Replace the frame of anchors by bytes that are none."""
    facts = json.loads(members[FACTS_MEMBER])
    frames, at = {}, 0
    for name, size in facts["frame_bytes"].items():
        frames[name], at = members[FRAMES_MEMBER][at : at + size], at + size
    frames["anchors"] = zlib.compress(b"\4\0\0\0none")
    facts["frame_bytes"] = {name: len(frame) for name, frame in frames.items()}
    members[FACTS_MEMBER] = json.dumps(facts).encode()
    members[FRAMES_MEMBER] = b"".join(frames.values())


CHANGES: dict[str, Callable[[Members], None]] = {
    "something else than packets": lambda members: _break_blocks(members, b"\x0b"),
    "a packet of another kind": lambda members: _break_blocks(members, b"\x0a\x02\x50\x01"),
    "a packet without an end": lambda members: _break_blocks(members, b"\x0a" + b"\xff" * 40),
    "a packet longer than its track": lambda members: _break_blocks(members, b"\x0a\xff\xff\x7f"),
    "a frame": _break_frame,
}


@pytest.mark.parametrize("change", CHANGES)
def test_hostile_contents(parts: list[Path], tmp_path: Path, change: str) -> None:
    hostile = _rewrite(parts[1], tmp_path / "rank1.nspart", CHANGES[change])
    output = tmp_path / "run.pftrace"
    with pytest.raises(ReportError, match="is damaged"):
        nsys_pp.merge([parts[0], hostile, parts[2]], output)
    assert not output.exists()
    _assert_left_out(parts, hostile, output)


def test_a_block_that_cannot_be_decompressed(parts: list[Path], tmp_path: Path) -> None:
    def change(members: Members) -> None:
        _break_blocks(members, b"\xff" * 8, skipped=20)

    _assert_left_out(parts, _rewrite(parts[1], tmp_path / "rank1.nspart", change), tmp_path / "run.pftrace")


def _assert_left_out(parts: list[Path], hostile: Path, output: Path) -> None:
    words = f"`{hostile}` is damaged, or not a part of nsys-pp"
    done = nsys_pp.merge([parts[0], hostile, parts[2]], output, keep_going=True)
    assert [(path, error.message) for path, error in done.skipped] == [(hostile, words)]
    kept = output.read_bytes()
    nsys_pp.merge([parts[0], parts[2]], output, force=True)
    assert output.read_bytes() == kept
    checked = call("check", hostile)
    assert checked.code == 5
    assert words in checked.stdout


@pytest.mark.parametrize("command", ["pipeline", "summary", "align"])
def test_tables_of_the_other_parts(parts: list[Path], tmp_path: Path, command: str) -> None:
    hostile = _rewrite(parts[1], tmp_path / "rank1.nspart", _break_frame)
    done = call(command, parts[0], hostile, parts[2], "--keep-going")
    assert done.code == 3, done.stderr
    assert f"skipped {hostile}: `{hostile}` is damaged" in done.stderr


def test_a_part_with_other_options_is_skipped_whichever_is_first(parts: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other.nspart"
    nsys_pp.extract(REPORTS[1], other, detail="jobs")
    for inputs in ([other, parts[0], parts[2]], [parts[0], other, parts[2]]):
        done = nsys_pp.merge(inputs, tmp_path / "run.pftrace", keep_going=True, force=True)
        ((path, error),) = done.skipped
        assert path == other
        assert error.message.startswith(f"`{other}` was made with `--detail jobs")
    with pytest.raises(ReportError, match="is asked for"):
        nsys_pp.merge(parts, tmp_path / "x.pftrace", keep_going=True, detail="cpu")
    assert not (tmp_path / "x.pftrace").exists()
