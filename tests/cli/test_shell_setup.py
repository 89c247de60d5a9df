"""Shell completion, in the real shells that are there, and manual pages, read by the real man."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from nsys_pp.cli import _DESCRIPTIONS, main
from nsys_pp.cli.man_pages import format_man_pages
from tests.cli.calls import assert_refused, call

PLACES = {
    "bash": "bash-completion/completions/nsys-pp",
    "zsh": "zsh/site-functions/_nsys-pp",
    "fish": "fish/vendor_completions.d/nsys-pp.fish",
}


@pytest.mark.parametrize("shell", PLACES)
def test_one_command_installs_both(shell: str, tmp_path: Path) -> None:
    done = call("shell-setup", "--shell", shell, "--prefix", tmp_path / "share")
    assert done.code == 0, done
    script = (tmp_path / "share" / PLACES[shell]).read_text()
    assert "_NSYS_PP_COMPLETE" in script
    pages = sorted(path.name for path in (tmp_path / "share" / "man" / "man1").iterdir())
    assert pages == sorted(["nsys-pp.1", *(f"nsys-pp-{name}.1" for name in _DESCRIPTIONS)])
    assert call("shell-setup", "--shell", shell, "--print").stdout.strip() == script.strip()
    again = call("shell-setup", "--shell", shell, "--prefix", tmp_path / "share")
    assert again.code == 0
    assert not list(tmp_path.rglob(".*"))


def test_the_shell_and_the_folder_are_those_of_the_user(tmp_path: Path) -> None:
    environment = {"SHELL": "/usr/bin/fish", "XDG_DATA_HOME": str(tmp_path)}
    assert call("shell-setup", env=environment).code == 0
    assert (tmp_path / PLACES["fish"]).is_file()
    refused = call("shell-setup", env={"SHELL": "/bin/tcsh"})
    assert refused.code == 2
    assert "unknown shell 'tcsh'" in refused.stderr


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(
        call("shell-setup", "--shell", "bash", "--prefix", tmp_path / "file" / "x"), "cannot write"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nsys-pp mer", ["merge"]),
        ("nsys-pp merge --deta", ["--detail"]),
        ("nsys-pp merge --detail k", ["kernels"]),
        ("nsys-pp sql --exp", ["--explain"]),
    ],
)
def test_bash_completes_commands_options_and_values(line: str, expected: list[str], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    program = tmp_path / "nsys-pp"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from nsys_pp.cli import main; main(prog_name=\'nsys-pp\')" "$@"\n'
    )
    program.chmod(0o755)
    script = tmp_path / "completion"
    script.write_text(call("shell-setup", "--shell", "bash", "--print").stdout)
    words = line.split(" ")
    asked = (
        f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1};"
        ' _nsys_pp_completion nsys-pp; echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", asked], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == expected


def test_man_shows_every_page_without_warnings(tmp_path: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("no groff here")
    assert isinstance(main, click.Group)
    for name, text in format_man_pages(main, version="1.2.3").items():
        page = tmp_path / name
        page.write_text(text)
        done = subprocess.run([groff, "-man", "-Tutf8", "-ww", page], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), name
        shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
        for heading in ("NAME", "SYNOPSIS", "LOGGING AND HELP", "SEE ALSO"):
            assert f"\n{heading}" in shown, name
    assert "nsys-pp merge node*/report*.sqlite -o run.pftrace" in _show(groff, tmp_path / "nsys-pp-merge.1")


def _show(groff: str, page: Path) -> str:
    done = subprocess.run([groff, "-man", "-Tascii", page], capture_output=True, text=True, check=True)
    return re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
