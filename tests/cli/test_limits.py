"""Nothing is allocated by a number in a report: wrong ranks cost neither memory nor time."""

from __future__ import annotations

import re
import resource
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsys_pp.roster.ranks import parse_layout
from tests.cli.calls import call, environment, run

RANK0 = Path(__file__).parents[2] / "fixtures" / "pipeline" / "node2" / "rank0.sqlite"
_MOST_BYTES = 4 << 30  # of addresses: 1 GB of memory, of which little is used


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))


@pytest.mark.parametrize("number", [999_999_999_999, 2**63 - 1, 2**70])
@pytest.mark.parametrize("variables", [("RANK",), ("WORLD_SIZE",), ("RANK", "WORLD_SIZE"), ("LOCAL_RANK",)])
def test_ranks_of_an_environment(tmp_path: Path, variables: tuple[str, ...], number: int) -> None:
    report = Path(shutil.copy(RANK0, tmp_path))
    with closing(sqlite3.connect(report)) as connection, connection:
        connection.execute("DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'DeviceEnvironment'")
        connection.execute("DELETE FROM META_DATA_CAPTURE WHERE value LIKE 'SLURM%'")
        for name in variables:
            row = f'{name}="{number}"', f"{name}=%"
            connection.execute("UPDATE META_DATA_CAPTURE SET value = ? WHERE value LIKE ?", row)
    for command in (["merge", "-o", tmp_path / "run.pftrace"], ["pipeline"]):
        done = run(*command, report, env=environment(PYTHONWARNINGS=""), preexec_fn=_limit)
        assert done.code == 0, done.stderr


def test_ranks_of_job_numbers_in_names(tmp_path: Path) -> None:
    report = Path(shutil.copy(RANK0, tmp_path / "job_48151623.sqlite"))
    with closing(sqlite3.connect(report)) as connection, connection:
        connection.execute("DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'DeviceEnvironment'")
        connection.execute("DELETE FROM META_DATA_CAPTURE WHERE value LIKE 'SLURM%' OR value LIKE '%RANK%'")
    done = run("merge", report, "-o", tmp_path / "x.pftrace", "--rank-from", r"job_(\d+)", preexec_fn=_limit)
    assert done.code == 1
    assert "matches 48151623" in done.stderr
    assert "hint: the number may be that of a job" in done.stderr


def test_a_layout_has_ranks_that_a_run_may_have() -> None:
    assert parse_layout("pp=1024,dp=1024").pp == 1024
    with pytest.raises(ValueError, match=r"a layout of 10,000,000,000,000,000 ranks; expected at most"):
        parse_layout("pp=100000000,dp=100000000")


@pytest.mark.parametrize("number", [2**63 - 1, 2**41, 10**12 - 1, 99_999_999])
@pytest.mark.parametrize("names", ["%", "forward%", "step%", "send%"])
def test_numbers_in_names_of_ranges(tmp_path: Path, names: str, number: int) -> None:
    report = Path(shutil.copy(RANK0, tmp_path))
    with closing(sqlite3.connect(report)) as connection, connection:
        connection.create_function("renumber", 1, lambda text: re.sub(r"\d+", str(number), text))
        connection.execute("UPDATE NVTX_EVENTS SET text = renumber(text) WHERE text LIKE ?", [names])
    assert call("merge", report, "-o", tmp_path / "run.pftrace").code == 0
    assert call("pipeline", report, RANK0.with_name("rank1.sqlite"), "--table", "all").code == 0
