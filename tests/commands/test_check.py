"""`check`: every defect is a sentence, never an exception, and the status is that of the worst."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from nsys_pp.frames.report import FINDINGS
from nsys_pp.read import read_report
from nsys_pp.read.files import check_integrity
from tests.breaks import BREAKS
from tests.cli.calls import RANK0
from tests.cli.calls import call as run_command
from tests.read.tables import call, kernel, op, push_pop, strings, write_export
from tests.sql import edit


def _kinds(path: Path, severity: str) -> dict[str, int]:
    findings = nsys_pp.check(path).findings.filter(pl.col("severity") == severity)
    return dict(findings.select("kind", "count").rows())


def test_a_whole_report_has_no_warning() -> None:
    result = nsys_pp.check(RANK0)
    assert (result.findings.schema, result.severity) == (FINDINGS, "info")
    assert result.findings.filter(pl.col("severity") != "info").is_empty()
    with pytest.raises(nsys_pp.OptionError):
        nsys_pp.check(RANK0, time_limit_s=-1)
    done = run_command("check", RANK0)
    lines = done.stdout.splitlines()
    assert (done.code, len(lines), lines[-1]) == (0, 2, "1 report: nothing wrong found")
    assert lines[0].startswith("info: rows without an event left out: 1 in 1 report (")
    lines = run_command("check", RANK0, "--verbose").stdout.splitlines()
    assert lines[0] == str(RANK0)
    assert "NVTX_EVENTS: 1 row left out: notes" in lines[1]
    assert lines[-1] == "1 report: nothing wrong found"


def test_real_reports_are_intact(shared_report: Path) -> None:
    assert check_integrity(shared_report, time_limit_s=60).complaints == ()


def test_orphans_clocks_and_values(tmp_path: Path) -> None:
    calls = [call(100, 110, i, nameId=0) for i in range(3)]
    path = write_export(
        tmp_path / "a.sqlite",
        {
            "StringIds": strings("cudaLaunchKernel", "gemm"),
            "NVTX_EVENTS": [push_pop(0, 500, textId=1), push_pop(0, 500, textId=77), push_pop(9, 3)],
            "CUPTI_ACTIVITY_KIND_RUNTIME": [*calls, call(200_000, 200_010, 9)],
            "CUPTI_ACTIVITY_KIND_KERNEL": [
                kernel(120, 140, 0),
                kernel(130, 150, 1),  # overlaps
                kernel(300, 320, 7),  # without a call
                kernel(100_000, 100_010, 9),  # 100 us before its call
                kernel(0, 0, 2),
            ],
            "CUPTI_ACTIVITY_KIND_MEMCPY": [op(400, 410, 55, copyKind=1, bytes=1)],
            "DIAGNOSTIC_EVENT": [{"severity": 2, "text": "Not all CUDA events might have been collected."}],
            "CUDNN_EVENTS": [{"start": None, "end": 5, "globalTid": 7, "nameId": 1}],  # drawn on request
        },
    )
    assert _kinds(path, "warning") == {
        "rows left out": 1,
        "lost events": 1,
        "operations without a call": 2,
        "calls without an operation": 1,
        "operations before their call": 1,
        "ids without a name": 1,
    }
    assert _kinds(path, "info") == {"overlapping kernels": 1, "unknown UTC": 1}
    texts = nsys_pp.check(path).findings["text"].to_list()
    assert "1 of 3 GPU operations start before the call that launched them, by up to 100.000 us" in texts
    assert "CUDNN_EVENTS: 1 row left out: without a start" in texts
    assert run_command("check", path).code == 6


@pytest.mark.parametrize("name", ["a.sqlite", "a.db"])
@pytest.mark.parametrize("way", sorted(BREAKS.keys() - {"absent"}))
def test_a_broken_report_is_a_finding(way: str, name: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(RANK0, tmp_path / name))
    breaks, words = BREAKS[way]
    breaks(path)
    done = run_command("check", path, "--format", "json")
    [report] = json.loads(done.stdout)["reports"]
    assert (done.code, report["findings"][0]["severity"]) == (5, "error")
    assert any(words in finding["text"] for finding in report["findings"]), report


def test_a_table_on_request_has_any_case_and_is_no_view(tmp_path: Path) -> None:
    path = edit(
        Path(shutil.copy(RANK0, tmp_path / "a.sqlite")),
        'CREATE TABLE "5x" (a)',
        "CREATE TABLE own AS SELECT start, end, globalTid, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME",
        "CREATE VIEW syscall AS SELECT * FROM own",
    )
    assert "`syscall` not read" in nsys_pp.check(path).findings["text"].to_list()
    edit(path, "DROP VIEW syscall", "ALTER TABLE own RENAME TO syscall")
    assert nsys_pp.check(path).severity == "info"
    assert len(read_report(path, need=frozenset({"show_os"}))["activities"]) > 0


def test_a_catalog_that_is_not_text_is_a_finding(tmp_path: Path) -> None:
    path = Path(shutil.copy(RANK0, tmp_path / "a.sqlite"))
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE \xff\xfeBLE"))
    assert nsys_pp.check(path).severity == "error"


def test_many_reports_and_parts(tmp_path: Path) -> None:
    whole, broken = (Path(shutil.copy(RANK0, tmp_path / name)) for name in ("a.sqlite", "b.sqlite"))
    edit(broken, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 5 WHERE rowid < 4")
    nsys_pp.extract(whole, tmp_path / "p.nspart")
    part = Path(shutil.copy(tmp_path / "p.nspart", tmp_path / "q.nspart"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 0xFF
    part.write_bytes(data)
    done = run_command(
        *("check", whole, broken, tmp_path / "p.nspart", part, tmp_path / "none.sqlite"),
        *("--keep-going", "--format", "json", "--result", tmp_path / "r.json"),
    )
    found = {Path(report["report"]).name: report["findings"] for report in json.loads(done.stdout)["reports"]}
    worst = {name: [f["severity"] for f in findings][:1] for name, findings in found.items()}
    assert worst == {
        "a.sqlite": ["info"],
        "b.sqlite": ["warning"],
        "p.nspart": ["info"],
        "q.nspart": ["error"],
    }
    assert found["b.sqlite"][0]["text"].endswith("3 rows left out: end before they start")
    assert done.code == 5
    printed = run_command("check", whole, broken, tmp_path / "p.nspart", part).stdout
    assert str(whole) not in printed
    assert printed.splitlines()[-1] == "4 reports: errors in 1, warnings in 1, nothing wrong found in 2"
    result = json.loads((tmp_path / "r.json").read_text())
    assert [skipped["path"] for skipped in result["skipped"]] == [str(tmp_path / "none.sqlite")]
    assert run_command("check", whole, tmp_path / "none.sqlite", "--keep-going").code == 3
