"""Files of a release: metadata, citation, issue templates, container file."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parent.parent


HATCH_BUILD = runpy.run_path(str(ROOT / "hatch_build.py"))


def build_metadata() -> dict[str, object]:
    metadata: dict[str, object] = {"version": "1.2"}
    HATCH_BUILD["ReadmeMetadataHook"](str(ROOT), {}).update(metadata)
    return metadata


def test_links_of_the_readme_are_absolute_where_an_address_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS_PP_ADDRESS", "https://forge.example.org/o/p/")
    metadata = build_metadata()
    text = metadata["readme"]["text"]  # type: ignore[index]
    assert "(https://forge.example.org/o/p/raw/v1.2/docs/merged.png)" in text
    assert "(https://forge.example.org/o/p/blob/v1.2/docs/index.md)" in text
    assert re.findall(r"\]\((?!https:)[^)]*\)", text) == []
    assert metadata["urls"]["Source"] == "https://forge.example.org/o/p"  # type: ignore[index]


def test_without_an_address_there_are_no_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NSYS_PP_ADDRESS", raising=False)
    metadata = build_metadata()
    assert metadata["urls"] == {}
    assert metadata["readme"]["text"] == (ROOT / "README.md").read_text()  # type: ignore[index]


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS = {path.stem: yaml.safe_load(path.read_text())["jobs"] for path in WORKFLOWS}


def test_workflows_name_what_exists() -> None:
    for jobs in JOBS.values():
        assert {job["needs"] for job in jobs.values() if "needs" in job} <= {*jobs}
    steps = [step for jobs in JOBS.values() for job in jobs.values() for step in job["steps"]]
    actions = [step["uses"] for step in steps if "uses" in step]
    assert [name for name in actions if not re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", name)] == []
    runs = "\n".join(step["run"] for step in steps if "run" in step)
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert {".ci/run", "fixtures/pipeline"} == {*re.findall(r"(?:\.ci|fixtures)/\w+", runs)}
    assert re.findall(r"(?:manylinux|macosx)\w+", runs) == [*HATCH_BUILD["TARGETS"]]


def test_ci_has_the_pythons_of_the_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [word.split(" :: ")[-1] for word in project["classifiers"] if ":: Python :: 3." in word]
    assert JOBS["ci"]["run"]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"
    assert JOBS["release"]["try"]["strategy"]["matrix"]["python"] == [named[0], named[-1]]
    publish = JOBS["release"]["publish"]
    assert (publish["environment"], publish["permissions"]) == ("pypi", {"id-token": "write"})


def test_the_version_is_in_one_place() -> None:
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    texts = [
        *(ROOT / "nsys_pp").rglob("*.py"),
        ROOT / "CITATION.cff",
        ROOT / "Containerfile",
        ROOT / "README.md",
    ]
    assert [path for path in texts if f'"{version}"' in path.read_text()] == []
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
