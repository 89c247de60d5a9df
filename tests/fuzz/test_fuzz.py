"""Values of options that are too long or too large: refused with a sentence."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from zipfile import ZipFile

import pytest

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.launchers import list_visible
from nsys_pp.hardware import parse_model
from nsys_pp.options import (
    parse_duration,
    parse_numbers,
    parse_processes,
    parse_size,
    parse_timeout,
    parse_window,
)
from nsys_pp.run.options import parse_patterns, parse_rank_from, parse_steps
from nsys_pp.tables.compare import parse_gate
from nsys_pp.training.names import load_preset, parse_job_rule
from tests.cli.calls import RANK0, succeed
from tests.fuzz import targets
from tests.fuzz.targets import TARGETS, Bench
from tests.sql import edit

NINES = "9" * 5000  # Python converts no text of more than 4,300 digits to a number


@pytest.mark.parametrize("parse", [parse_duration, parse_timeout, parse_numbers, parse_size])
@pytest.mark.parametrize("text", [NINES, NINES[:400], NINES[:40], f"1.{NINES}"])
def test_numbers_of_many_digits(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match="invalid"):
        parse(text)


@pytest.mark.parametrize("text", ["9999999999s", "-9999999999s", "2305843009213693952ns"])
def test_times_that_fit_no_sum(text: str) -> None:
    with pytest.raises(ValueError, match="73 years"):
        parse_duration(text)
    with pytest.raises(ValueError, match="invalid"):
        parse_window(f"{text}:{text}0")
    assert parse_duration("2305843009213693951ns") == (1 << 61) - 1


@pytest.mark.parametrize("text", [NINES, f"{NINES}:", f":{NINES}", f"1:{NINES[:31]}"])
def test_steps_of_many_digits(text: str) -> None:
    with pytest.raises(NsysPPError, match="invalid steps"):
        parse_steps(text)


def test_steps_with_a_separator_that_int_refuses() -> None:
    with pytest.raises(NsysPPError, match="for that step alone, use `0:1`"):
        parse_steps("0\x1f")
    assert parse_numbers("0,1\x1f") == frozenset({0, 1})
    assert parse_processes("4\x1f") == 4


def test_other_grammars() -> None:
    for gate in (f"bubble>{NINES}%", f"stage {NINES} bubble>1%"):
        with pytest.raises(NsysPPError, match="invalid gate"):
            parse_gate(gate)
    with pytest.raises(ValueError, match="invalid part of a model"):
        parse_model(f"layers=2,hidden=8,sequence=4,batch={NINES}")
    with pytest.raises(NsysPPError, match="invalid regular expression"):
        parse_rank_from(f"(a){{{NINES[:20]}}}")
    with pytest.raises(NsysPPError, match="invalid regular expression"):
        parse_patterns("job_patterns", f"(a){{{NINES[:20]}}}")


def test_expressions_that_are_not_utf_8() -> None:
    with pytest.raises(NsysPPError, match="not UTF-8"):
        parse_job_rule("forward=fwd\udcb0")
    with pytest.raises(NsysPPError, match="not UTF-8"):
        parse_patterns("job_patterns", "fwd\udcb0")


def test_rules_with_a_number_of_many_digits(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(f"title = {NINES}\n")
    with pytest.raises(NsysPPError, match="is not TOML"):
        load_preset(str(rules))


def test_variables_of_many_digits(tmp_path: Path) -> None:
    assert list_visible({"CUDA_VISIBLE_DEVICES": f"0,{NINES}"}) == []
    assert list_visible({"CUDA_VISIBLE_DEVICES": "0,3"}) == ["0", "3"]
    report = edit(
        Path(shutil.copy(RANK0, tmp_path)),
        *(
            f"UPDATE META_DATA_CAPTURE SET value = '{name}={NINES}' WHERE value LIKE '{name}=%'"
            for name in ("RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES")
        ),
    )
    succeed("merge", report, "-o", tmp_path / "run.pftrace")
    assert os.path.exists(tmp_path / "run.pftrace")


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_broke_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of an earlier find, whose name begins with its target, by all that is done with this target."""
    monkeypatch.setattr(targets, "MOST_CPU_S", math.inf)  # tests hold on slow machines too
    with closing(Bench(TARGETS[name])) as bench:
        for path in sorted((Path(__file__).parent / "corpus").glob(f"{name}-*.zip")):
            with ZipFile(path) as archive:
                files = {member: archive.read(member) for member in archive.namelist()}
            for work in TARGETS[name].works:
                bench.replay(files, work)
