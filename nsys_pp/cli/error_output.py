"""Errors on stderr: a sentence, and a hint."""

from __future__ import annotations

import click

from nsys_pp.cli.escapes import escape_line, escape_text


def print_error(message: str, hint: str | None) -> None:
    """Print an error and its hint, without the control characters of names."""
    click.echo(f"Error: {escape_line(message)}", err=True)
    if hint:
        click.echo(f"\nhint: {escape_text(hint)}", err=True)
