"""Counts of rows, for `--explain-rows`, `--result` and `info`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nsys_pp.cli.log import log

if TYPE_CHECKING:
    import polars as pl


def list_rows(row_counts: pl.DataFrame) -> list[dict[str, Any]]:
    """List the rows of each table of each report as plain types; the keys are stable.

    Args:
        row_counts: `RUN_ROW_COUNTS`.

    Returns:
        For each report its path and tables: stage, our name, name in the report, rows read, used, and left out by
        reason. `read = used + left out` holds for each.
    """
    reports: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for stage, table, source, reason, count, report in row_counts.rows():
        tables = reports.setdefault(report, {})
        empty = {"stage": stage, "table": table, "source": source, "read": 0, "used": 0, "left_out": {}}
        entry = tables.setdefault((stage, table), empty)
        entry["read"] += count
        if reason is None:
            entry["used"] += count
        else:
            entry["left_out"][reason] = count
    return [{"report": report, "tables": [*tables.values()]} for report, tables in reports.items()]


def log_rows(row_counts: pl.DataFrame) -> None:
    """Log the rows of each table of each report, one line each."""
    for report in list_rows(row_counts):
        path = report["report"]
        for entry in report["tables"]:
            log(f"{path}: {describe_table(entry)}", event="rows", facts={"report": path, **entry})


def describe_table(entry: dict[str, Any]) -> str:
    """Format the rows of one table of `list_rows`.

    >>> rows = {"stage": "report", "table": "nvtx", "source": None, "read": 1166, "used": 1100}
    >>> describe_table({**rows, "left_out": {"without a start": 66}})
    'nvtx: 1,166 rows read, 1,100 used; left out: 66 without a start'
    """
    name = entry["source"] or entry["table"]
    left_out = [f"{count:,} {reason}" for reason, count in entry["left_out"].items()]
    if entry["stage"] == "file":
        return (
            f"{name}: {entry['read']:,} rows by their numbers, {entry['used']:,} there; {', '.join(left_out)}"
        )
    if entry["stage"] == "projection":
        verb = {"ranges": "projected", "gpu_ops": "with their launch"}.get(name, "used")
        text = f"{name.replace('_', ' ')}: {entry['read']:,}, of these {entry['used']:,} {verb}"
    else:
        text = f"{name}: {entry['read']:,} rows read, {entry['used']:,} used"
    return f"{text}; left out: {', '.join(left_out)}" if left_out else text


def describe_unprojected(row_counts: pl.DataFrame) -> str:
    """Format the number of ranges without a projection in all reports, by reason; "" if there are none.

    Args:
        row_counts: `RUN_ROW_COUNTS`.
    """
    ranges = row_counts.filter(stage="projection", table="ranges")
    reasons = ranges.drop_nulls("reason").group_by("reason", maintain_order=True).agg(count="row_count")
    left_out = [f"{sum(counts):,} {reason}" for reason, counts in reasons.rows()]
    return f"Of {ranges['row_count'].sum():,} ranges, {' and '.join(left_out)}" if left_out else ""
