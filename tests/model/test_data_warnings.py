"""Reasons to doubt a report: what nsys says of lost events, and clocks of GPUs that are off."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shutil import copyfile

import polars as pl
import pytest

import nsys_pp
from nsys_pp.read import read_report

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
SEVERITIES = {"info": 1, "warning": 2, "error": 3}


def change(path: Path, *statements: str) -> Path:
    """Copy a report of the fixtures, and change the copy."""
    copyfile(min(PIPELINE.rglob("*.sqlite")), path)
    with closing(sqlite3.connect(path)) as report, report:
        for statement in statements:
            report.execute(statement)
    return path


def say(path: Path, *messages: tuple[str, str]) -> Path:
    """Copy a report of the fixtures, and add messages of nsys: severity and text."""
    create = (
        "CREATE TABLE IF NOT EXISTS DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL,"
        " source INTEGER NOT NULL, severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER)"
    )
    rows = [
        f"INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 2, 3, {SEVERITIES[severity]}, '{text}', NULL)"
        for severity, text in messages
    ]
    return change(path, create, *rows)


def told(command: Callable[[], object]) -> list[str]:
    """List the warnings of a command."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        command()
    return [str(warning.message) for warning in caught]


LOST = "Not all CUDA events might have been collected."


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    others = [
        ("warning", "No OpenGL events collected. Does the process use OpenGL?"),
        ("warning", "Not all OpenGL events might have been collected."),
        ("info", "Not all NVTX events might have been collected."),
        ("error", "cannot sample"),
    ]
    return say(tmp_path / "a.sqlite", ("warning", LOST), ("warning", LOST), *others)


def test_lost_events_are_told_once_by_every_command(lossy: Path, tmp_path: Path) -> None:
    same = say(tmp_path / "b.sqlite", ("warning", LOST))
    with closing(sqlite3.connect(same)) as report, report:  # another recording
        report.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 1")
    sentence = f"nsys says of `{lossy}`: {LOST}"
    for command in (nsys_pp.pipeline, nsys_pp.summarise):
        assert told(lambda command=command: command([lossy])) == [sentence]  # type: ignore[misc]
    assert told(lambda: nsys_pp.merge([lossy], tmp_path / "x.pftrace")) == [sentence]
    part = tmp_path / "a.nspart"
    nsys_pp.extract([lossy], part)
    assert told(lambda: nsys_pp.pipeline([part])) == [sentence.replace(str(lossy), str(part))]
    both = told(lambda: nsys_pp.pipeline([lossy, same]))
    assert f"nsys says of `{lossy}` and `{same}`: {LOST}" in both


def test_info_lists_what_nsys_says_of_lost_events(lossy: Path) -> None:
    (told_of,) = nsys_pp.info([lossy]).reports
    assert f"nsys says of this report: {LOST}" in told_of.contents.anomalies
    assert sum("nsys says" in sentence for sentence in told_of.contents.anomalies) == 1


def test_messages_are_counted_by_text_errors_first(lossy: Path) -> None:
    from nsys_pp.model import build_report

    found = build_report(read_report(lossy, need=frozenset())).diagnostics
    assert found.rows()[:2] == [
        ("error", "cannot sample", 1),
        ("warning", "No OpenGL events collected. Does the process use OpenGL?", 1),
    ]
    assert ("warning", LOST, 2) in found.rows()
    assert set(found["severity"]) == {"error", "warning"}


def test_launches_after_their_operations_have_no_delay(tmp_path: Path) -> None:
    early = change(
        tmp_path / "early.sqlite",
        *(
            f"UPDATE CUPTI_ACTIVITY_KIND_{kind} SET start = start - 140000000, end = end - 140000000"
            for kind in ("KERNEL", "MEMCPY", "MEMSET")
        ),
    )
    (sentence,) = (sentence for sentence in told(lambda: nsys_pp.pipeline([early])) if "clock of" in sentence)
    assert sentence.startswith(f"the clock of GPU 0 in `{early}` is off: ")
    assert "before the call that launched them" in sentence
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = nsys_pp.pipeline([early]).tables(["kinds"])["kinds"]
        delays = nsys_pp.summarise([early], tables=["launches"]).tables["launches"]
    known = kinds["median_launch_delay_ns"].drop_nulls()
    assert (known >= -60_000).all()
    assert delays.filter(pl.col("min_ns") < -60_000).is_empty()
    assert not told(lambda: nsys_pp.pipeline([change(tmp_path / "right.sqlite")]))


@pytest.mark.parametrize(("end", "is_noted"), [(0.2, True), (0.01, False)])
def test_overhead_that_held_a_launching_thread_is_noted(end: float, is_noted: bool, tmp_path: Path) -> None:
    """Overhead inside other overhead counts once, and before the first launch not at all."""
    path = change(tmp_path / "report.sqlite")
    with closing(sqlite3.connect(path)) as report, report:
        thread, first, last = report.execute(
            "SELECT globalTid, min(start), max(end) FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY 1 ORDER BY count(*) DESC"
        ).fetchone()
        length = last - first
        report.execute(
            "CREATE TABLE PROFILER_OVERHEAD (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, returnValue INTEGER)"
        )
        report.execute("INSERT INTO StringIds VALUES (987654, 'CUPTI Buffer flush')")
        held = (first + length // 2, first + length // 2 + round(end * length))
        for span in (held, (held[0], held[1] - 5), (first - 9 * length, first)):
            report.execute("INSERT INTO PROFILER_OVERHEAD VALUES (?, ?, ?, 987654, 0)", (*span, thread))
    notes = [note for note in told(lambda: nsys_pp.pipeline(path)) if "nsys held" in note]
    assert len(notes) == is_noted
    if is_noted:
        share = float(notes[0].split(" for ")[1].split(" %")[0])
        assert 2 < share <= 20  # of all threads that launch
        assert "most in CUPTI Buffer flush: `pipeline --table overhead`" in notes[0]
