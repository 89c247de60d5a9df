"""What a user names is what is read: once each, in natural order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nsys_pp.errors import ReportError
from nsys_pp.read import find_reports, is_part
from nsys_pp.read.readers import find_reader

_WHOLE = ("StringIds", "TARGET_INFO_SESSION_START_TIME")


def _touch(folder: Path, *names: str) -> list[Path]:
    paths = [folder / name for name in names]
    for time, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, ns=(time, time))  # each newer than the one before
    return paths


def test_a_folder_is_searched_in_natural_order(tmp_path: Path) -> None:
    _touch(
        tmp_path, "node10/r.sqlite", "node2/r10.sqlite", "node2/r9.sqlite", "node2/notes.txt", "a.nsys-rep"
    )
    found = [str(path.relative_to(tmp_path)) for path in find_reports([tmp_path])]
    assert found == ["a.nsys-rep", "node2/r9.sqlite", "node2/r10.sqlite", "node10/r.sqlite"]


def test_suffixes_are_read_in_any_case(tmp_path: Path) -> None:
    paths = _touch(tmp_path, "a.SQLITE", "b.NSYS-REP", "c.QdRep", "d.NSPART", "e.Sqlite", "e.sqlite")
    assert find_reports([tmp_path], with_parts=True) == paths
    with pytest.warns(UserWarning, match="1 part left out"):
        assert find_reports([tmp_path]) == [path for path in paths if path.suffix != ".NSPART"]
    assert find_reports([tmp_path / "*.NSYS-REP"]) == [paths[1]]
    assert find_reader(paths[1]) == find_reader(tmp_path / "b.nsys-rep")
    assert [is_part(path) for path in paths] == [False, False, False, True, False, False]
    (export,) = _touch(tmp_path, "b.sqlite")
    os.utime(export, ns=(9, 9))  # newer
    assert find_reports([tmp_path / "b*"]) == [export]


def test_a_pattern_that_no_shell_expanded_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _touch(tmp_path, "n10/r.sqlite", "n2/r.sqlite", "n2/x.txt")
    expected = [tmp_path / "n2/r.sqlite", tmp_path / "n10/r.sqlite"]
    for pattern in ("n*/*.sqlite", "n*", "**/r.sqlite"):
        assert find_reports([f"{tmp_path}/{pattern}"]) == find_reports([tmp_path / pattern]) == expected
    monkeypatch.chdir(tmp_path)
    assert find_reports(["n?/r.sqlite"]) == [Path("n2/r.sqlite")]


def test_a_name_with_pattern_characters_is_a_name_where_it_exists(tmp_path: Path) -> None:
    paths = _touch(tmp_path, "run[1].sqlite", "run1.sqlite")
    assert find_reports([paths[0]]) == [paths[0]]


@pytest.mark.parametrize("table", ["StringIds.parquet", "StringIds.arrow"])
def test_a_folder_of_tables_is_one_report(tmp_path: Path, table: str) -> None:
    _touch(tmp_path, f"one_pqtdir/{table}", "two.sqlite")
    assert find_reports([tmp_path]) == [tmp_path / "one_pqtdir", tmp_path / "two.sqlite"]
    assert find_reports([tmp_path / "one_pqtdir"]) == [tmp_path / "one_pqtdir"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["r.nsys-rep", "r.sqlite"], "r.sqlite"),
        (["r.qdrep", "r.sqlite"], "r.sqlite"),
        (["r.sqlite", "r.nsys-rep"], "r.nsys-rep"),
        (["r.qdrep", "r.nsys-rep"], "r.nsys-rep"),
        (["r.nsys-rep", *(f"r_pqtdir/{table}.parquet" for table in _WHOLE)], "r_pqtdir"),
        # recipes of nsys leave folders of some tables
        (["r.nsys-rep", "r_pqtdir/StringIds.parquet", "r_pqtdir/NVTX_EVENTS.parquet"], "r.nsys-rep"),
        (["r.nsys-rep", "r_arwdir/StringIds.arrow", "r.sqlite"], "r.sqlite"),
        (["r_pqtdir/StringIds.parquet", "r.sqlite"], "r.sqlite"),
    ],
    ids=" then ".join,
)
@pytest.mark.filterwarnings("ignore:.*is read instead of")
def test_a_report_and_its_exports_are_one(tmp_path: Path, names: list[str], expected: str) -> None:
    _touch(tmp_path, *names)
    for folder in [path for path in tmp_path.iterdir() if path.is_dir()]:
        inside = next(folder.iterdir())
        os.utime(folder, ns=(inside.stat().st_mtime_ns,) * 2)
    assert find_reports([tmp_path]) == [tmp_path / expected]
    assert find_reports(sorted(tmp_path.iterdir())) == [tmp_path / expected]


def test_a_report_given_twice_is_an_error(tmp_path: Path) -> None:
    (path,) = _touch(tmp_path, "r.sqlite")
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "link.sqlite"
    link.symlink_to(path)
    with pytest.raises(ReportError, match="named twice") as caught:
        find_reports([path, tmp_path / "r*"])
    assert f"`{tmp_path / 'r*'}`" in caught.value.message
    with pytest.raises(ReportError, match="are the same report") as caught:
        find_reports([path, link])
    assert f"`{path}` and `{link}`" in caught.value.message


@pytest.mark.parametrize("name", ["a-first.sqlite", "z-last.sqlite"])
def test_a_link_to_a_report_of_its_folder_is_this_report(tmp_path: Path, name: str) -> None:
    (path, other) = _touch(tmp_path, "rank0.sqlite", "rank1.sqlite")
    link = tmp_path / name
    link.symlink_to("rank0.sqlite")
    for inputs in ([tmp_path], [tmp_path / "*.sqlite"], sorted([path, other, link]), [tmp_path, link]):
        assert find_reports(inputs) == [path, other]
    assert find_reports([link]) == [link]


def test_links_inside_one_folder_are_reports_once(tmp_path: Path) -> None:
    (path,) = _touch(tmp_path, "run/7/rank0.sqlite")
    (tmp_path / "run/latest").mkdir()
    for name in ("a", "b"):
        (tmp_path / "run/latest" / f"{name}.sqlite").symlink_to(path)
    assert find_reports([tmp_path / "run"]) == [path]
    assert len(find_reports([tmp_path / "run/latest"])) == 1


def test_broken_links_are_listed(tmp_path: Path) -> None:
    (path,) = _touch(tmp_path, "rank0.sqlite")
    paths = []
    for name, target in (
        ("gone.sqlite", "nowhere"),
        ("gone.nsys-rep", "nowhere"),
        ("loop.sqlite", "loop.sqlite"),
    ):
        paths.append(tmp_path / name)
        paths[-1].symlink_to(target)
    assert set(find_reports([tmp_path])) == {path, tmp_path / "gone.nsys-rep", tmp_path / "loop.sqlite"}


def test_links_that_lead_back_do_no_harm(tmp_path: Path) -> None:
    (path,) = _touch(tmp_path, "a/r.sqlite")
    (tmp_path / "a/loop").symlink_to(tmp_path, target_is_directory=True)
    assert find_reports([tmp_path]) == [path]


def test_parts_of_absent_reports_are_left_out_with_a_note(tmp_path: Path) -> None:
    path, *_ = _touch(tmp_path, "a/r.sqlite", "a/r.nspart", "b/r.nspart", "b/s.NSPART")
    with pytest.warns(UserWarning, match="2 parts left out"):
        assert find_reports([tmp_path]) == [path]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("none.sqlite", "does not exist"),
        ("*.sqlite", "matches no report"),
        ("empty", "holds no report"),
        ("parts", "holds no report, only parts"),
    ],
)
def test_nothing_found_is_an_error(tmp_path: Path, given: str, words: str) -> None:
    _touch(tmp_path, "empty/notes.txt", "parts/a.NSPART")
    with pytest.raises(ReportError, match=words) as caught:
        find_reports([tmp_path / given])
    assert f"`{tmp_path / given}`" in caught.value.message
    assert caught.value.hint
