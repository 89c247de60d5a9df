"""The compiled functions of points near others, votes and lines (`core.c`)."""

from __future__ import annotations

import ctypes

from nsys_pp.arrays.core_arguments import declare


class LineFunctions:
    """Functions of arrays that `near_finder.py`, `near_lines.py`, `votes.py` and `line_finder.py` check and hold."""

    def __init__(self, library: ctypes.CDLL) -> None:
        count, pointer, number = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
        two, three, four, six = ([pointer] * length for length in (2, 3, 4, 6))
        self.prepare_points = declare(library.core_prepare_points, pointer)
        self.search_points = declare(library.core_search_points, *two)
        self.weigh = declare(library.core_weigh, *three)
        self.weigh_lines = declare(library.core_weigh_lines, *four)
        self.fit_starts = declare(library.core_fit_starts, *four)
        self.vote = declare(library.core_vote, pointer)
        self.fit_line = declare(library.core_fit_line, count, *three, number, number, count, *two)
        self.find_line = declare(library.core_find_line, count, *two, count, pointer, number, *six)
        self.find_lines = declare(library.core_find_lines, count, *four, number, number, count, pointer)
        self.sum_sections = declare(library.core_sum_sections, count, *three)
        # of arrays that `insertion.py` checks
        self.insert_rows = declare(library.core_insert_rows, count, pointer, count, *three)
