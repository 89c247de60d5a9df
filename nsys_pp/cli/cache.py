"""`nsys-pp cache`: the cache of exported reports."""

from __future__ import annotations

import click

from nsys_pp.cli.sections import OrderedGroup


@click.group(cls=OrderedGroup)
def cache() -> None:
    """Show or clear the cache of exported reports.

    A .nsys-rep is exported once, into $NSYS_PP_CACHE (default: ~/.cache/nsys-pp). An export has all that the report has,
    also the environment of the profiled program. It is removed when the report has changed, or after
    $NSYS_PP_CACHE_DAYS (default: 30).
    """


@cache.command()
def path() -> None:
    """Print the folder of the cache."""
    from nsys_pp.commands.cache import find_cache

    click.echo(find_cache())


@cache.command()
def clear() -> None:
    """Remove all exports from the cache."""
    from nsys_pp.commands.cache import clear_cache
    from nsys_pp.units import format_bytes, format_count

    folder, count, size = clear_cache()
    click.echo(f"Removed {format_count(count, 'export')} ({format_bytes(size)}) from {folder}", err=True)
