"""Outputs appear whole or not at all, and stores of blocks give back what was written."""

from __future__ import annotations

import errno
import os
import signal
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.errors import OutputError
from nsys_pp.output.blocks import OpenBlocks, Store, make_scratch
from nsys_pp.output.files import check_output, hold_interrupts, open_output, replace_file, translate_errors


def test_nothing_is_there_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    with replace_file(path, force=False) as beside:
        beside.write_bytes(b"new")
        assert beside.parent == tmp_path
        assert not path.exists()
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"new", [path])


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, GeneratorExit])
@pytest.mark.parametrize("is_there", [True, False])
def test_whatever_ends_it_early_leaves_all_as_it_was(
    tmp_path: Path, error: type[BaseException], is_there: bool
) -> None:
    path = tmp_path / "x.bin"
    if is_there:
        path.write_bytes(b"old")

    def write_half() -> None:
        with replace_file(path, force=True) as beside:
            beside.write_bytes(b"half")
            raise error

    with pytest.raises(error):
        write_half()
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == ([b"old"] if is_there else [])


def test_an_output_that_appears_meanwhile_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with replace_file(path, force=False) as beside:
        beside.write_bytes(b"ours")
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"ours"


@pytest.mark.parametrize(
    ("umask", "source", "mode"),
    [
        *[
            (0o022, None, 0o644),
            (0o077, None, 0o600),
            (0o002, None, 0o664),
            (0, None, 0o666),
            (0o277, None, 0o400),
        ],
        *[(0o022, 0o600, 0o600), (0o022, 0o640, 0o640), (0o022, 0o444, 0o644), (0o022, 0o666, 0o644)],
    ],
)
def test_permissions_are_those_of_any_new_file_and_a_copy_is_as_private_as_its_original(
    tmp_path: Path, umask: int, source: int | None, mode: int
) -> None:
    original = tmp_path / "original"
    original.touch()
    original.chmod(source or 0)
    before = os.umask(umask)
    try:
        copied_from = None if source is None else original
        with replace_file(tmp_path / "x", force=False, copied_from=copied_from) as beside:
            assert stat.S_IMODE(beside.stat().st_mode) == 0o600
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == mode


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_a_link(tmp_path: Path, is_there: bool) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    link.symlink_to(Path("far") / "target")
    if is_there:
        target.write_bytes(b"old")
        with pytest.raises(OutputError, match=f"`{link}` exists"):
            check_output(link, force=False)
    with replace_file(link, force=True) as beside:
        assert beside.parent == target.parent
        beside.write_bytes(b"new")
    assert link.is_symlink()
    assert (target.read_bytes(), list(target.parent.iterdir())) == (b"new", [target])


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with replace_file(pipe, force=False) as path:
        path.write_bytes(b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert list(tmp_path.iterdir()) == [pipe]


def test_an_interrupt_waits_until_all_files_are_in_place() -> None:
    def write() -> None:
        with hold_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("all")

    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        write()
    assert done == ["all"]


@pytest.mark.parametrize("name", ["n" * 255, "前" * 85, "." + "x" * 200 + ".sqlite"])
def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path, name: str) -> None:
    with replace_file(tmp_path / name, force=False) as beside:
        beside.write_bytes(b"new")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_cannot_be_written_is_known_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path, words in [
        (tmp_path, "it is a folder"),
        (tmp_path / "no" / "x", "its folder does not exist"),
        (tmp_path / "file" / "x", "its folder is a file"),
        (tmp_path / "file", "exists"),
    ]:
        with pytest.raises(OutputError, match=words) as raised:
            check_output(path, force=False)
        assert f"`{path}`" in raised.value.message
        assert raised.value.hint
    check_output(tmp_path / "file", force=True)
    check_output(tmp_path / "new", force=False)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "your disk quota is used up"),
        (errno.EACCES, "permission denied"),
        (errno.EROFS, "the file system is read-only"),
        (errno.ELOOP, os.strerror(errno.ELOOP)),
    ],
)
def test_errors_of_the_system_become_sentences(number: int, words: str) -> None:
    with pytest.raises(OutputError, match=f"cannot write `x`: {words}"), translate_errors(Path("x")):
        raise OSError(number, os.strerror(number))


def test_a_reader_that_left_is_no_error_of_the_output() -> None:
    with pytest.raises(BrokenPipeError), translate_errors(Path("x")):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_library_cannot_hide_why_it_failed() -> None:
    def write() -> None:
        with open_output(Path("/dev/full")) as stream:
            try:
                stream.write(b"x" * 1_000_000)
            except OSError as error:
                raise RuntimeError("something went wrong") from error

    with pytest.raises(OSError, match="No space left") as raised:
        write()
    assert raised.value.errno == errno.ENOSPC


def read(open_blocks: OpenBlocks, size: int, piece: int) -> bytes:
    """Read the first bytes of blocks, in pieces of at most some size."""
    data = b""
    with open_blocks() as source:
        while len(data) < size:
            wanted = min(piece, size - len(data))
            block = source.read(wanted)
            assert 0 < len(block) <= wanted
            data += block
    return data


@given(
    reports=st.lists(st.lists(st.binary(min_size=1, max_size=9), max_size=5), min_size=1, max_size=4),
    piece=st.integers(1, 12),
    data=st.data(),
)
def test_reports_are_read_as_they_were_written(
    reports: list[list[bytes]], piece: int, data: st.DataObject
) -> None:
    failing = data.draw(st.sets(st.integers(0, len(reports) - 1)))
    output = Path("/dev/null")
    with make_scratch(output) as folder:
        store = Store(folder, output)
        added = {}
        for number, blocks in enumerate(reports):
            try:
                with store.add() as (sink, open_blocks):
                    for block in blocks:
                        sink.write(block)
                    if number in failing:
                        raise InterruptedError
            except InterruptedError:
                continue
            added[b"".join(blocks)] = open_blocks
        for whole, open_blocks in added.items():
            assert read(open_blocks, len(whole), piece) == whole


def test_the_umask_of_the_process_is_never_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads would create files with it."""
    monkeypatch.setattr(os, "umask", None)
    with replace_file(tmp_path / "a", force=False) as path:
        path.write_text("x")
    assert (tmp_path / "a").read_text() == "x"
