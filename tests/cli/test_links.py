"""Links in a folder of reports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.calls import assert_refused, call

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline" / "node2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of two reports."""
    return Path(shutil.copytree(PIPELINE, tmp_path / "run", ignore=shutil.ignore_patterns("*.json", "*.csv")))


@pytest.mark.parametrize("target", ["nowhere.sqlite", "gone.sqlite"])
@pytest.mark.parametrize(
    "command", ["merge -o {}/run.pftrace", "extract -o {}/parts", "summary -o {}/x.json"]
)
def test_a_broken_link_is_named_each_time(folder: Path, tmp_path: Path, command: str, target: str) -> None:
    link = folder / "gone.sqlite"
    link.symlink_to(target)
    words = command.format(tmp_path).split()
    assert_refused(call(*words, folder), str(link))
    for options in ([], ["--force"], ["--force"]):
        done = call(*words, folder, "--keep-going", *options)
        assert done.code == 3, done
        assert f"skipped {link}: " in done.stderr


def test_a_link_to_the_latest_report_is_this_report(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run.pftrace"
    assert call("merge", folder, "-o", output).code == 0
    expected = output.read_bytes()
    (folder / "latest.sqlite").symlink_to("rank0.sqlite")
    assert call("merge", folder, "-o", output, "--force").code == 0
    assert output.read_bytes() == expected
