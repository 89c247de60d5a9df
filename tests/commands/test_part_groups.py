"""Group parts: one file stands for the parts of a node or a run, whatever is asked of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest

import nsys_pp
from nsys_pp.errors import OutputError, ReportError
from nsys_pp.read import find_reports
from nsys_pp.read.part_groups import list_group, open_part_file
from nsys_pp.write.part_groups import write_group
from tests.cli.calls import assert_refused, call

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
REPORTS = [PIPELINE / f"node2/rank{rank}.sqlite" for rank in (0, 1)]
REPORTS += [PIPELINE / f"node10/rank{rank}.sqlite" for rank in (2, 3)]
NAMES = [f"rank{rank}.nspart" for rank in range(4)]

pytestmark = pytest.mark.usefixtures("reports_read_once")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Separate parts of all reports."""
    extracted = nsys_pp.extract(REPORTS, tmp_path_factory.mktemp("parts"))
    return [part.output for part in extracted.parts]


@pytest.fixture(scope="module")
def group(parts: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All parts in one file, by way of the files of two nodes."""
    folder = tmp_path_factory.mktemp("group")
    for name, own in (("node2", parts[:2]), ("node10", parts[2:])):
        nsys_pp.extract(own, folder / f"{name}.nspart")
    nsys_pp.extract([folder / "node2.nspart", folder / "node10.nspart"], folder / "run.nspart")
    return folder / "run.nspart"


def test_a_group_of_groups_holds_the_bytes_of_its_parts(
    parts: list[Path], group: Path, tmp_path: Path
) -> None:
    assert list_group(group) == [group / name for name in NAMES]
    for part in parts:
        with open_part_file(group / part.name) as file:
            assert file.read() == part.read_bytes()
    straight = tmp_path / "run.nspart"
    result = nsys_pp.extract(REPORTS, straight)
    assert straight.read_bytes() == group.read_bytes()
    assert result.group == straight
    assert [part.output for part in result.parts] == [straight / name for name in NAMES]
    nsys_pp.extract(group, tmp_path / "again")
    assert [(tmp_path / "again" / name).read_bytes() for name in NAMES] == [p.read_bytes() for p in parts]
    with ZipFile(group) as archive:  # any program of zips unpacks it
        assert archive.testzip() is None
        assert archive.namelist() == NAMES


@pytest.mark.parametrize(
    "command",
    [
        ["pipeline", "--json"],
        ["summary", "--json"],
        ["summary", "--by", "rank", "--format", "csv", "--table", "kernels"],
        ["align"],
        ["check", "--verbose"],
    ],
    ids=" ".join,
)
def test_tables_are_those_of_separate_parts(command: list[str], parts: list[Path], group: Path) -> None:
    told, expected = call(*command, group), call(*command, *parts)
    assert told.code == expected.code == 0
    assert told.stdout.replace(f"{group}/", "") == expected.stdout.replace(f"{parts[0].parent}/", "")


def test_traces_charts_and_pages_are_those_of_separate_parts(
    parts: list[Path], group: Path, tmp_path: Path
) -> None:
    for name, inputs in (("a", [group]), ("b", parts)):
        folder = tmp_path / name
        folder.mkdir()
        nsys_pp.merge(inputs, folder / "run.pftrace")
        nsys_pp.merge(inputs, folder / "split.pftrace", split="machine")
        assert call("chart", *inputs, "-o", folder / "run.svg").code == 0
    for name in ("run.pftrace", "split.pftrace", "split.traces/node2.pftrace", "run.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    against = [call("compare", group, other, "--json") for other in (group, parts[0].parent)]
    assert against[0].code == against[1].code == 0


def test_parts_of_a_group_can_be_named_alone(parts: list[Path], group: Path, tmp_path: Path) -> None:
    nsys_pp.merge(group / NAMES[1], tmp_path / "a.pftrace")
    nsys_pp.merge(parts[1], tmp_path / "b.pftrace")
    assert (tmp_path / "a.pftrace").read_bytes() == (tmp_path / "b.pftrace").read_bytes()
    assert_refused(call("merge", group / "rank9.nspart", "-o", tmp_path / "c.pftrace"), "does not exist")
    with pytest.raises(ReportError, match="was named twice"):
        find_reports([group, group / NAMES[0]], with_parts=True)


def damage(group: Path, output: Path, name: str, at: float) -> Path:
    """Copy a group with one changed byte inside of a part."""
    data = bytearray(group.read_bytes())
    with ZipFile(group) as archive:
        info = archive.getinfo(name)
    data[info.header_offset + 60 + int(info.file_size * at)] ^= 0xFF
    output.write_bytes(data)
    return output


@pytest.mark.filterwarnings("ignore:of 4 ranks")
@pytest.mark.parametrize("at", [0.05, 0.6, 0.97])  # in blocks, frames and facts
def test_one_damaged_part_is_named_and_the_others_are_kept(
    at: float, parts: list[Path], group: Path, tmp_path: Path
) -> None:
    bad = damage(group, tmp_path / "bad.nspart", NAMES[2], at)
    refused = call("merge", bad, "-o", tmp_path / "run.pftrace")
    assert_refused(refused, f"`{bad / NAMES[2]}` is damaged")
    assert not (tmp_path / "run.pftrace").exists()
    kept = nsys_pp.merge(bad, tmp_path / "run.pftrace", keep_going=True)
    assert [path for path, _ in kept.skipped] == [bad / NAMES[2]]
    nsys_pp.merge([parts[0], parts[1], parts[3]], tmp_path / "expected.pftrace")
    assert (tmp_path / "run.pftrace").read_bytes() == (tmp_path / "expected.pftrace").read_bytes()
    checked = call("check", bad)
    assert checked.code == 5
    assert str(bad / NAMES[2]) in checked.stdout
    with pytest.raises(ReportError, match=NAMES[2]):
        nsys_pp.extract(bad, tmp_path / "copy.nspart")
    assert not (tmp_path / "copy.nspart").exists()
    copied = nsys_pp.extract(bad, tmp_path / "copy.nspart", keep_going=True)
    assert [path for path, _ in copied.skipped] == [bad / NAMES[2]]
    assert [path.name for path in list_group(tmp_path / "copy.nspart") or ()] == [
        NAMES[0],
        NAMES[1],
        NAMES[3],
    ]


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.95, 0.999])
def test_a_cut_group_is_one_damaged_file(kept: float, group: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.nspart"
    cut.write_bytes(group.read_bytes()[: int(group.stat().st_size * kept)])
    assert_refused(call("pipeline", cut), f"`{cut}` is {'damaged: it has no end' if kept else 'empty'}")
    refused = call("merge", cut, "--wait-for", "4", "--wait-timeout", "0", "-o", tmp_path / "run.pftrace")
    assert_refused(refused, "0 of 4 reports are there and whole")
    assert call("pipeline", cut, group, "--keep-going").code == 3


def test_stale_parts_are_made_again_and_others_kept(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    reports = [Path(shutil.copy(report, folder)) for report in REPORTS[:3]]
    group = folder / "node.nspart"

    def extract() -> list[bool]:
        return [part.is_new for part in nsys_pp.extract(folder, group).parts]  # the group itself is no input

    assert extract() == [True] * 3
    before = group.read_bytes()
    assert extract() == [False] * 3
    made = group.stat().st_mtime
    for path, age_s in ((reports[0], 90), (reports[2], 90), (group, 60), (reports[1], 30)):
        os.utime(path, (made - age_s, made - age_s))
    assert extract() == [False, True, False]
    assert group.stat().st_mtime > made - 30
    assert group.read_bytes() == before
    shutil.copy(REPORTS[3], folder)
    assert extract() == [False, False, False, True]
    assert len(list_group(group) or ()) == 4
    said = call("extract", folder, "-o", group)
    assert "already there" in said.stderr


def test_a_group_in_the_folder_of_its_reports_replaces_them(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    for report in REPORTS[:2]:
        shutil.copy(report, folder)
    group = folder / "node.nspart"
    nsys_pp.extract(folder, group)
    later = (folder / "rank1.sqlite").stat().st_mtime + 10
    os.utime(group, (later, later))
    assert find_reports([folder], with_parts=True) == [group / "rank0.nspart", group / "rank1.nspart"]
    os.utime(folder / "rank1.sqlite", (later + 10, later + 10))
    assert find_reports([folder], with_parts=True) == [group / "rank0.nspart", folder / "rank1.sqlite"]


def test_a_group_never_loses_parts_unasked(parts: list[Path], group: Path, tmp_path: Path) -> None:
    target = Path(shutil.copy(group, tmp_path / "x.nspart"))
    assert_refused(
        call("extract", *REPORTS[:2], "-o", target), "has `rank2.nspart`, which is not among the inputs"
    )
    assert_refused(call("extract", REPORTS[0], "-o", target), "is a group of 4 parts")
    single = Path(shutil.copy(parts[3], tmp_path / "y.nspart"))
    assert_refused(call("extract", *REPORTS[:2], "-o", single), "is the part of one report")
    (tmp_path / "z.nspart").write_text("precious")
    assert_refused(call("extract", *REPORTS[:2], "-o", tmp_path / "z.nspart"), "exists")
    assert target.read_bytes() == group.read_bytes()
    assert_refused(call("extract", target, "-o", target), "it is one of the reports to read")
    assert call("extract", *REPORTS[:2], "-o", target, "--force").code == 0
    assert len(list_group(target) or ()) == 2


def test_parts_of_one_name_get_the_names_of_their_folders(parts: list[Path], tmp_path: Path) -> None:
    for folder, part in (("a", parts[0]), ("b", parts[1])):
        (tmp_path / folder).mkdir()
        shutil.copy(part, tmp_path / folder / "x.nspart")
    nsys_pp.extract([tmp_path / "a/x.nspart", tmp_path / "b/x.nspart", parts[2]], tmp_path / "pod.nspart")
    names = ["a/x.nspart", "b/x.nspart", "rank2.nspart"]
    assert list_group(tmp_path / "pod.nspart") == [tmp_path / "pod.nspart" / name for name in names]
    assert find_reports([tmp_path / "pod.nspart" / "a"]) == [tmp_path / "pod.nspart" / "a/x.nspart"]
    nsys_pp.extract(tmp_path / "pod.nspart", tmp_path / "pod2.nspart")
    assert (tmp_path / "pod2.nspart").read_bytes() == (tmp_path / "pod.nspart").read_bytes()


def test_less_detail_is_that_of_the_reports(group: Path, tmp_path: Path) -> None:
    nsys_pp.extract(group, tmp_path / "a.nspart", detail="jobs")
    nsys_pp.extract(REPORTS, tmp_path / "b.nspart", detail="jobs")
    assert (tmp_path / "a.nspart").read_bytes() == (tmp_path / "b.nspart").read_bytes()
    assert (tmp_path / "a.nspart").stat().st_size < 0.7 * group.stat().st_size
    for command in (["pipeline"], ["summary"], ["align"]):
        assert call(*command, tmp_path / "a.nspart").stdout == call(*command, group).stdout
    said = call("merge", tmp_path / "a.nspart", "-o", tmp_path / "run.pftrace").stderr
    assert "4 parts of `--detail jobs` have steps, jobs and messages alone" in said
    refused = call("extract", group, "-o", tmp_path / "c.nspart", "--detail", "cpu")
    assert_refused(refused, f"`{group / NAMES[0]}` was made with", "`--detail cpu")
    refused = call("merge", tmp_path / "a.nspart", "-o", tmp_path / "c.pftrace", "--detail", "kernels")
    assert_refused(refused, "was made with `--detail jobs")


def test_memory_is_that_of_one_part(tmp_path: Path) -> None:
    """Parts are copied in pieces: no read of a source is larger."""
    reads: list[int] = []

    class Source:
        def __enter__(self) -> Source:
            self.left = 10 << 20
            return self

        def __exit__(self, *_: object) -> None: ...

        def read(self, size: int) -> bytes:
            reads.append(size)
            piece = min(size, self.left)
            self.left -= piece
            return bytes(piece)

    write_group(tmp_path / "x.nspart", [("a.nspart", Source)], force=False)  # type: ignore[list-item]
    assert (tmp_path / "x.nspart").stat().st_size > 10 << 20
    assert max(reads) == 1 << 20


def rewrite(group: Path, output: Path, names: Sequence[str], packing: int = ZIP_STORED) -> Path:
    with ZipFile(group) as archive, ZipFile(output, "w") as changed:
        for name, new in zip(archive.namelist(), names, strict=False):
            changed.writestr(new, archive.read(name), packing)
    return output


@pytest.mark.parametrize(
    "names",
    [
        ["../rank0.nspart", "rank1.nspart"],
        ["/rank0.nspart", "rank1.nspart"],
        ["rank0.nspart", "rank1.txt"],
        ["rank0.nspart", "a/../rank0.nspart"],
        ["rank0.nspart", "./rank1.nspart"],
    ],
)
def test_hostile_names_are_refused(names: list[str], group: Path, tmp_path: Path) -> None:
    bad = rewrite(group, tmp_path / "bad.nspart", names)
    assert_refused(call("pipeline", bad), f"`{bad}` is damaged, or not a part of nsys-pp")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_lists_are_refused(group: Path, tmp_path: Path) -> None:
    twice = rewrite(group, tmp_path / "twice.nspart", [NAMES[0], NAMES[0]])
    packed = rewrite(group, tmp_path / "packed.nspart", NAMES, ZIP_DEFLATED)
    for bad in (twice, packed):
        assert_refused(call("pipeline", bad), f"`{bad}` is damaged, or not a part of nsys-pp")
    nested = tmp_path / "nested.nspart"
    with ZipFile(nested, "w") as archive:
        archive.writestr("inner.nspart", group.read_bytes())
    assert_refused(
        call("pipeline", nested), f"`{nested / 'inner.nspart'}` is damaged, or not a part of nsys-pp"
    )
    assert call("pipeline", nested, group, "--keep-going").code == 3


def test_an_ended_writer_leaves_the_old_group(group: Path, tmp_path: Path) -> None:
    target = Path(shutil.copy(group, tmp_path / "x.nspart"))

    def fail() -> object:
        raise OutputError("stopped")

    with pytest.raises(OutputError, match="stopped"):
        write_group(target, [("a.nspart", fail)], force=True)  # type: ignore[list-item]
    assert target.read_bytes() == group.read_bytes()
    assert os.listdir(tmp_path) == ["x.nspart"]
