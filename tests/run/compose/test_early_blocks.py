"""Blocks of parts that are unpacked early: the trace and its errors stay as they are."""

from __future__ import annotations

import warnings
from pathlib import Path
from threading import Event

import pytest

import nsys_pp
from fixtures import simulate
from nsys_pp.errors import ReportError
from nsys_pp.run import early_blocks


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("early")
    simulate.main([str(folder / "run"), "--steps", "2", "--no-truth"])
    reports = sorted((folder / "run").rglob("*.sqlite"))
    made = [folder / f"{number}.nspart" for number in range(len(reports))]
    for report, part in zip(reports, made, strict=True):
        nsys_pp.extract(report, part)
    return made


def merged(parts: list[Path], output: Path) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nsys_pp.merge(parts, output, force=True)
    return output.read_bytes()


@pytest.mark.parametrize("most_bytes", [1 << 26, 1], ids=["all parts", "the first part alone"])
def test_the_trace_is_the_same(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    expected = merged(parts, tmp_path / "run.pftrace")
    counts: list[int] = []
    done = Event()

    class Waiting(early_blocks.EarlyBlocks):
        """Early blocks that are used when the thread is done: tests do not depend on speed."""

        def unpack(self) -> None:
            super().unpack()
            counts.append(len(self._finished))
            done.set()

        def stop(self) -> None:
            return

        def use(self, reports):  # type: ignore[no-untyped-def]
            assert done.wait(60)
            return super().use(reports)

    monkeypatch.setattr(early_blocks, "_FEWEST_ROWS", 0)
    monkeypatch.setattr(early_blocks, "_MOST_BYTES", most_bytes)
    monkeypatch.setattr(early_blocks, "count_processors", lambda: 2)
    monkeypatch.setattr(early_blocks, "EarlyBlocks", Waiting)
    assert merged(parts, tmp_path / "run.pftrace") == expected
    assert counts == [len(parts) if most_bytes > 1 else 1]


def test_a_damaged_part_is_named_when_the_trace_is_written(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_blocks, "_FEWEST_ROWS", 0)
    monkeypatch.setattr(early_blocks, "count_processors", lambda: 2)
    damaged = tmp_path / "x.nspart"
    data = bytearray(parts[0].read_bytes())
    at = data.index(b"blocks") + 200
    data[at] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(ReportError, match=r"`.*x\.nspart` is damaged"):
        merged([damaged, *parts[1:]], tmp_path / "run.pftrace")
    assert not (tmp_path / "run.pftrace").exists()
