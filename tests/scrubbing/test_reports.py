"""Scrubbed reports: nothing that no analysis shows is in their bytes, and all analyses have equal results."""

from __future__ import annotations

import re
import shutil
import string
import subprocess
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import nsys_pp
from fixtures.recording.secrets import MARK
from nsys_pp.errors import MissingDataError, OutputError, ReportError
from nsys_pp.read import read_report
from nsys_pp.scrubbing import reports
from nsys_pp.scrubbing.pseudonyms import Identities, choose_pseudonyms
from tests.cli.calls import (
    PIPELINE,
    RANK0,
    assert_refused,
    call,
    command_line,
    environment,
    succeed,
    wait_until,
)
from tests.read.test_arrow import write_folder
from tests.read.test_errors import make_endless_tree
from tests.sql import edit, select
from tests.test_secrets import HIDDEN, SHOWN, plant, plant_into
from tests.unpacking import find_words

HOSTS = ("node2", "node10")


UUIDS = ("93023106-c21f-5b7d-a71e-7f206706c2cd", "4efa2c7a-17ed-5e5d-9128-bb613fc4c4c7")


def _list_results(report: Path, folder: Path) -> dict[str, object]:
    """Return the results of analyses of a report; an analysis that lacks its data has none.

    The bytes of a trace with all details, and tables.
    """
    trace = folder / f"{report.parent.name}.pftrace"
    results: dict[str, object] = {}
    with suppress(MissingDataError):
        nsys_pp.merge(report, trace, detail="cpu", flows=True)
        results["trace"] = trace.read_bytes()
    with suppress(MissingDataError):
        calls = nsys_pp.pipeline(report).tables(["host"])["host"].filter(activity="call")  # no stacks
        results["calls"] = calls.select("cause", "name", "time_ns", "count")
    with suppress(MissingDataError):
        results["projections"] = nsys_pp.project(report, ops="all", scope="process").ranges
    results["summary"] = nsys_pp.summary(report).tables
    results["clocks"] = nsys_pp.align(report).clocks
    return results


def _assert_equal(first: object, second: object) -> None:
    if isinstance(first, pl.DataFrame):
        assert isinstance(second, pl.DataFrame)
        assert_frame_equal(first, second, check_exact=True)
    elif isinstance(first, dict):
        assert isinstance(second, dict)
        assert first.keys() == second.keys()
        for name, value in first.items():
            _assert_equal(value, second[name])
    else:
        assert first == second


def _scrub_beside(report: Path, folder: Path) -> tuple[Path, Path]:
    """Return a copy of a report as it is, and a scrubbed one, of the same name."""
    for name in ("plain", "clean"):
        (folder / name).mkdir()
    plain = Path(shutil.copy(report, folder / "plain" / "report.sqlite"))
    clean = folder / "clean" / "report.sqlite"
    nsys_pp.scrub(plain, clean)
    return plain, clean


@pytest.mark.few(1)
@pytest.mark.parametrize("schema", ["3.25.0", "3.7.2", "3.0.0"])
def test_planted_secrets_are_not_in_the_bytes(tmp_path: Path, schema: str) -> None:
    report = plant(tmp_path / "planted.sqlite", schema)
    plant_into(report)
    if schema == "3.7.2":  # names are equal in any case
        edit(report, "ALTER TABLE TARGET_INFO_SYSTEM_ENV RENAME COLUMN name TO NAME")
    plain, clean = _scrub_beside(report, tmp_path)
    # an event of the operating system refers to it
    ((text,),) = select(plain, "SELECT value FROM StringIds WHERE id = 900002")
    assert find_words(clean.read_bytes().replace(text.encode(), b""), [MARK, *HIDDEN]) == set()
    assert find_words(clean.read_bytes(), [SHOWN]) == {SHOWN}
    _assert_equal(_list_results(plain, tmp_path), _list_results(clean, tmp_path))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what real reports lack
def test_results_of_real_reports_are_equal(shared_report: Path, tmp_path: Path) -> None:
    original = tmp_path / "planted.sqlite"
    original.write_bytes(shared_report.read_bytes())
    plant_into(original)
    plain, clean = _scrub_beside(original, tmp_path)
    assert find_words(clean.read_bytes(), [MARK]) == set()
    _assert_equal(_list_results(plain, tmp_path), _list_results(clean, tmp_path))


@pytest.fixture(scope="module")
def tables() -> dict[str, pl.DataFrame]:
    """Tables of the run in `fixtures/pipeline`."""
    return dict(nsys_pp.pipeline(PIPELINE).tables())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_raw_frames_of_fixtures_are_equal(tmp_path: Path, tables: dict[str, pl.DataFrame]) -> None:
    """Of all but the texts that no analysis shows; of a run also its training."""
    originals = sorted(PIPELINE.rglob("*.sqlite"))
    nsys_pp.scrub(originals, tmp_path / "clean")
    for report in originals:
        before, after = read_report(report), read_report(tmp_path / "clean" / report.name)
        assert before.recorded == after.recorded
        notes = [raw["nvtx"].filter(kind="note") for raw in (before, after)]
        assert_frame_equal(notes[0].drop("text"), notes[1].drop("text"))
        assert notes[1]["text"].null_count() == len(notes[1])  # no analysis shows them
        events = [raw["nvtx"].filter(pl.col("kind") != "note") for raw in (before, after)]
        assert_frame_equal(*events)
        for name in ("calls", "kernels", "copies", "contexts", "launcher", "facts", "session"):
            assert_frame_equal(before[name], after[name])
    assert nsys_pp.check(tmp_path / "clean").severity == nsys_pp.check(originals).severity
    clean = nsys_pp.pipeline(tmp_path / "clean").tables()
    assert tables.keys() == clean.keys()
    for name, table in tables.items():
        assert_frame_equal(table, clean[name], check_exact=True)


def test_a_copy_has_no_free_pages_and_no_definitions(tmp_path: Path) -> None:
    report = Path(shutil.copy(RANK0, tmp_path / "a.sqlite"))
    edit(
        report,
        f"CREATE VIEW {MARK.replace('-', '_')} AS SELECT '{MARK}'",
        "CREATE TABLE notes (text DEFAULT 'planted-secret')",
        f"CREATE INDEX own ON StringIds (value) WHERE value <> '{MARK}'",
        "ALTER TABLE StringIds ADD COLUMN planted_column TEXT DEFAULT 'planted-secret'",
    )
    clean = tmp_path / "clean.sqlite"
    assert "notes" in nsys_pp.scrub(report, clean).removed[report].tables
    assert find_words(clean.read_bytes(), [MARK, "planted_secret", "planted_column"]) == set()
    assert select(clean, "PRAGMA freelist_count") == [(0,)]
    assert select(clean, "PRAGMA integrity_check") == [("ok",)]


def test_other_tables_are_kept_on_request(tmp_path: Path) -> None:
    report = edit(
        Path(shutil.copy(RANK0, tmp_path / "a.sqlite")),
        "CREATE TABLE notes (text, number REAL, twice AS (number * 2))",
        "INSERT INTO notes VALUES ('shown', 0.5), (x'00ff', NULL)",
    )
    done = succeed(
        "scrub", report, "-o", tmp_path / "b.sqlite", "--keep-table", "notes", "--keep-table", "absent\udcff"
    )
    assert f"note: `{report}`: `notes` copied as they are, with all their texts" in done.stderr
    assert f"note: `{report}` has no table `absent\\xff`" in done.stderr
    assert select(tmp_path / "b.sqlite", "SELECT * FROM notes") == [("shown", 0.5), (b"\0\xff", None)]


def test_secrets_with_semicolons_and_quotes_and_users_of_paths_are_found(tmp_path: Path) -> None:
    report = edit(
        Path(shutil.copy(RANK0, tmp_path / "a.sqlite")),
        "UPDATE TARGET_INFO_SYSTEM_ENV SET value = value || ';DB_PWD=first\"half;second half;A_KEY=Zoë=letters;URL_KEY= https://x<y '"
        " WHERE name = 'DeviceEnvironment'",
        "UPDATE NVTX_EVENTS SET text = 'to first\"half;second half', textId = NULL WHERE rowid = 20",
        'UPDATE NVTX_EVENTS SET text = \'to {"p": "first\\"half"}\', textId = NULL WHERE rowid = 21',
        "UPDATE NVTX_EVENTS SET text = 'Zo\\u00eb=letters', textId = NULL WHERE rowid = 23",
        "UPDATE NVTX_EVENTS SET text = 'file:///home/alicebrown/x.py', textId = NULL WHERE rowid = 22",
        "UPDATE NVTX_EVENTS SET text = 'at https:\\/\\/x<y', textId = NULL WHERE rowid = 24",
        "UPDATE NVTX_EVENTS SET text = 'at https://x\\u003Cy', textId = NULL WHERE rowid = 25",
        # an environment among the strings
        "INSERT INTO StringIds VALUES (654321, 'HOME=/root' || char(0) || 'A_TOKEN=semi;B=colon' || char(0) || 'C=1')",
        "UPDATE NVTX_EVENTS SET text = 'for semi;B=colon', textId = NULL WHERE rowid = 26",
        # another process
        "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_1:ENVIRONMENT_VARIABLE', 'D_KEY=\"ofanother\"')",
        "UPDATE NVTX_EVENTS SET text = 'of ofanother', textId = NULL WHERE rowid = 27",
    )
    succeed("scrub", report, "-o", tmp_path / "b.sqlite", "--users")
    assert (
        find_words(
            (tmp_path / "b.sqlite").read_bytes(),
            ['"half', "second half", "letters", "alicebrown", "https", "semi", "colon", "ofanother"],
        )
        == set()
    )


def test_names_of_threads_that_only_the_system_knows_are_kept(tmp_path: Path) -> None:
    report = edit(
        Path(shutil.copy(RANK0, tmp_path / "a.sqlite")),
        "CREATE TABLE SCHED_EVENTS (start, cpu, isSchedIn, globalTid)",
        "INSERT INTO SCHED_EVENTS VALUES (5, 0, 1, 77)",
        "INSERT INTO StringIds VALUES (77777, 'loader'), (77778, 'of no event')",
        "INSERT INTO ThreadNames (nameId, globalTid) VALUES (77777, 77), (77778, 78)",
    )
    succeed("scrub", report, "-o", tmp_path / "b.sqlite")
    names = "SELECT s.value FROM ThreadNames JOIN StringIds AS s ON s.id = nameId WHERE globalTid IN (77, 78)"
    assert select(tmp_path / "b.sqlite", names) == [("loader",)]


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(["CREATE TABLE e (b)", "INSERT INTO e VALUES (zeroblob(64))"], id="zeros"),
        pytest.param(
            [
                "CREATE TABLE e (own INTEGER PRIMARY KEY, start, eventType, globalTid, text)",
                "INSERT INTO e SELECT 9000 + 3 * rowid, start, 34, globalTid, 'mark' FROM NVTX_EVENTS",
                "DROP TABLE NVTX_EVENTS",
                "ALTER TABLE e RENAME TO NVTX_EVENTS",
            ],
            id="chosen row ids",
        ),
        pytest.param(
            ["UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET rowid = 9223372036854775807 WHERE rowid = 1296"],
            id="largest row id",
        ),
        pytest.param(
            ["ALTER TABLE StringIds RENAME TO e", "ALTER TABLE e RENAME TO stringids"],
            id="name in lower case",
        ),
        pytest.param(
            [
                "PRAGMA writable_schema = ON",
                "UPDATE sqlite_master SET sql = replace(sql, 'TEXT', 'TEXT COLLATE odd') WHERE name = 'StringIds'",
            ],
            id="unknown collation",
        ),
    ],
)
def test_an_odd_report_is_copied(tmp_path: Path, statements: list[str]) -> None:
    report = edit(Path(shutil.copy(RANK0, tmp_path / "a.sqlite")), *statements)
    succeed("scrub", report, "-o", tmp_path / "b.sqlite", "--keep-table", "stringids")
    one, other = (read_report(tmp_path / name) for name in ("a.sqlite", "b.sqlite"))
    assert one.recorded == other.recorded
    assert one["nvtx"]["row"].to_list() == other["nvtx"]["row"].to_list()


def test_a_table_without_end_is_refused(tmp_path: Path) -> None:
    report = tmp_path / "a.sqlite"
    make_endless_tree(report)
    edit(
        report,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET name = 'e', tbl_name = 'e', sql = replace(sql, 'NVTX_EVENTS', 'e')"
        " WHERE name = 'NVTX_EVENTS'",
    )
    edit(report, "CREATE TABLE NVTX_EVENTS (start, eventType)")
    for keep in ([], ["--keep-table", "e"]):
        done = call("scrub", report, "-o", tmp_path / "b.sqlite", *keep)
        assert (done.code, done.stdout) == (1, "")
        assert "is damaged: SQLite cannot read all of it" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.sqlite"]


def test_a_killed_scrub_leaves_no_journal(tmp_path: Path) -> None:
    """The next run removes the hidden file itself, but not what SQLite put beside it."""
    report = edit(
        Path(shutil.copy(RANK0, tmp_path / "a.sqlite")),
        "CREATE TABLE e (number, text)",
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000)"
        " INSERT INTO e SELECT i, hex(i) FROM n",
    )
    (folder := tmp_path / "out").mkdir()
    line = command_line("scrub", report, "-o", folder / "b.sqlite", "--keep-table", "e")
    with subprocess.Popen(line, env=environment(PYTHONWARNINGS="")) as process:
        wait_until(
            lambda: any(path.stat().st_size > 2 * RANK0.stat().st_size for path in folder.iterdir()), process
        )
        process.kill()
    assert not [path for path in folder.iterdir() if "journal" in path.name]


def test_a_copy_that_would_hold_a_removed_text_does_not_appear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = plant(tmp_path / "planted.sqlite", "3.7.2")
    write = reports.write_database

    def leak(path: Path, *arguments: object) -> None:
        write(path, *arguments)  # type: ignore[arg-type]
        edit(path, "CREATE TABLE gone (text)", "INSERT INTO gone VALUES (:text)", text=f"{MARK}-unused")
        edit(path, "PRAGMA secure_delete = OFF", "DROP TABLE gone")

    monkeypatch.setattr(reports, "write_database", leak)
    (tmp_path / "out").mkdir()
    with pytest.raises(ReportError, match=r"would hold .* texts that were to be removed"):
        nsys_pp.scrub(report, tmp_path / "out" / "clean.sqlite")
    assert list((tmp_path / "out").iterdir()) == []


def test_refusals(tmp_path: Path) -> None:
    output = tmp_path / "clean.sqlite"
    assert_refused(call("scrub", tmp_path / "absent.sqlite", "-o", output), "does not exist")
    assert_refused(call("scrub", PIPELINE, "-o", output), "it is not a folder")
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(RANK0.read_bytes()[:50_000])
    assert_refused(call("scrub", broken, "-o", output), "is truncated")
    assert call("scrub", RANK0).code == 2
    output.touch()
    with pytest.raises(OutputError, match="exists"):
        nsys_pp.scrub(RANK0, output)
    assert_refused(call("scrub", broken, "-o", broken, "--force"), "is one of the reports")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.sqlite", "clean.sqlite"]


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_copies_of_folders_and_patterns_keep_their_folders(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    for name, rank in (("node2", 0), ("node10", 2)):  # in folders of machines, with equal names
        (reports / name).mkdir(parents=True)
        shutil.copy(PIPELINE / name / f"rank{rank}.sqlite", reports / name / "report.sqlite")
    expected = ["node10/report.sqlite", "node2/report.sqlite"]
    for inputs in (
        [reports],
        [f"{reports}/node*/*.sqlite"],
        [reports / "node2", reports / "node10"],
    ):
        folder = tmp_path / "out"
        copies = nsys_pp.scrub(inputs, folder).copies
        assert _names(folder) == expected
        assert {*copies.values()} == {folder / name for name in expected}
        shutil.rmtree(folder)
    nsys_pp.scrub(reports / "node2", tmp_path / "one")
    assert _names(tmp_path / "one") == ["report.sqlite"]
    nsys_pp.scrub([*sorted(reports.glob("*/*.sqlite")), RANK0], tmp_path / "out")
    assert len(_names(tmp_path / "out")) == 3
    assert_refused(call("scrub", reports, reports / "node2", "-o", tmp_path / "twice"), "named twice")
    (tmp_path / "none").mkdir()
    assert_refused(call("scrub", tmp_path / "none", "-o", tmp_path / "x"), "holds no report")


def test_reports_of_a_run_have_pseudonyms_of_one_call(
    tmp_path: Path, tables: dict[str, pl.DataFrame]
) -> None:
    """Also folders that are named like machines."""
    result = nsys_pp.scrub(PIPELINE, tmp_path / "clean", hosts=True, paths=True)
    assert {copy.parent.name for copy in result.copies.values()} == {"host1", "host2"}
    for copy in result.copies.values():
        assert find_words(copy.read_bytes(), [*HOSTS, *UUIDS]) == set()
    clean = nsys_pp.pipeline(tmp_path / "clean").tables()
    for name, table in tables.items():
        text = re.sub(
            r"\bnode2\b", "host1", re.sub(r"\bnode10\b", "host2", repr(table.to_dict(as_series=False)))
        )
        assert text == repr(clean[name].to_dict(as_series=False)), name


@pytest.mark.parametrize("name", ["rank0.nspart", "run.pftrace", "run.json.gz"])
def test_outputs_are_refused(name: str, tmp_path: Path) -> None:
    output = tmp_path / name
    output.write_bytes(b"any")
    assert_refused(
        call("scrub", output, "--hosts", "-o", tmp_path / "copy"),
        f"`{output}` is no report, and `scrub` copies reports alone",
    )


@pytest.mark.parametrize("form", ["parquet", "stream"])
def test_a_folder_has_the_copy_of_its_report(tmp_path: Path, form: str) -> None:
    report = Path(shutil.copy(RANK0, tmp_path / "rank0.sqlite"))
    folder = write_folder(report, tmp_path / "rank0_pqtdir", form)
    copies = [tmp_path / name for name in ("a.sqlite", "b.sqlite")]
    results = [
        nsys_pp.scrub(path, copy, hosts=True, users=True, paths=True)
        for path, copy in zip((report, folder), copies, strict=True)
    ]
    assert copies[0].read_bytes() == copies[1].read_bytes()
    assert results[1].removed[folder].tables == results[0].removed[report].tables
    assert results[1].removed[folder].text_count > 100
    assert results[0].pseudonyms == results[1].pseudonyms


def test_texts_of_naming_ranges_are_removed(tmp_path: Path) -> None:
    """Of threads without events, and payloads of domains and categories."""
    report = edit(
        Path(shutil.copy(RANK0, tmp_path / "a.sqlite")),
        f"UPDATE NVTX_EVENTS SET jsonText = '{MARK}' WHERE eventType IN (33, 75)",
        f"INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid) VALUES (1, 76, '{MARK}', 5)",
    )
    succeed("scrub", report, "-o", tmp_path / "b.sqlite")
    assert MARK.encode() not in (tmp_path / "b.sqlite").read_bytes()


def test_a_table_of_durations_is_copied(tmp_path: Path) -> None:
    folder = write_folder(RANK0, tmp_path / "rank0_pqtdir", "parquet")
    pl.DataFrame({"took": [timedelta(1), None]}).write_parquet(folder / "notes.parquet")
    succeed("scrub", folder, "-o", tmp_path / "b.sqlite", "--keep-table", "notes")
    assert select(tmp_path / "b.sqlite", "SELECT took FROM notes") == [("1 day, 0:00:00",), (None,)]


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    folder = write_folder(RANK0, tmp_path / "rank0_pqtdir", "parquet")
    (folder / "notes.parquet").write_bytes(b"PAR1 no PAR1")
    assert_refused(call("scrub", folder, "-o", tmp_path / "b.sqlite"), "notes.parquet` cannot be read")
    assert not (tmp_path / "b.sqlite").exists()


def test_copies_inside_the_folder_are_no_inputs_of_a_second_call(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    shutil.copytree(PIPELINE, reports)
    clean = reports / "clean"
    for force in (False, True):
        copies = nsys_pp.scrub(reports, clean, hosts=True, force=force).copies
        assert sorted(path.relative_to(reports) for path in copies) == sorted(
            path.relative_to(PIPELINE) for path in PIPELINE.rglob("*.sqlite")
        )
    assert not any(path.name == "clean" for path in clean.rglob("*"))
    with pytest.raises(OutputError, match="exists"):
        nsys_pp.scrub(reports, clean, hosts=True)
    for path in PIPELINE.rglob("*.sqlite"):
        (reports / path.relative_to(PIPELINE)).unlink()
    with pytest.raises(ReportError, match="holds no report, only copies in"):
        nsys_pp.scrub(reports, clean, hosts=True, force=True)


def test_a_recording_without_nsys_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("NSYS_PP_NSYS", raising=False)
    monkeypatch.setenv("NSYS_PP_CACHE", str(tmp_path / "cache"))
    recording = tmp_path / "rank0.nsys-rep"
    recording.write_bytes(b"x" * 100)
    done = call("scrub", recording, "-o", tmp_path / "clean.sqlite")
    assert_refused(done, "nsys")
    assert "nsys export --type sqlite" in done.stderr
    assert not (tmp_path / "clean.sqlite").exists()


NAMES = Identities(
    hosts=frozenset({"node2.cluster.org", "node10", "n1"}),
    machine_ids=frozenset({"a1b2c3d4"}),
    uuids=frozenset(UUIDS),
    users=frozenset({"alice", "bo"}),
    secrets=frozenset({"hf_0123456789"}),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node10", "host3"),
        ("NODE10", "host3"),
        ("node2.cluster.org", "host2"),
        ("node2", "host2"),
        ("send to node10 (node2)", "send to host3 (host2)"),
        ("node100 mynode10 node10x", "node100 mynode10 node10x"),
        ("n1", "host1"),
        ("layer n1", "layer n1"),  # a word
        ("a1b2c3d4", "machine1"),
        ("GPU-4efa2c7a-17ed-5e5d-9128-bb613fc4c4c7", "GPU-00000001-0000-0000-0000-000000000000"),
        ("0,GPU-93023106", "0,GPU-00000002"),
        ("GPU-ffffffff", "GPU-ffffffff"),
        ("xhf_0123456789y", "xremovedy"),
        ("home of alice", "home of user1"),
        ("bo", "user2"),
        ("at /home/alice/run/train.py:7 in f", "at /p1/p2/p3/p4.py:7 in f"),
        ("/home/alice/run/train.py", "/p1/p2/p3/p4.py"),
        (r"C:\Users\alice\x.py", r"C:\p5\p2\p6.py"),
        ("aten::add, seq = 3/4 and/or", "aten::add, seq = 3/4 and/or"),
    ],
)
def test_examples(text: str, expected: str) -> None:
    pseudonyms = choose_pseudonyms(NAMES, hosts=True, users=True, paths=True)
    for path in ("/home/alice/run/train.py", r"C:\Users\alice\x.py"):
        pseudonyms.replace(path)
    assert pseudonyms.replace(text) == expected


def test_nothing_but_secrets_is_replaced_unasked() -> None:
    pseudonyms = choose_pseudonyms(NAMES, hosts=False, users=False, paths=False)
    text = f"node10 alice /home/alice/x.py {UUIDS[0]} "
    assert pseudonyms.replace(text + "hf_0123456789") == text + "removed"


WORDS = st.text(string.ascii_lowercase + string.digits, min_size=4, max_size=9)


@given(
    hosts=st.sets(WORDS, min_size=1, max_size=6), text=st.lists(WORDS | st.sampled_from("./-: "), max_size=12)
)
def test_no_host_is_left_and_hosts_stay_distinct(hosts: set[str], text: list[str]) -> None:
    pseudonyms = choose_pseudonyms(Identities(hosts=frozenset(hosts)), hosts=True, users=False, paths=False)
    replaced = [pseudonyms.replace(host) for host in sorted(hosts)]
    assert len({*replaced}) == len(hosts)
    joined = " ".join([*text, *sorted(hosts)])
    words = pseudonyms.replace(joined).replace("/", " ").replace(".", " ").replace("-", " ").split()
    assert hosts & {*words} <= {*replaced}
