"""Source of the page of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from msgspec import Struct

from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.frames.table import FilledTable
from nsys_pp.frames.verdict import Verdict


class ComparisonSource(Struct, frozen=True, kw_only=True):
    """Results of a comparison, as the sections of its page use them.

    Attributes:
        title: Heading of the page.
        names: Names of A and B.
        facts: Their facts.
        samples: Their samples, by name.
        verdict: The findings.
        comparability: How comparable the runs are, in a sentence.
        tables: All tables by name.
        failures: Gates that B fails, in sentences.
        gates: All gates, as texts.
        notes: Sentences on inferred, refused and doubtful results.
        made_by: Version of nsys-pp.
    """

    title: str
    names: tuple[str, str]
    facts: tuple[RunFacts, RunFacts]
    samples: tuple[Mapping[str, pl.DataFrame], Mapping[str, pl.DataFrame]]
    verdict: Verdict
    comparability: str
    tables: Mapping[str, FilledTable]
    failures: Sequence[str]
    gates: Sequence[str]
    notes: Sequence[str]
    made_by: str
