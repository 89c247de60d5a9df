"""`nsys-pp baseline`: what is kept, listed and removed, and `compare` with it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.cli.calls import Result, assert_refused, call

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"

pytestmark = pytest.mark.usefixtures("reports_read_once")


@pytest.fixture(params=["folder", "file.sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def tag(store: Path, *options: str, name: str = "main") -> Result:
    return call("baseline", "tag", name, PIPELINE, "--baselines", store, *options)


def test_the_way_of_ci(store: Path) -> None:
    done = tag(store)
    assert done.code == 0, done
    assert f"Tagged main@1 in {store} (" in done.stderr
    assert done.stderr.rstrip().endswith("3 steps of 4 ranks.")
    assert tag(store, "--steps", "10:12").code == 0
    assert tag(store, name="v2.1+x").code == 0
    compared = call(
        "compare", "baseline:main", PIPELINE, "--baselines", store, "--fail-on", "step>3%", "--json"
    )
    assert compared.code == 0, compared
    found = json.loads(compared.stdout)
    assert found["runs"]["a"].startswith("baseline:main@2, tagged 2")
    assert found["notes"][0] == f"A is {found['runs']['a']}"
    assert found["tables"]["steps"][0]["a_step_count"] == 2
    first = call("compare", "baseline:main@1:10:12", "baseline:main@1", "--baselines", store, "--json")
    assert [json.loads(first.stdout)["tables"]["steps"][0][f"{run}_step_count"] for run in "ab"] == [2, 3]

    listed = call("baseline", "list", "--baselines", store)
    assert [line.split()[0] for line in listed.stdout.splitlines()[2:5]] == ["1", "2", "1"]
    rows = json.loads(call("baseline", "list", "main", "--baselines", store, "--json").stdout)["baselines"]
    assert [(row["name"], row["number"], row["step_count"]) for row in rows] == [
        ("main", 1, 3),
        ("main", 2, 2),
    ]
    assert rows[0]["step_ns"] == pytest.approx(151.4e6, rel=0.01)
    assert 0 < rows[0]["bubble_fraction"] < 1
    assert 0 < rows[0]["compute_fraction"] < 1
    assert rows[0]["mfu_fraction"] is None

    assert call("baseline", "remove", "main", "--baselines", store).code == 2, "there are two"
    assert "Removed main@1." in call("baseline", "remove", "main@1", "--baselines", store).stderr
    assert_refused(
        call("compare", "baseline:main@1", PIPELINE, "--baselines", store), "has no baseline `main@1`"
    )
    assert call("baseline", "remove", "main", "--baselines", store).code == 0
    assert_refused(call("baseline", "remove", "main", "--baselines", store), "has no baseline `main`")


def test_only_the_newest_are_kept(store: Path) -> None:
    for _ in range(3):
        assert tag(store, "--keep-last", "2").code == 0
    rows = json.loads(call("baseline", "list", "--baselines", store, "--json").stdout)["baselines"]
    assert [row["number"] for row in rows] == [2, 3]


def test_what_is_kept_is_small_private_and_has_no_paths(store: Path) -> None:
    tag(store, "--model", "layers=8,hidden=1024,sequence=1024,batch=8")
    files = [store] if store.suffix else [*store.iterdir()]
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_size < 60_000
        assert b"fixtures" not in path.read_bytes()
    if not store.suffix:
        assert stat.S_IMODE(store.stat().st_mode) == 0o700
    row = json.loads(call("baseline", "list", "--baselines", store, "--json").stdout)["baselines"][0]
    assert row["mfu_fraction"] > 0


def test_the_place_comes_from_the_environment(tmp_path: Path) -> None:
    env = {"NSYS_PP_BASELINES": str(tmp_path / "there")}
    assert call("baseline", "tag", "main", PIPELINE, env=env).code == 0
    assert "main" in call("baseline", "list", env=env).stdout


def test_refusals(tmp_path: Path) -> None:
    store = tmp_path / "none"
    assert_refused(call("baseline", "list", "--baselines", store), "does not exist")
    assert_refused(call("compare", "baseline:main", PIPELINE, "--baselines", store), "does not exist")
    assert_refused(tag(store, name="../x"), "invalid name of a baseline `../x`")
    assert_refused(tag(store, name="x@2"), "its number is added by itself")
    assert_refused(tag(store, "--steps", "90:91"), "no step is in")
    assert not store.exists()
    file = tmp_path / "file"
    file.write_text("")
    assert_refused(tag(file), "cannot write")
    assert_refused(call("baseline", "list", "--baselines", file), "is no folder")
