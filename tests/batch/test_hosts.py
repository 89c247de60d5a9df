"""The scripts for hosts without a scheduler, run by stubs of ssh and pdsh: hosts are folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.batch.world import SCRIPTS, World, make_world

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
