"""`nsys-pp shell-setup`: completion of commands and options in the shell, and manual pages."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from nsys_pp.cli.log import log_output
from nsys_pp.cli.man_pages import format_man_pages
from nsys_pp.cli.sections import OUTPUT, SectionCommand, option
from nsys_pp.errors import OutputError

SHELLS = ("bash", "zsh", "fish")
_PROGRAM, _VARIABLE = "nsys-pp", "_NSYS_PP_COMPLETE"
_SCRIPTS = {  # below the folder for data, as the shells look for them (fish: also in XDG_DATA_HOME)
    "bash": Path("bash-completion/completions/nsys-pp"),
    "zsh": Path("zsh/site-functions/_nsys-pp"),
    "fish": Path("fish/vendor_completions.d/nsys-pp.fish"),
}


@click.command(cls=SectionCommand)
@option(
    "--shell",
    section=OUTPUT,
    type=click.Choice(SHELLS),
    help="Shell to complete in.",
    default_text="the one in $SHELL",
)
@option(
    "--prefix",
    section=OUTPUT,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder for data, with `man` and the shells' folders below it.",
    default_text="$XDG_DATA_HOME, else ~/.local/share",
)
@option("--print", "is_printed", section=OUTPUT, is_flag=True, help="Print the completion script instead.")
@click.pass_context
def shell_setup(ctx: click.Context, /, shell: str | None, prefix: Path | None, is_printed: bool) -> None:
    """Install shell completion and manual pages.

    They are written below your own folder for data, where bash, fish and man look for them; existing ones
    are replaced. Nothing else is changed.

    \b
    Example:
      nsys-pp shell-setup --shell zsh
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise click.UsageError(
            f"unknown shell {shell!r} in $SHELL; choose one with `--shell` ({', '.join(SHELLS)})"
        )
    root = ctx.find_root()
    script = _build_script(root.command, shell)
    if is_printed:
        click.echo(script)
        return
    data = os.environ.get("XDG_DATA_HOME")
    prefix = prefix or (Path(data) if data else Path.home() / ".local" / "share")
    assert isinstance(root.command, click.Group)
    pages = format_man_pages(root.command, version=version("nsys-pp"))
    target = prefix / _SCRIPTS[shell]
    files = {target: script, **{prefix / "man" / "man1" / name: text for name, text in pages.items()}}
    for path, text in files.items():
        _write(path, text)
    log_output(f"Wrote {target}: start a new {shell} to use it", target)
    log_output(f"Wrote {len(pages)} manual pages to {prefix / 'man'}: `man nsys-pp`", *list(files)[1:])
    if shell == "zsh":
        click.echo(
            f"Add to ~/.zshrc, before compinit:\n  fpath+=({target.parent})\n  autoload -Uz compinit && compinit",
            err=True,
        )


def _build_script(command: click.Command, shell: str) -> str:
    found = get_completion_class(shell)
    assert found is not None
    script = found(command, {}, _PROGRAM, _VARIABLE).source()
    # click's condition holds at the first call of a session only, so the second would complete nothing
    return script.replace("$zsh_eval_context[-1] == loadautofunc", f"$funcstack[1] == _{_PROGRAM}")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise OutputError(
            f"cannot write `{path}`: {error.strerror}", "choose another folder with `--prefix`"
        ) from None
