"""Source of a report page: the results of an analysis, and the links into a trace."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import polars as pl
from msgspec import Struct

from nsys_pp.frames.table import FilledTable, ShownStep
from nsys_pp.frames.training import Training
from nsys_pp.frames.verdict import Verdict

_SPECIAL = re.compile(r"([\\.^$*+?()\[\]{}|])")


class TraceLinks(Struct, frozen=True, kw_only=True):
    """Texts that open a trace at a time: the text is head, start, middle, end, tail, with times in ns since the start of the run.

    Attributes:
        is_link: The text is the address of a link; otherwise it is a command.
        head: Text before the start.
        middle: Text between the times.
        tail: Text after the end.
    """

    is_link: bool
    head: str
    middle: str
    tail: str

    def format(self, start_ns: int, end_ns: int, row: str | None = None) -> str:
        """Format the text that opens the trace.

        Args:
            start_ns: Start of the time to show.
            end_ns: Its end.
            row: Argument of the command that expands rows (`name_rows`); links expand none.
        """
        text = f"{self.head}{max(start_ns, 0)}{self.middle}{max(end_ns, 1)}{self.tail}"
        return text if self.is_link or row is None else f"{text} --expand {row}"


class LackingData(Struct, frozen=True, kw_only=True):
    """Kinds of data that reports lack.

    Attributes:
        titles: Names of the kinds, for people.
        option: Option of `nsys profile` that records them.
        report_count: Reports that lack any of them.
    """

    titles: tuple[str, ...]
    option: str
    report_count: int


class PageSource(Struct, frozen=True, kw_only=True):
    """Results of an analysis, as the sections of a page use them.

    Attributes:
        title: Heading of the page.
        facts: Short phrases about the run.
        training: The training.
        verdict: Its findings.
        tables: Tables of the training by name (`nsys-pp pipeline`), and "clocks" (`nsys-pp align`).
        sums: Tables of the summary by name (`nsys-pp summary`).
        rank_steps: `RANK_STEPS`.
        step_lengths: `STEP_LENGTHS`.
        steps: Steps whose charts are shown.
        lacking: Data that reports lack.
        report_count: Number of reports.
        notes: Sentences on inferred, refused and doubtful results.
        trace_links: Texts that open the trace of the run; None: no trace was named.
        made_by: Version of nsys-pp.
    """

    title: str
    facts: Sequence[str]
    training: Training
    verdict: Verdict
    tables: Mapping[str, FilledTable]
    sums: Mapping[str, FilledTable]
    rank_steps: pl.DataFrame
    step_lengths: pl.DataFrame
    steps: Sequence[ShownStep]
    lacking: Sequence[LackingData]
    report_count: int
    notes: Sequence[str]
    trace_links: TraceLinks | None
    made_by: str


def name_rows(lanes: pl.DataFrame) -> list[str]:
    r"""Return the argument of `nsys-pp open --expand` that expands the rows of each lane, quoted for a shell.

    >>> name_rows(pl.DataFrame({"rank": [3, None], "gpu": ["GPU 0", "GPU 1"]}))
    ["'rank 3\\b'", "'GPU 1'"]
    """
    patterns = [
        _SPECIAL.sub(r"\\\1", gpu or "") if rank is None else rf"rank {rank}\b"
        for rank, gpu in lanes.select("rank", "gpu").iter_rows()
    ]
    return [shlex.quote(pattern) for pattern in patterns]
