"""`nsys-pp recipe`."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.cli.calls import assert_refused, call, succeed
from tests.conftest import REPOSITORY

NAMES = ["nsys_pp_merge", "nsys_pp_pipeline", "nsys_pp_summary"]
INSIDE = Path("python", "packages", "nsys_recipe", "recipes")


@pytest.fixture
def nsys_folder(tmp_path: Path) -> Path:
    """An nsys as it is installed, with a link on PATH."""
    side = tmp_path / "nsight-systems" / "2024.6.2" / "target-linux-x64"
    (side / INSIDE / "nvtx_sum").mkdir(parents=True)
    (side / "nsys").write_text("#!/bin/sh\n")
    (side / "nsys").chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nsys").symlink_to(side / "nsys")
    return side.parent


def assert_installed(folder: Path) -> None:
    for name in NAMES:
        assert json.loads((folder / name / "metadata.json").read_text())["module_name"] == name
        assert (folder / name / f"{name}.py").is_file()
    shared = folder / "nsys_pp_recipe"
    assert json.loads((shared / "installed.json").read_text()) == {"python": sys.executable}
    source = REPOSITORY / "recipes" / "nsys_pp_recipe"
    assert {path.name for path in shared.iterdir()} - {"installed.json", "table.py"} == {
        path.name for path in source.iterdir() if path.name != "__pycache__"
    }
    assert not [*folder.glob(".*")]


@pytest.mark.parametrize("named", ["path", "variable", "program", "folder", "side"])
def test_recipes_are_copied_to_those_of_nsys(named: str, nsys_folder: Path, tmp_path: Path) -> None:
    side, folder = nsys_folder / "target-linux-x64", tmp_path / "bin"
    places = {"program": side / "nsys", "folder": nsys_folder, "side": side}
    words: list[str | Path] = ["--nsys", places[named]] if named in places else []
    variables: dict[str, str | None] = {
        "NSYS_PP_NSYS": f"{folder}/nsys" if named == "variable" else None,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}" if named == "path" else os.environ["PATH"],
    }
    done = succeed("recipe", "install", *words, env=variables)
    assert_installed(side / INSIDE)
    shown = "nsys" if named == "path" else str(side / "nsys")
    assert done.stderr.endswith(f"Run one: `{shown} recipe nsys_pp_merge --input DIR`\n")


def test_recipes_are_copied_to_a_folder_and_replaced_when_asked(tmp_path: Path) -> None:
    assert call("recipe", "path").stdout == f"{REPOSITORY / 'recipes'}\n"
    folder = tmp_path / "my own" / "recipes"
    done = succeed("recipe", "install", "--to", folder)
    assert_installed(folder)
    assert f"NSYS_RECIPE_PATH='{folder}' nsys recipe nsys_pp_merge --input DIR" in done.stderr
    (folder / "nsys_pp_merge" / "nsys_pp_merge.py").unlink()
    (folder / "mine").mkdir()
    again = call("recipe", "install", "--to", folder)
    assert_refused(again, str(folder / "nsys_pp_merge"))
    assert "--force" in again.stderr
    assert call("recipe", "install", "--to", folder, "--force").code == 0
    assert_installed(folder)
    assert (folder / "mine").is_dir()
    shutil.rmtree(folder / "nsys_pp_summary")
    (folder / "nsys_pp_summary").symlink_to(folder / "mine")
    (folder / "nsys_pp_merge" / "kept").touch()
    refused = call("recipe", "install", "--to", folder, "--force")
    assert_refused(refused, f"`{folder / 'nsys_pp_summary'}`: it exists, and `nsys-pp` did not write it")
    assert (folder / "nsys_pp_merge" / "kept").is_file()


def test_what_is_no_nsys_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NSYS_PP_NSYS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_refused(call("recipe", "install"), "`nsys` is neither")
    assert_refused(call("recipe", "install", "--nsys", tmp_path / "nope"), f"`{tmp_path}/nope` is neither")
    assert_refused(call("recipe", "install", "--nsys", tmp_path), f"`{tmp_path}` belongs to no nsys")
    assert call("recipe", "install", "--nsys", tmp_path, "--to", tmp_path / "x").code == 2
    for version in ("2023.4", "2024.6"):
        (tmp_path / f"nsight-systems-{version}" / "target-linux-x64" / INSIDE).mkdir(parents=True)
    assert_refused(call("recipe", "install", "--nsys", tmp_path), "2023.4", "2024.6")


def test_a_folder_without_rights_is_named_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)  # tests may run as root, who has all rights
    done = call("recipe", "install", "--to", tmp_path)
    assert_refused(done, f"`{tmp_path}/nsys_pp_merge`: permission denied")
    assert "NSYS_RECIPE_PATH" in done.stderr
    assert not [*tmp_path.iterdir()]


def test_a_wheel_has_the_recipes(tmp_path: Path) -> None:
    """What is installed from a wheel runs from `nsys_pp/recipes`; hatch makes the wheel as pip would."""
    build = pytest.importorskip(
        "hatchling.build", reason="no hatchling: pip builds wheels in an environment of its own"
    )
    here = Path.cwd()
    os.chdir(REPOSITORY)
    try:
        wheel = tmp_path / build.build_wheel(str(tmp_path))
    finally:
        os.chdir(here)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = REPOSITORY / "recipes"
    files = [path for path in source.rglob("*.*") if "__pycache__" not in path.parts and path.is_file()]
    assert files
    assert {f"nsys_pp/recipes/{path.relative_to(source).as_posix()}" for path in files} <= names
