"""A limit of the address space (`ulimit -v`), which libraries do not expect: they abort, or raise errors of other causes."""

from __future__ import annotations

from nsys_pp.errors import NsysPPError

_MIB = 1 << 20
_LEAST_MIB = 512  # with fewer, no command starts: polars and numpy need more to be loaded
_USUAL_MIB = 1024  # with fewer, libraries may crash
_HINT = (
    "raise it with `ulimit -v unlimited`, and limit the memory of the job by its batch system or `--memory`"
)
_WORDS = ("cannot allocate memory", "out of memory", "failed to map segment", "can't start new thread")


def check_address_space() -> None:
    """Check that the libraries can be loaded, before they are.

    Raises:
        NsysPPError: The limit is too low for them.
    """
    limit = find_limit()
    if limit is None or limit >= _USUAL_MIB * _MIB:
        return
    limited = f"the address space is limited to {limit / _MIB:,.0f} MiB (`ulimit -v`)"
    if limit < _LEAST_MIB * _MIB:
        raise NsysPPError(f"{limited}, and nsys-pp needs more than {_LEAST_MIB} MiB to start", _HINT)
    from nsys_pp.cli.log import log_note  # with modules that `--help` does not need

    log_note(
        f"{limited}: with less than {_USUAL_MIB:,} MiB, libraries may end the program without a word; {_HINT}"
    )


def find_limit() -> int | None:
    """Find the limit of the address space of this process, in bytes; None without one."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def explain_shortage(error: BaseException) -> tuple[str, str] | None:
    """Return the message and the hint of an error that a lack of memory caused; None for any other."""
    limit, cause = find_limit(), error
    while True:
        is_short = isinstance(cause, MemoryError) or (
            limit is not None and any(words in str(cause).lower() for words in _WORDS)
        )
        if is_short:
            break
        if (before := cause.__cause__ or cause.__context__) is None:
            return None
        cause = before
    if limit is None:
        return (
            "there is not enough memory",
            "raise the memory limit of the job, or process fewer reports at once",
        )
    return (
        f"there is not enough memory: the address space is limited to {limit / _MIB:,.0f} MiB (`ulimit -v`)",
        _HINT,
    )
