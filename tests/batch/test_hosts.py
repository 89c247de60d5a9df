"""The scripts for hosts without a scheduler, run by stubs of ssh and pdsh, and the page that links all scripts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nsys_pp.cli import main
from tests.batch.world import ROOT, SCRIPTS, World, make_world

PAGE = ROOT / "docs" / "batch.md"


def find_block(name: str) -> str:
    """Find what the page says to type, by the name that stands before it."""
    found = re.search(rf"<!-- {name} -->\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, name
    return found[1]


FILES = sorted(path for path in SCRIPTS.iterdir())


def test_the_page_links_all_files() -> None:
    linked = set(re.findall(r"\]\(batch/([^)]+)\)", PAGE.read_text()))
    assert linked == {path.name for path in FILES}


def test_the_whole_way_leads_to_the_trace(tmp_path: Path) -> None:
    world = make_world(tmp_path, "slurm", "recorder")
    job = ["SLURM_NNODES=2", "SLURM_NTASKS=4", "SLURM_NTASKS_PER_NODE=2"]
    done = world.run("env", *job, "bash", "-euc", find_block("all steps"))
    assert done.code == 0, done
    recorded = sorted((tmp_path / "slurm").rglob("*.nsys-rep"), key=lambda path: path.stem)
    assert len(recorded) == 4
    assert (tmp_path / "run.pftrace").read_bytes() == world.merge(recorded)
    assert "Steps of the whole run" in done.stdout


def list_headings(page: Path) -> set[str]:
    lines = (line for line in page.read_text().splitlines() if re.match("#+ ", line))
    return {re.sub(r"[^a-z -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in lines}


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!http)([^)]+)\)", PAGE.read_text())
    assert len(links) > 5
    for link in links:
        file, _, heading = link.partition("#")
        page = PAGE.parent / file if file else PAGE
        assert page.exists(), link
        assert not heading or heading in list_headings(page), link


def test_every_option_of_nsys_pp_is_there() -> None:
    known = {name for command in main.commands.values() for param in command.params for name in param.opts}
    calls = re.findall(r"nsys-pp (\w+)((?:[^\n]|(?<=\\)\n)*)", PAGE.read_text())
    named = {option for _, words in calls for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", words)}
    assert {"--keep-going", "--result", "--wait-for"} <= named
    assert named <= known


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck")
def test_scripts_have_no_common_mistakes() -> None:
    scripts = [path for path in FILES if path.suffix in (".sh", ".sbatch")]
    assert len(scripts) >= 6
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


HOSTS = ["node2", "node10"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = make_world(tmp_path, "hosts")
    world.copy_reports(tmp_path / "hosts")
    return world


def test_parts_come_from_all_hosts_by_ssh(world: World, merged: bytes) -> None:
    left = world.folder / "hosts" / "node2" / "parts" / ".rank0.nspart.nsys-pp-0000000000-1-1-x"
    left.parent.mkdir()
    left.write_text("half")  # of a killed process
    done = world.run(SCRIPTS / "ssh.sh", ".", "run", *HOSTS)
    assert done.code == 0, done
    run = world.folder / "run"
    assert not list((run / "parts").rglob(".*"))
    assert (run / "run.pftrace").read_bytes() == merged
    arrived = sorted(str(path.relative_to(run / "parts")) for path in run.rglob("*.nspart"))
    assert arrived == [
        "node10/rank2.nspart",
        "node10/rank3.nspart",
        "node2/rank0.nspart",
        "node2/rank1.nspart",
    ]


def test_what_does_not_come_is_told_and_the_rest_is_merged(world: World) -> None:
    (world.folder / "hosts" / "node10" / "rank3.sqlite").write_bytes(b"SQLite format 3\0")
    (world.folder / "hosts" / "node2" / "rank0.sqlite").unlink()
    done = world.run(SCRIPTS / "ssh.sh", ".", "run", "node3", *HOSTS)
    assert done.code == 1, done
    assert "node3: ssh: Could not resolve hostname node3" in done.stderr
    assert "node10: skipped rank3.sqlite: " in done.stderr
    assert "node2: " not in done.stderr
    assert "from 2 reports" in done.stderr
    assert (world.folder / "run" / "run.pftrace").is_file()


def test_parts_of_all_hosts_are_written_to_a_folder_they_share(world: World, merged: bytes) -> None:
    done = world.run(SCRIPTS / "pdsh.sh", ".", "run", ",".join(HOSTS))
    assert done.code == 0, done
    assert (world.folder / "run" / "run.pftrace").read_bytes() == merged
    assert "node2: Wrote" in done.stdout
