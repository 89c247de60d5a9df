"""Shell completion, in the real shells that are there, and manual pages, read by the real man."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from nsys_pp.cli import _DESCRIPTIONS, main
from nsys_pp.cli.man_pages import format_man_pages
from tests.cli.calls import assert_refused, call
from tests.patience import PATIENCE_S

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
    inner = [
        f"nsys-pp-{name}-{last}.1"
        for name in _DESCRIPTIONS
        for group in [main.commands[name]]
        if isinstance(group, click.Group)
        for last in group.commands
    ]
    assert "nsys-pp-baseline-tag.1" in inner
    assert pages == sorted(["nsys-pp.1", *(f"nsys-pp-{name}.1" for name in _DESCRIPTIONS), *inner])
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


LINES = [
    ("nsys-pp mer", "merge"),
    ("nsys-pp merge --deta", "--detail"),
    ("nsys-pp merge --detail k", "kernels"),
    ("nsys-pp sql --explain-", "--explain-rows"),
    ("nsys-pp baseline t", "tag"),
]


def _install(shell: str, folder: Path) -> tuple[str, dict[str, str]]:
    """Install completion below a folder as a user does; return the real shell, and an environment with the program in PATH."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    (folder / "bin").mkdir()
    program = folder / "bin" / "nsys-pp"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from nsys_pp.cli import main; main(prog_name=\'nsys-pp\')" "$@"\n'
    )
    program.chmod(0o755)
    assert call("shell-setup", "--shell", shell, "--prefix", folder / "share").code == 0
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(folder / "share"),
        "XDG_CONFIG_HOME": str(folder),
        "HOME": str(folder),
        "TERM": "vt100",
    }
    return found, environment


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_bash_completes_commands_options_and_values(line: str, expected: str, tmp_path: Path) -> None:
    bash, environment = _install("bash", tmp_path)
    words = line.split(" ")
    asked = (
        f"source {tmp_path / 'share' / PLACES['bash']}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1};"
        ' _nsys_pp_completion nsys-pp; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "-c", asked], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == [expected]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_fish_completes_commands_options_and_values(line: str, expected: str, tmp_path: Path) -> None:
    fish, environment = _install("fish", tmp_path)
    done = subprocess.run(
        [fish, "-c", f"complete -C '{line}'"], capture_output=True, text=True, env=environment, check=True
    )
    assert [shown.split("\t")[0] for shown in done.stdout.splitlines()] == [expected]


def test_zsh_completes_commands_options_and_values(tmp_path: Path) -> None:
    """By what the command prints, and keys pressed at a prompt."""
    zsh, environment = _install("zsh", tmp_path)
    printed = call("shell-setup", "--shell", "zsh", "--prefix", tmp_path / "share").stderr
    advised = [line for line in printed.splitlines() if line.startswith("  ")]
    assert advised, printed
    advised = [line.replace("&& compinit", "&& compinit -u") for line in advised]  # root owns other folders
    (tmp_path / ".zshrc").write_text("PS1='ready> '\n" + "\n".join(advised) + "\n")
    environment["ZDOTDIR"] = str(tmp_path)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(zsh, [zsh, "-i"], environment)
    try:
        _read_until(terminal, "ready> ")
        for line, expected in LINES:
            os.write(terminal, f"{line}\t".encode())
            _read_until(terminal, f"{line.rsplit(' ', 1)[0]} {expected} ")
            os.write(terminal, b"\x15")  # Ctrl-U: an empty line
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _read_until(terminal: int, expected: str) -> None:
    """Read what a shell shows until a text has appeared."""
    shown, give_up = "", time.monotonic() + PATIENCE_S
    while expected not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|[\x00\x08\r]", "", shown):
        assert time.monotonic() < give_up, shown
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 65_536).decode(errors="replace")


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
