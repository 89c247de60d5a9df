"""`nsys-pp pipeline --explain-jobs`: every name of a range with the rule that reads it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from click.testing import CliRunner

import nsys_pp
from nsys_pp.cli import main
from nsys_pp.model import build_report
from nsys_pp.read import read_report

FIXTURE = Path(__file__).parents[2] / "fixtures" / "pipeline"


def test_all_names_are_explained() -> None:
    names = nsys_pp.explain_jobs(FIXTURE).names
    reports = [
        build_report(read_report(path, need=frozenset({"ranges"}))) for path in FIXTURE.rglob("*.sqlite")
    ]
    assert names["range_count"].sum() == sum(len(report.ranges) for report in reports)
    read = names.filter(pl.col("kind").is_not_null())
    assert dict(read.select("name", "kind").rows()) == {
        "step_#": "step",
        "forward_#": "forward",
        "backward_#": "backward",
        "send_forward_#": "send",
        "recv_forward_#": "receive",
        "send_backward_#": "send",
        "recv_backward_#": "receive",
        "optimizer": "optimizer",
        "zero_grad": "other",
    }
    assert set(read["preset"]) == {"plain"}
    assert names["kind"].is_null().is_sorted()
    unread = names.filter(pl.col("kind").is_null())
    assert unread["gpu_ns"].is_sorted(descending=True)
    assert unread["pattern"].null_count() == len(unread)


def test_patterns_of_users_are_named_and_come_first() -> None:
    names = nsys_pp.explain_jobs(FIXTURE, job_patterns="other=schedule", step_patterns=["step_(1.)"]).names
    rules = {name: (kind, preset, pattern) for kind, _, _, preset, pattern, name in names.rows()}
    assert rules["schedule"] == ("other", "", "schedule")
    assert rules["step_#"] == ("step", "", "step_(?P<step>1.)")


def test_names_are_printed_and_written(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["pipeline", "--explain-jobs", "--limit", "3", str(FIXTURE)])
    assert shown.exit_code == 0
    assert shown.output.startswith("Names of ranges\n")
    output = tmp_path / "names.csv"
    assert (
        CliRunner().invoke(main, ["pipeline", "--explain-jobs", str(FIXTURE), "-o", str(output)]).exit_code
        == 0
    )
    assert pl.read_csv(output)["name"].to_list() == nsys_pp.explain_jobs(FIXTURE).names["name"].to_list()
