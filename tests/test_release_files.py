"""Files of a release: metadata, citation, issue templates, container file."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

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
