"""Parts stand for their reports: the same trace to the byte, whatever happens between."""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nsys_pp
from fixtures.recording.export import Session, write_report
from nsys_pp.arrays.packed_frames import pack_frame
from nsys_pp.errors import MissingDataError, OutputError, ReportError
from nsys_pp.frames.part import (
    BLOCKS_MEMBER,
    FACTS_MEMBER,
    FORMAT,
    FRAMES_MEMBER,
    PART_FRAMES,
)
from nsys_pp.read import find_reports, read_part
from tests.cli.calls import PIPELINE, REPORTS, call
from tests.trace.test_shown import EPOCH_NS, LAUNCHER, ON_GPU, write_without_gpus

PAIR = REPORTS[1::2]  # GPU 1 of each machine
Members = dict[str, bytes]
ASKED: list[dict[str, Any]] = [
    {},
    {"detail": "jobs"},
    {"detail": "ranges", "ops": ("memcpy", "memset"), "scope": "process"},
    {"detail": "cpu", "flows": True},
]


def extract_into(folder: Path, reports: Iterable[Path] = REPORTS, **asked: Any) -> list[Path]:
    folder.mkdir(exist_ok=True)
    return [part.output for part in nsys_pp.extract(list(reports), folder, **asked).parts]


@pytest.fixture(scope="module")
def extract_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Path]]:
    """Extract the parts of `PAIR` once for each set of options."""

    @cache
    def extract(**asked: Any) -> list[Path]:
        return extract_into(tmp_path_factory.mktemp("parts"), PAIR, **asked)

    return extract


def merged(inputs: Iterable[Path], trace: Path, **asked: Any) -> bytes:
    nsys_pp.merge(list(inputs), trace, **asked)
    return trace.read_bytes()


@pytest.mark.few(2)
@pytest.mark.filterwarnings("ignore:of 4 ranks")
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.get("detail", "default"))
@pytest.mark.parametrize("devices", [None, frozenset({1})], ids=["all", "device 1"])
def test_parts_merge_to_the_trace_of_their_reports(
    asked: dict[str, Any],
    devices: frozenset[int] | None,
    extract_once: Callable[..., list[Path]],
    tmp_path: Path,
) -> None:
    parts = extract_once(**asked)
    (tmp_path / "a").mkdir()
    expected = merged(PAIR, tmp_path / "run.pftrace", devices=devices, **asked)
    assert merged(parts, tmp_path / "a" / "run.pftrace", devices=devices) == expected
    if devices is not None:
        return  # the same parts as of all devices
    if asked:
        assert merged(parts, tmp_path / "a" / "run.again", devices=devices, **asked) == expected
    assert merged([parts[0], PAIR[1]], tmp_path / "a" / "run.mixed", devices=devices) == expected


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what real reports lack
def test_parts_of_real_reports_do_too(shared_report: Path, tmp_path: Path) -> None:
    """Their traces and their summaries are those of the reports."""
    part = tmp_path / "report.nspart"
    try:
        nsys_pp.extract(shared_report, part, detail="cpu", flows=True)
    except MissingDataError:
        assert not part.exists()
        return
    expected = merged([shared_report], tmp_path / "report.pftrace", detail="cpu", flows=True)
    assert merged([part], tmp_path / "part.pftrace") == expected
    told, summed = nsys_pp.summary([shared_report]), nsys_pp.summary([part])
    assert summed.absent == told.absent
    for name, table in told.tables.items():
        assert_frame_equal(summed.tables[name], table)


def test_the_folder_that_tells_the_machine_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine3" / "a").mkdir(parents=True)
    shutil.copy(REPORTS[0], tmp_path / "machine3" / "a" / "x.sqlite")
    monkeypatch.chdir(tmp_path / "machine3" / "a")
    nsys_pp.extract("x.sqlite", Path("x.nspart"))
    assert read_part(Path("x.nspart"), [], version="1").source == Path("machine3/a/x.sqlite")


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("part") / "rank0.nspart"
    nsys_pp.extract(REPORTS[0], made)
    return made


def rewrite(
    part: Path, output: Path, change: Callable[[Members], None], *, packing: int = ZIP_STORED
) -> Path:
    """Write a part whose members a function changes, with its frames packed by the archive or not."""
    with ZipFile(part) as archive, ZipFile(output, "w", ZIP_STORED) as changed:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
        change(members)
        for name, data in members.items():
            changed.writestr(name, data, packing if name == FRAMES_MEMBER else ZIP_STORED)
    return output


def change_frames(members: Members, change: Callable[[dict[str, bytes]], object]) -> None:
    """Change the frames of a part; the facts have their new sizes."""
    facts = json.loads(members[FACTS_MEMBER])
    frames, at = {}, 0
    for name, size in facts["frame_bytes"].items():
        frames[name], at = members[FRAMES_MEMBER][at : at + size], at + size
    change(frames)
    facts["frame_bytes"] = {name: len(frame) for name, frame in frames.items()}
    members[FACTS_MEMBER] = json.dumps(facts).encode()
    members[FRAMES_MEMBER] = b"".join(frames.values())


def rewritten(part: Path, copy: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    def change_facts(members: Members) -> None:
        facts = json.loads(members[FACTS_MEMBER])
        change(facts)
        members[FACTS_MEMBER] = json.dumps(facts).encode()

    return rewrite(part, copy, change_facts)


def test_another_format_is_refused(part: Path, tmp_path: Path) -> None:
    old = rewritten(
        part,
        tmp_path / "x.nspart",
        lambda facts: facts.update(format=FORMAT + 1, made_by="9.1" * 99, encoded={"new": 1}),
    )
    with pytest.raises(ReportError) as refused:
        nsys_pp.merge([old], tmp_path / "run.pftrace")
    assert refused.value.message == (
        f"`{old}` was made by nsys-pp 9.19.19.19.19.19.19. (format {FORMAT + 1}); this is nsys-pp {version('nsys-pp')}, which reads format {FORMAT}"
    )
    assert refused.value.hint == "extract it again from its report"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda facts: facts.clear(), id="no facts"),
        pytest.param(lambda facts: facts["frame_bytes"].pop("anchors"), id="a frame too few"),
        pytest.param(lambda facts: facts["frame_bytes"].update(jobs=1), id="a frame cut"),
        pytest.param(lambda facts: facts["frame_bytes"].update(anchors=-1), id="a negative size"),
        pytest.param(
            lambda facts: facts.update(frame_bytes=dict(reversed(facts["frame_bytes"].items()))),
            id="frames in another order",
        ),
        pytest.param(lambda facts: facts["options"].update(new=1), id="an option of the future"),
        pytest.param(lambda facts: facts["facts"].pop("fingerprint"), id="nobody"),
        pytest.param(lambda facts: facts["facts"]["session"].pop("hostname"), id="half a session"),
        pytest.param(lambda facts: facts["facts"]["session"].update(utc_epoch_ns="1"), id="text as a time"),
        pytest.param(lambda facts: facts["facts"].update(preset=None), id="nothing as a preset"),
        pytest.param(lambda facts: facts["encoded"]["tracks"][0].pop("description"), id="half a track"),
        pytest.param(lambda facts: facts["encoded"]["tracks"].append(1), id="a number as a track"),
    ],
)
def test_facts_that_lack_something(
    change: Callable[[dict[str, Any]], None], part: Path, tmp_path: Path
) -> None:
    assert_damaged(rewritten(part, tmp_path / "x.nspart", change), tmp_path)


def test_a_part_that_is_empty_or_cut_or_none(part: Path, tmp_path: Path) -> None:
    whole, broken = part.read_bytes(), tmp_path / "x.nspart"
    cut = "is damaged: it has no end, as a file that was not written or copied whole"
    again = "copy it again, or extract it again from its report"
    zipped = BytesIO()
    with ZipFile(zipped, "w") as archive:
        archive.writestr("some.txt", "text")
    for data, message, hint in (
        (b"", "is empty", again),
        (b"PK", "is not a part of nsys-pp", "extract"),
        (b"\xa5" * 5000, "is not a part of nsys-pp", "extract"),
        (zipped.getvalue(), "is damaged, or not a part of nsys-pp", "extract"),
        (REPORTS[0].read_bytes(), "is not a part of nsys-pp: it is a SQLite database", "rename it"),
        *((whole[: len(whole) * n // 7], cut, again) for n in range(1, 7)),
        (whole[:-1], cut, again),
    ):
        broken.write_bytes(data)
        with pytest.raises(ReportError) as refused:
            nsys_pp.merge([broken], tmp_path / "run.pftrace")
        assert refused.value.message == f"`{broken}` {message}"
        assert hint in (refused.value.hint or "")
        assert not (tmp_path / "run.pftrace").exists()


@pytest.mark.filterwarnings("ignore:of 4 ranks")
def test_damage_anywhere_skips_a_part_and_no_more(part: Path, tmp_path: Path) -> None:
    """The blocks are most of a part, so most of the changed bytes are found by their checksum alone."""
    whole, broken, trace = part.read_bytes(), tmp_path / "x.nspart", tmp_path / "run.pftrace"
    (other,) = extract_into(tmp_path / "other", REPORTS[1:2])
    broken.write_bytes(whole)
    both, alone = (
        merged(parts, tmp_path / "run.expected", force=True) for parts in ([broken, other], [other])
    )
    skipped = 0
    for at in range(len(whole) // 12, len(whole), len(whole) // 6):
        broken.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        done = nsys_pp.merge([broken, other], trace, keep_going=True, force=True)
        assert trace.read_bytes() == (alone if done.skipped else both)
        assert [path for path, _ in done.skipped] in ([], [broken])
        skipped += len(done.skipped)
    assert skipped > 4


def assert_damaged(part: Path, folder: Path) -> None:
    with pytest.raises(ReportError) as refused:
        nsys_pp.merge([part], folder / "run.pftrace")
    assert refused.value.message == f"`{part}` is damaged, or not a part of nsys-pp"
    assert not (folder / "run.pftrace").exists()


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("run.json", {}, "Chrome's format"),
        ("run.pftrace", {"start_ns": 0}, "`--start` and `--end`"),
        ("run.pftrace", {"end_ns": 0}, "`--start` and `--end`"),
    ],
)
def test_what_needs_events_is_refused(
    name: str, asked: dict[str, Any], words: str, part: Path, tmp_path: Path
) -> None:
    with pytest.raises(ReportError) as refused:
        nsys_pp.merge([REPORTS[1], part], tmp_path / name, **asked)
    assert refused.value.message == (
        f"`{part}` is a part: its trace is made already, and {words} cannot be had from it"
    )


@pytest.mark.parametrize("age_s", [-10, 10])
def test_beside_a_report_of_its_name_a_part_is_not_read(age_s: int, part: Path, tmp_path: Path) -> None:
    """It may be of another recording, whatever its age."""
    report = tmp_path / "run" / "rank0.sqlite"
    report.parent.mkdir()
    shutil.copy(REPORTS[1], report)
    beside = Path(shutil.copy(part, report.parent / "rank0.nspart"))
    made = report.stat().st_mtime + age_s
    os.utime(beside, (made, made))
    noted = f"`{report}` is read instead of `{beside}`, which has the same name"
    with pytest.warns(UserWarning, match=f"^{re.escape(noted)}$"):
        nsys_pp.merge([report.parent], tmp_path / "folder.pftrace")
    nsys_pp.merge([report], tmp_path / "report.pftrace")
    assert (tmp_path / "folder.pftrace").read_bytes() == (tmp_path / "report.pftrace").read_bytes()
    assert find_reports([report.parent]) == [report]
    recording = report.rename(report.with_suffix(".nsys-rep"))
    with pytest.warns(UserWarning, match=f"`{re.escape(str(recording))}` is read instead of"):
        assert find_reports([report.parent], with_parts=True) == [recording]


@pytest.mark.parametrize("command", [nsys_pp.project, nsys_pp.info])
def test_what_needs_a_report_says_so(
    command: Callable[[list[Path]], Any], part: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReportError, match="is a part, by its name: made for `nsys-pp merge`"):
        command([part])


def test_a_part_and_its_report_are_one_recording(part: Path, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="are the same recording") as refused:
        nsys_pp.merge([REPORTS[0], part], tmp_path / "run.pftrace")
    assert str(part) in refused.value.message
    assert str(REPORTS[0]) in refused.value.message


def test_what_has_nothing_to_draw_makes_no_part(tmp_path: Path) -> None:
    report = write_report(
        tmp_path / "x.sqlite", session=Session(), ranges=[{"start": 0, "end": 9, "name": "a"}]
    )
    with pytest.raises(MissingDataError, match="has nothing to draw: no GPU operations"):
        nsys_pp.extract(report, tmp_path / "x.nspart", detail="kernels")
    (tmp_path / "bare").mkdir()
    bare = write_report(tmp_path / "bare" / "x.sqlite", session=Session())
    with pytest.raises(MissingDataError, match="has nothing to draw: no GPU operations"):
        nsys_pp.extract(bare, tmp_path / "x.nspart")
    shutil.rmtree(bare.parent)
    assert list(tmp_path.iterdir()) == [report]
    assert nsys_pp.extract(report, tmp_path / "x.nspart", detail="cpu").parts[0].slices == 1


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("parts")
    nsys_pp.extract(REPORTS[:3], folder)
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def without_one(parts: list[Path], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The trace of all parts but the second one."""
    return merged([parts[0], parts[2]], tmp_path_factory.mktemp("kept") / "run.pftrace")


def _break_blocks(members: Members, start: bytes, *, skipped: int = 0) -> None:
    """Replace the start of the blocks; the checksums of the archive are right."""
    data = members[BLOCKS_MEMBER]
    members[BLOCKS_MEMBER] = data[:skipped] + start + data[skipped + len(start) :]


def _empty_row(name: str) -> Callable[[Members], None]:
    """Replace a frame by a row of nulls."""
    schema = PART_FRAMES[name]
    packed = pack_frame(pl.DataFrame({each: [None] for each in schema}, schema=schema), schema)
    return partial(change_frames, change=lambda frames: frames.update({name: zlib.compress(packed)}))


CHANGES: dict[str, Callable[[Members], None]] = {
    "something else than packets": lambda members: _break_blocks(members, b"\x0b"),
    "a packet of another kind": lambda members: _break_blocks(members, b"\x0a\x02\x50\x01"),
    "a packet without an end": lambda members: _break_blocks(members, b"\x0a" + b"\xff" * 40),
    "a packet longer than its track": lambda members: _break_blocks(members, b"\x0a\xff\xff\x7f"),
    "a frame": lambda members: change_frames(
        members, lambda frames: frames.update(anchors=zlib.compress(b"\4\0\0\0none"))
    ),
    "the counts, which are read last": lambda members: change_frames(
        members, lambda frames: frames.update(row_counts=b"none")
    ),
    **{f"{name} without values": _empty_row(name) for name in ("anchors", "devices", "jobs", "row_counts")},
    "facts of any depth": lambda members: members.update({FACTS_MEMBER: b"[" * 1_000_000}),
}


@pytest.mark.few(2)
@pytest.mark.filterwarnings("ignore:of 4 ranks")
@pytest.mark.filterwarnings("ignore:no operation is shared")
@pytest.mark.parametrize("change", CHANGES)
def test_hostile_contents(parts: list[Path], without_one: bytes, tmp_path: Path, change: str) -> None:
    hostile = rewrite(parts[1], tmp_path / "rank1.nspart", CHANGES[change])
    output = tmp_path / "run.pftrace"
    with pytest.raises(ReportError, match="is damaged"):
        nsys_pp.merge([parts[0], hostile, parts[2]], output)
    if "packet" not in change:  # charts do not read those
        with pytest.raises(ReportError, match="is damaged"):
            nsys_pp.chart([parts[0], hostile, parts[2]], tmp_path / "run.html")
    assert [*tmp_path.iterdir()] == [hostile]
    _assert_left_out(parts, hostile, output, without_one)


@pytest.mark.filterwarnings("ignore:of 4 ranks")
@pytest.mark.filterwarnings("ignore:no operation is shared")
def test_a_block_that_cannot_be_decompressed(parts: list[Path], without_one: bytes, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        _break_blocks(members, b"\xff" * 8, skipped=20)

    hostile = rewrite(parts[1], tmp_path / "rank1.nspart", change)
    _assert_left_out(parts, hostile, tmp_path / "run.pftrace", without_one)


@pytest.mark.filterwarnings("ignore:of 4 ranks")
def test_a_run_with_such_a_part_has_no_page(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hostile = rewrite(
        parts[1],
        tmp_path / "rank1.nspart",
        lambda members: _break_blocks(members, b"\xff" * 8, skipped=20),
    )
    assert "is damaged" in call(parts[0], hostile).stderr
    assert [*tmp_path.iterdir()] == [hostile]
    assert call(parts[0], hostile, parts[2], "--keep-going").code == 3


def _assert_left_out(parts: list[Path], hostile: Path, output: Path, without_one: bytes) -> None:
    words = f"`{hostile}` is damaged, or not a part of nsys-pp"
    done = nsys_pp.merge([parts[0], hostile, parts[2]], output, keep_going=True)
    assert [(path, error.message) for path, error in done.skipped] == [(hostile, words)]
    assert output.read_bytes() == without_one
    checked = call("check", hostile)
    assert checked.code == 5
    assert words in checked.stdout


@pytest.mark.filterwarnings("ignore:of 4 ranks")
@pytest.mark.filterwarnings("ignore:no operation is shared")
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


@pytest.fixture
def reports(tmp_path: Path) -> list[Path]:
    """A report with a kernel, and two without: of a launcher with a range, and of a process with calls of MPI alone."""
    return [
        write_without_gpus(tmp_path / "gpu.sqlite", pid=1, epoch_ns=EPOCH_NS + 5000, more=ON_GPU),
        write_without_gpus(tmp_path / "launcher.sqlite", pid=2, epoch_ns=EPOCH_NS, more=LAUNCHER),
        write_without_gpus(tmp_path / "mpi.sqlite", pid=3, epoch_ns=EPOCH_NS),
    ]


def merge(inputs: list[Path], folder: Path) -> bytes:
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nsys_pp.merge(inputs, folder / "run.pftrace")
    return (folder / "run.pftrace").read_bytes()


def test_the_trace_of_parts_is_that_of_their_reports(reports: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "parts"
    with pytest.warns(
        UserWarning, match=r"2 reports \(`.*launcher.sqlite` and others\) have no GPU oper"
    ) as notes:
        done = nsys_pp.extract(reports, output)
    assert len(notes) == 1
    assert [part.slices for part in done.parts] == [1, 41, 40]
    expected = merge(reports, tmp_path / "reports")
    assert merge([part.output for part in done.parts], tmp_path / "of_parts") == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = nsys_pp.extract(reports, output)
    assert not any(part.is_new for part in again.parts)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return Path(shutil.copy(REPORTS[0], tmp_path / "in" / "x.sqlite"))


@pytest.fixture
def made_part(report: Path) -> Path:
    made = report.parent.parent / "x.nspart"
    nsys_pp.extract(report, made)
    return made


def extract_again(report: Path, made_part: Path, **options: Any) -> bool:
    before = made_part.stat().st_ino
    [extracted] = nsys_pp.extract(report, made_part, **options).parts
    is_new = extracted.is_new
    assert is_new == (made_part.stat().st_ino != before)
    return is_new


def test_a_part_that_is_there_is_left(report: Path, made_part: Path) -> None:
    [first] = nsys_pp.extract(report, made_part.with_name("y.nspart")).parts
    [again] = nsys_pp.extract(report, made_part).parts
    assert not again.is_new
    assert (again.slices, again.jobs, again.gpus) == (first.slices, first.jobs, first.gpus)
    assert not extract_again(report, made_part)
    assert extract_again(report, made_part, force=True)
    moved = report.rename(report.with_name("moved.sqlite"))
    assert not extract_again(moved, made_part)  # the recording counts, not its name


@pytest.mark.slow
def test_a_part_that_is_stale_is_made_again(report: Path, made_part: Path, tmp_path: Path) -> None:
    fresh = made_part.read_bytes()
    assert extract_again(report, made_part, detail="jobs")
    assert extract_again(report, made_part)
    later = made_part.stat().st_mtime_ns + 1
    os.utime(report, ns=(later, later))
    assert extract_again(report, made_part)
    changes: list[Callable[[dict[str, Any]], None]] = [
        lambda facts: facts.update(made_by="0.0.1"),
        lambda facts: facts.update(format=0),
    ]
    for change in changes:
        rewritten(made_part, tmp_path / "other", change).replace(made_part)
        assert extract_again(report, made_part)
    assert made_part.read_bytes() == fresh
    shutil.copy(REPORTS[1], report)  # recorded again, and named as before
    os.utime(report, ns=(1, 1))
    assert extract_again(report, made_part)


def test_a_part_that_is_cut_or_damaged_is_made_again(report: Path, made_part: Path) -> None:
    whole = made_part.read_bytes()
    with ZipFile(made_part) as archive:
        at = 200 + archive.getinfo("trace.blocks").header_offset
    damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for data in (whole[: len(whole) // 3], whole[:-100], damaged):
        made_part.write_bytes(data)
        assert nsys_pp.extract(report, made_part).parts[0].is_new
        assert made_part.read_bytes() == whole


def test_the_part_of_another_report_is_refused(report: Path, made_part: Path) -> None:
    before = made_part.read_bytes()
    with pytest.raises(OutputError, match="is the part of another report") as refused:
        nsys_pp.extract(REPORTS[1], made_part)
    assert str(report) in refused.value.message
    assert made_part.read_bytes() == before


@pytest.mark.parametrize("data", [b"", b"precious", b"PK\x03\x04" + bytes(100)])
def test_what_is_no_part_is_refused(data: bytes, report: Path, made_part: Path) -> None:
    made_part.write_bytes(data)
    for processes in (None, 2):
        with pytest.raises(OutputError, match="exists"):
            nsys_pp.extract([report, REPORTS[1]], made_part.parent, processes=processes)
    assert made_part.read_bytes() == data


def test_what_was_interrupted_goes_on(tmp_path: Path) -> None:
    nsys_pp.extract(REPORTS[:1], tmp_path)
    extracted = nsys_pp.extract([PIPELINE / "node2"], tmp_path, processes=2).parts
    assert [one.is_new for one in extracted] == [False, True]
    assert [one.report for one in extracted] == REPORTS[:2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank0.nspart", "rank1.nspart"]


def test_broken_reports_leave_the_others_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for path in REPORTS[:3]:
        shutil.copy(path, tmp_path / "in")
    broken = tmp_path / "in" / "rank1.sqlite"
    broken.write_bytes(broken.read_bytes()[:20_000])
    with pytest.raises(ReportError, match=r"rank1\.sqlite` is truncated"):
        nsys_pp.extract([tmp_path / "in"], tmp_path / "out")
    result = nsys_pp.extract([tmp_path / "in"], tmp_path / "out", keep_going=True)
    assert [one.output.name for one in result.parts] == ["rank0.nspart", "rank2.nspart"]
    assert [path for path, _ in result.skipped] == [broken]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["rank0.nspart", "rank2.nspart"]
