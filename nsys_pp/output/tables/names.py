"""Names of functions and other texts of reports, cleaned and shortened for a terminal."""

from __future__ import annotations

_LEAST_ARGUMENTS = 8  # cells that shortened template arguments keep


def clean(text: str) -> str:
    """Replace unprintable characters by blanks: a report's text could otherwise move the cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def shorten_symbol(name: str, cells: int) -> str:
    """Shorten the name of a function to a number of cells if possible: parameters first, then template arguments.

    Template arguments are cut at the end, the longest ones first, as kernels differ least there. A name that remains
    too long is not cut further, as the distinguishing part may be anywhere: the caller has to fold it.

    >>> shorten_symbol("void at::fill<(int)4, at::FillFunctor<float>>(int, char (*)[4])", 44)
    'at::fill<(int)4, at::FillFunctor<float>>(…)'
    >>> shorten_symbol("void at::fill<(int)4, at::FillFunctor<float>>(int, char (*)[4])", 32)
    'at::fill<(int)4, at::FillFu…>(…)'
    """
    from rich.cells import cell_len, set_cell_size  # a table in a file needs no rich

    if cell_len(name) <= cells:
        return name
    start = _find_parameters(name)
    if start > 0:
        name = f"{name[:start].removeprefix('void ')}(…)"
    for first, end in sorted(_find_arguments(name), key=lambda part: part[0] - part[1]):
        excess = cell_len(name) - cells
        arguments = name[first:end]
        kept = max(cell_len(arguments) - excess - 1, _LEAST_ARGUMENTS)
        if excess > 0 and kept + 1 < cell_len(arguments):
            # Shortening the longest part moves the parts after it, so they are searched again.
            name = f"{name[:first]}{set_cell_size(arguments, kept).rstrip()}…{name[end:]}"
            return shorten_symbol(name, cells) if cell_len(name) > cells else name
    return name


def _find_parameters(name: str) -> int:
    """Find the start of the parameters at the end of a name; -1 without parameters.

    >>> _find_parameters("void f<(int)2>(char (*)[4], int)"), _find_parameters("Memcpy HtoD")
    (14, -1)
    """
    if not name.endswith(")"):
        return -1
    depth = 0
    for position in range(len(name) - 1, -1, -1):
        depth += (name[position] == ")") - (name[position] == "(")
        if depth == 0:
            return position
    return -1


def _find_arguments(name: str) -> list[tuple[int, int]]:
    """Find the outermost template arguments of a name, as [start, end) of each list between `<` and `>`.

    >>> _find_arguments("a<b<c>, d>::e<f>(…)"), _find_arguments("a -> b")
    ([(2, 9), (14, 15)], [])
    """
    parts, depth, start = [], 0, 0
    for position, character in enumerate(name):
        if character == "<":
            start = position + 1 if depth == 0 else start
            depth += 1
        elif character == ">" and depth:
            depth -= 1
            if depth == 0:
                parts.append((start, position))
    return parts
