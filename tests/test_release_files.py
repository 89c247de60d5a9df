"""Files of a release: metadata, citation, issue templates, container file."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def hatch_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hatch_build"] = module
    spec.loader.exec_module(module)
    return module


def build_metadata(hatch_build: ModuleType) -> dict[str, object]:
    metadata: dict[str, object] = {"version": "1.2"}
    hatch_build.ReadmeMetadataHook(str(ROOT), {}).update(metadata)
    return metadata


def test_links_of_the_readme_are_absolute_where_an_address_is_set(
    hatch_build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYS_PP_ADDRESS", "https://forge.example.org/o/p/")
    metadata = build_metadata(hatch_build)
    text = metadata["readme"]["text"]  # type: ignore[index]
    assert "(https://forge.example.org/o/p/raw/v1.2/docs/merged.png)" in text
    assert "(https://forge.example.org/o/p/blob/v1.2/docs/index.md)" in text
    assert re.findall(r"\]\((?!https:)[^)]*\)", text) == []
    assert metadata["urls"]["Source"] == "https://forge.example.org/o/p"  # type: ignore[index]


def test_without_an_address_there_are_no_urls(
    hatch_build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NSYS_PP_ADDRESS", raising=False)
    metadata = build_metadata(hatch_build)
    assert metadata["urls"] == {}
    assert metadata["readme"]["text"] == (ROOT / "README.md").read_text()  # type: ignore[index]


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


def test_the_citation_has_the_required_fields() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["license"] == "Apache-2.0"


def test_issue_templates_ask_for_the_contents_of_the_report() -> None:
    forms = [
        path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"
    ]
    for path in forms:
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= set(form)
        asked = {item["id"]: item for item in form["body"] if item["type"] != "markdown"}
        assert "nsys-pp info REPORT --format json" in asked["info"]["attributes"]["label"]
        assert asked["info"]["validations"]["required"]
    assert len(forms) == 2


def test_the_container_file_has_known_instructions() -> None:
    lines = re.sub(r"\\\n", " ", (ROOT / "Containerfile").read_text()).splitlines()
    words = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert set(words) <= {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"}
    assert words[0] == "FROM"
    assert words.count("ENTRYPOINT") == 1
