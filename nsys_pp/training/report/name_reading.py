"""Reading of all names of a report: the rule that reads each range, or none."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.training.report.presets import EMITTED_SUFFIX, Rule
from nsys_pp.training.report.vocabulary import Rules, match_rules

_FOLDED = r"[0-9]+"
NAME_READINGS = build_schema(
    {  # one row per range, by range_id
        "range_id": pl.Int64,
        "name": pl.String,  # with `#` for numbers
        "kind": pl.String,  # of the job; "step"; null: no rule reads it
        "preset": pl.String,  # of the rule; "" for patterns of the user
        "pattern": pl.String,  # of the rule
    },
    name="NAME_READINGS",
)


def read_names(ranges: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Find the rule that reads each range.

    Args:
        ranges: `RANGES`, any order.
        rules: From `choose_rules`.

    Returns:
        `NAME_READINGS`; a range that rules of jobs and of steps read is a step. Empty in, empty out.
    """
    jobs, steps = (_find_readings(ranges, table) for table in (rules.jobs, rules.steps))
    readings = pl.concat([steps, jobs.join(steps, on="range_id", how="anti")])
    name = (
        pl.col("name")
        .cast(pl.String)
        .fill_null("")
        .str.replace(EMITTED_SUFFIX, "")
        .str.replace_all(_FOLDED, "#")
    )
    return (
        ranges.sort("range_id")
        .select("range_id", name=name)
        .join(readings, on="range_id", how="left", maintain_order="left")
        .pipe(conform, NAME_READINGS)
    )


def _find_readings(ranges: pl.DataFrame, rules: tuple[Rule, ...]) -> pl.DataFrame:
    facts = pl.DataFrame(
        [(at, rule.kind or "step", rule.source, rule.pattern) for at, rule in enumerate(rules)],
        schema={"rule": pl.UInt32, "kind": pl.String, "preset": pl.String, "pattern": pl.String},
        orient="row",
    )
    matched = match_rules(ranges, rules)
    return matched.join(facts, on="rule", how="left").drop("rule")
