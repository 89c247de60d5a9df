"""The same recipes under releases of nsys that cannot be had here: a fake has what is known of their differences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

RELEASES = ["2024.2", "2024.6", "2026.4"]
STUB = """
import json, pathlib, sys
name, *words = sys.argv[1:]
if name == "--version":
    sys.exit(print("nsys-pp, version 0"))
with open({log!r}, "a") as log:
    print(json.dumps([name, *words]), file=log)
output = pathlib.Path(next(word for word in words if word.startswith("--output="))[len("--output="):])
if name == "extract" and "bad" in words[-1]:
    sys.exit("Error: it is bad")
if output.is_dir():
    output /= f"{{name}}." + ("csv" if "--format=csv" in words else "parquet")
output.write_text("made")
print("Wrote", output)
"""


def run(
    tmp_path: Path, release: str, *words: str
) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """Run a recipe in a folder of reports, with a stub of nsys-pp; and give the commands that it was told."""
    log = tmp_path / "log"
    stub = tmp_path / "nsys-pp"
    stub.write_text(f"#!{sys.executable}\n{STUB.format(log=str(log))}")
    stub.chmod(0o755)
    recipes = [str(REPOSITORY / "recipes")]
    if release == "2026.4":
        recipes.insert(0, str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "nsys_recipe", *words],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parent / "fake"),
            "FAKE_NSYS": release,
            "NSYS_RECIPE_PATH": os.pathsep.join(recipes),
            "NSYS_PP_COMMAND": str(stub),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done, [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    folder.mkdir()
    for name in ("rank2", "rank10"):
        (folder / f"{name}.nsys-rep").touch()
    return folder


@pytest.mark.few(2)
@pytest.mark.parametrize("release", RELEASES)
def test_a_recipe_runs(release: str, reports: Path, tmp_path: Path) -> None:
    words = ["--input", str(reports), "--output", "out", "--csv", "--keep-parts", "--preset", "megatron"]
    done, told = run(tmp_path, release, "nsys_pp_merge", *words)
    assert done.returncode == 0, done.stdout
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        *("run.pftrace", "pipeline.html", "pipeline.parquet", "pipeline.csv", "parts"),
        *("results.ipynb", "out.nsys-analysis"),
    }
    assert [words[0] for words in told] == ["extract", "extract", "merge", "chart", "pipeline", "pipeline"]
    parts = [f"{out}/parts/0/rank2.nspart", f"{out}/parts/1/rank10.nspart"]
    assert told[0][1:] == ["--detail=kernels", "--preset=megatron", f"--output={parts[0]}", "--",
                           f"{reports}/rank2.nsys-rep"]  # fmt: skip
    assert all(words[-2:] == parts for words in told[2:])
    analysis = json.loads((out / "out.nsys-analysis").read_text())
    assert list(analysis["Outputs"].items()) == [
        *(("results.ipynb", "Notebook"), ("parts/0/rank2.nspart", "Part"), ("parts/1/rank10.nspart", "Part")),
        *(("pipeline.csv", "Table"), ("pipeline.html", "Page"), ("pipeline.parquet", "Table")),
        ("run.pftrace", "Trace"),
    ]
    assert sorted(analysis["InputFiles"]) == sorted(map(str, reports.iterdir()))
    assert "One trace of all reports (nsys-pp)" in (out / "results.ipynb").read_text()
    shown = run(tmp_path, release, "nsys_pp_summary", "--help")[0].stdout
    own = ("input", "output", "force-overwrite", "csv", "mode", "paddle-compat", "keep-parts")
    assert [word for word in own if f"--{word}" not in shown] == []


@pytest.mark.few(1)
@pytest.mark.parametrize("release", RELEASES)
def test_what_cannot_be_made_a_part_is_left_to_the_next_command(
    release: str, reports: Path, tmp_path: Path
) -> None:
    (reports / "rank3_bad.nsys-rep").touch()
    done, told = run(tmp_path, release, "nsys_pp_pipeline", "--input", str(reports), "--output", "out")
    assert done.returncode == 0, done.stdout
    assert told[-2][-3:] == [
        *(f"{tmp_path}/out/parts/0/rank2.nspart", f"{reports}/rank3_bad.nsys-rep"),
        f"{tmp_path}/out/parts/2/rank10.nspart",
    ]
    assert not (tmp_path / "out" / "parts").exists()


def test_a_failure_ends_the_recipe_as_nsys_wants_it_and_leaves_nothing(tmp_path: Path, reports: Path) -> None:
    (tmp_path / "log").mkdir()  # which the stub cannot write to
    done = run(tmp_path, "2026.4", "nsys_pp_summary", "--input", str(reports), "--output", "out")[0]
    assert done.returncode == 1
    assert "ERROR: nsys-pp summary failed" in done.stdout
    assert not (tmp_path / "out").exists()
