"""`nsys-pp compare`: what it prints, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures.simulate import main as simulate
from tests.cli.calls import PIPELINE, RANK0, assert_refused, call, succeed
from tests.sql import edit

TABLES = ["steps", "bubbles", "stages", "ranks", "links", "kinds", "families", "kernels"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of one program, of which the second has more micro-batches."""
    folder = tmp_path_factory.mktemp("runs")
    for name, count in (("a", "4"), ("b", "8")):
        options = f"--pp 2 --machines 1 --steps 4 --layers 1 --micro-batches {count} --no-truth"
        simulate([str(folder / name), *options.split()])
    return folder / "a", folder / "b"


def as_json(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    done = call("compare", *arguments, "--format", "json")
    assert done.code == code, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_run_is_the_same_as_itself() -> None:
    found = as_json(PIPELINE, PIPELINE, "--fail-on", "step>0%", "--fail-on", "bubble>0%")
    assert [*found["tables"]] == ["verdict", "comparability", *TABLES]
    assert {row["verdict"] for name in TABLES for row in found["tables"][name]} == {"same"}
    assert {row["effect"] for row in found["tables"]["comparability"]} == {"same", "noted"}
    assert [finding["kind"] for finding in found["tables"]["verdict"]] == ["step", "same"]
    assert found["failures"] == []


def test_what_got_slower_is_printed_and_a_gate_that_fails_ends_with_four(runs: tuple[Path, Path]) -> None:
    gates = ("--fail-on", "step>10%", "--fail-on", "step>1000%")
    assert_refused(
        call("compare", *runs, *gates), "no gate can be judged: A and B are of different work: micro-b"
    )
    allowed = (*gates, "--allow-different", "work")
    done = call("compare", *runs, *allowed)
    assert done.code == 4, done
    assert done.stderr.count("failed: ") == 1
    assert "failed: `step>10%`: step went from" in done.stderr
    lines = done.stdout.splitlines()
    (step,) = (line for line in lines if line.split()[-5:] == ["on", "a", "lane,", "median", "step"])
    assert "slower" in step
    assert lines[0] == "Verdict"
    assert lines[1].startswith("Likely: steps take ")
    assert lines.index("Comparability") <= 7
    assert any(line.startswith("micro-batches of a step  4  8  large") for line in lines)
    found = as_json(*runs, *allowed, code=4)
    assert len(found["failures"]) == 1
    row = found["tables"]["steps"][0]
    assert step.split()[:2] == [f"{row[run] / 1e6:.3f}" for run in "ab"]
    assert "Steps" in lines
    assert "Kernels" not in lines
    assert "Kernels" in call("compare", *runs, "--table", "kernels").stdout.splitlines()


def test_what_got_faster_fails_no_limit_from_above(runs: tuple[Path, Path]) -> None:
    allowed = ("--allow-different", "work")
    assert call("compare", *reversed(runs), "--fail-on", "step>10%", *allowed).code == 0


def test_kernels_without_names_are_no_other_kernels(tmp_path: Path) -> None:
    nameless = edit(
        Path(shutil.copy(RANK0, tmp_path / "a.sqlite")),
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = -1, demangledName = -1",
    )
    assert "other kernels" not in succeed("compare", RANK0, nameless).stdout


def test_patterns_without_quotes_are_told() -> None:
    done = call("compare", PIPELINE, PIPELINE, PIPELINE, PIPELINE)
    assert done.code == 2
    assert "quote patterns of several reports" in done.stderr


def test_an_invalid_gate_is_refused() -> None:
    assert_refused(call("compare", PIPELINE, PIPELINE, "--fail-on", "bubble"), "invalid gate `bubble`")
    assert_refused(call("compare", PIPELINE, PIPELINE, "--fail-on", "luck>5%"), "unknown metric `luck`")


@pytest.mark.slow
def test_steps_of_each_run(runs: tuple[Path, Path]) -> None:
    a, b = runs
    found = as_json(f"{a}:10:12", f"{a}:12:14")
    assert [row["a_step_count"] for row in found["tables"]["steps"]] == [2, 2, 2]
    assert found["runs"] == {"a": f"{a}, steps 10:12", "b": f"{a}, steps 12:14"}
    assert "one recording: steps differ" in json.dumps(found["tables"]["comparability"])
    assert as_json(a, a, "--steps-a", "10:12", "--steps-b", "12:14")["tables"] == found["tables"]
    assert as_json(f"{a}:10:13", b, "--steps", "11:14")["tables"]["steps"][0]["a_step_count"] == 3
    done = call("compare", f"{a}:10", b)
    assert done.code == 2
    assert f"use `{a}:10:11`" in done.stderr.replace("\n", " ")


def test_what_cannot_be_compared_is_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    done = call("compare", PIPELINE, runs[0], "-o", page)
    assert_refused(done, "A and B cannot be compared: stages 4 in A, 2 in B")
    assert "`--allow-different stages`" in done.stderr
    assert not page.exists()
    allowed = succeed("compare", PIPELINE, runs[0], "--allow-different", "stages", "--json")
    tables = json.loads(allowed.stdout)["tables"]
    assert (tables["stages"], tables["ranks"], tables["links"]) == ([], [], [])
    assert {row["stage"] for row in tables["kinds"]} == {None}


def test_a_page_is_written(runs: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "change.html"
    options = ("--title", "A <new> kernel", "--fail-on", "step>1000%", "--allow-different", "work")
    done = succeed("compare", *runs, "-o", page, *options)
    assert f"Wrote {page} (" in done.stderr
    assert done.stdout.startswith("Verdict\n")
    text = page.read_text()
    assert "<h1>A &lt;new&gt; kernel</h1>" in text
    assert '<span class="passed">passed</span> <code>step&gt;1000%</code>' in text
    assert_refused(call("compare", *runs, "-o", page), "exists")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with parts of two good runs, of which the second is 10 % slower; runs beside it."""
    folder = tmp_path_factory.mktemp("good")
    fixed = "--pp 2 --machines 1 --steps 4 --layers 1 --jitter 0.005 --no-truth"
    for number, (name, count, cost) in enumerate(
        [("1", 4, 1.0), ("2", 4, 1.1), ("between", 4, 1.05), ("slow", 4, 1.4), ("other", 8, 1.0)], 1
    ):
        options = f"{fixed} --seed {number} --micro-batches {count} --stage-costs {cost},{cost}"
        simulate([str(folder / "reports" / name), *options.split()])
        place = "good" if name in "12" else name
        succeed("extract", folder / "reports" / name, "-o", folder / place / name, "--detail", "jobs")
    return folder


@pytest.mark.slow
def test_the_spread_of_good_runs_is_the_noise_of_another(good: Path) -> None:
    one = as_json(good / "good" / "1", good / "between")["tables"]["steps"][0]
    assert (one["verdict"], one["a_step_count"]) == ("slower", 4)
    found = as_json(good / "good", good / "between", "--fail-on", "step>1%")
    step = found["tables"]["steps"][0]
    assert (step["verdict"], step["a_step_count"], step["b_step_count"]) == ("same", 8, 4)
    assert step["noise_fraction"] > 0.07
    assert "in A itself" not in json.dumps(found["tables"]["verdict"])
    differing = [row["fact"] for row in found["tables"]["comparability"] if row["effect"] != "same"]
    assert differing == ["complete steps"]
    slow = as_json(good / "good", good / "slow", "--fail-on", "step>3%", code=4)
    assert slow["tables"]["steps"][0]["verdict"] == "slower"
    assert {row["verdict"] for row in slow["tables"]["ranks"]} == {"slower"}
    assert call("compare", good / "good", good / "slow", "-o", good / "page.html").code == 0


@pytest.mark.slow
def test_good_runs_of_other_work_are_refused(good: Path) -> None:
    mixed = good / "mixed"

    shutil.copytree(good / "good" / "1", mixed / "1")
    shutil.copytree(good / "other" / "other", mixed / "2")
    done = call("compare", mixed, good / "slow")
    assert_refused(
        done, "the runs in A are of different work: run 1 and run 2 differ in micro-batches of a step"
    )


def test_a_slow_link_explains_the_longer_steps_and_the_bubble(tmp_path: Path) -> None:
    fixed = "--pp 2 --machines 2 --steps 4 --layers 1 --micro-batches 4 --no-truth"
    for name, link in (("a", "--seed 1"), ("b", "--seed 2 --slow-link 0,1=20")):
        simulate([str(tmp_path / name), *fixed.split(), *link.split()])
    found = {row["kind"]: row for row in as_json(tmp_path / "a", tmp_path / "b")["tables"]["verdict"]}
    assert found["link"]["line"].startswith(
        "Likely: messages rank 0 -> rank 1 (node0 GPU 0 -> node1 GPU 0) need"
    )
    assert found["link"]["gain_ns"] == pytest.approx(found["step"]["gain_ns"], rel=0.05)
    assert found["bubble"]["line"].endswith("; other lines explain most.")
    assert found["bubble"]["gain_ns"] < 0.2 * found["step"]["gain_ns"]


def test_copies_of_one_run_are_no_two_good_runs(runs: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("1", "2"):
        shutil.copytree(runs[0], tmp_path / "good" / name)
    assert_refused(
        call("compare", tmp_path / "good", runs[0]), "have the same recording, so they are not two runs"
    )


def test_a_gate_within_noise_passes_with_a_note(runs: tuple[Path, Path]) -> None:
    a, b = (f"{runs[0]}:{steps}" for steps in ("10:12", "12:14"))
    step = as_json(a, b)["tables"]["steps"][0]
    assert abs(step["change_fraction"]) <= step["noise_fraction"]
    sign, limit = (
        (">", step["change_fraction"] - 1e-5)
        if step["change_fraction"] > 0
        else ("<", step["change_fraction"] + 1e-5)
    )
    done = call("compare", a, b, "--fail-on", f"step{sign}{100 * limit:.6f}%")
    assert done.code == 0
    assert "cannot be judged" in done.stderr
