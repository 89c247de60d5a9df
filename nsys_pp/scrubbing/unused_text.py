"""Removal of the texts of a report that no analysis shows: the copy keeps the rows, with null in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl
from msgspec.structs import replace

from nsys_pp.frames.ids import process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.model import build_report
from nsys_pp.model.contents import list_losses
from nsys_pp.model.identity import RANK_THREAD
from nsys_pp.scrubbing.pseudonyms import REMOVED, Pseudonyms

# columns that refer to strings, by frame
_REFERENCES = {
    "nvtx": ("text_id",),
    "payloads": ("json_id",),
    "calls": ("name_id",),
    "kernels": ("name_id", "full_name_id"),
    "thread_names": ("name_id",),
    "mpi_messages": ("name_id",),
    "mpi_collectives": ("name_id",),
    "os_calls": ("name_id",),
    "overheads": ("name_id",),
    "cuda_overheads": ("name_id",),
}


def remove_unused(raw: RawReport) -> RawReport:
    """Remove the texts that no analysis shows: of strings, processes, threads, domains, categories and diagnostics.

    Args:
        raw: All groups of a report.

    Returns:
        The same rows of all frames except "strings"; equal results of all analyses.
    """
    report = build_report(raw)
    frames = dict(raw.frames)
    threads, processes = report.threads["thread_key"].implode(), report.processes["process_key"].implode()
    frames["processes"] = _clear(
        raw["processes"], "name", unless=pl.col("process").is_in(processes).fill_null(value=False)
    )
    names_rank = pl.col("name_id").is_in(_list_rank_names(raw["strings"]).implode())
    is_shown = pl.col("thread").is_in(threads) | names_rank
    frames["thread_names"] = _clear(raw["thread_names"], "name_id", unless=is_shown.fill_null(value=False))
    frames["nvtx"], frames["payloads"] = _remove_from_ranges(raw)
    frames["os_calls"] = _clear(raw["os_calls"], "name_id", unless=pl.col("is_call").fill_null(value=False))
    losses = list_losses(report.diagnostics)
    text = pl.col("text").str.replace_all(r"\s+", " ").str.strip_chars()
    kept = pl.when(text.is_in(losses)).then("text").when(pl.col("text").is_not_null()).then(pl.lit(REMOVED))
    frames["diagnostics"] = raw["diagnostics"].with_columns(kept.alias("text"))
    used = _list_references(frames)
    frames["strings"] = raw["strings"].filter(pl.col("id").is_in(used.implode()).fill_null(value=False))
    return replace(raw, frames=frames)


def replace_texts(raw: RawReport, pseudonyms: Pseudonyms) -> RawReport:
    """Replace names in all texts."""
    if pseudonyms.is_idle:
        return raw
    frames = {
        name: frame.with_columns(
            [
                replace_column(frame[column], pseudonyms)
                for column, dtype in frame.schema.items()
                if dtype == pl.String and (name, column) not in {("facts", "name"), ("launcher", "name")}
            ]
        )
        for name, frame in raw.frames.items()
    }
    return replace(raw, frames=frames)


def replace_column(texts: pl.Series, pseudonyms: Pseudonyms) -> pl.Series:
    """Replace names in a column; each distinct text once."""
    before = texts.drop_nulls().unique(maintain_order=True).to_list()
    changed = {text: new for text in before if (new := pseudonyms.replace(text)) != text}
    return texts.replace(changed) if changed else texts


def _remove_from_ranges(raw: RawReport) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Keep the texts of ranges and marks, and of the domains and categories that these have."""
    nvtx = raw["nvtx"].with_columns(
        process_key=process_key(pl.col("thread")), domain_key=pl.col("domain").fill_null(0)
    )
    is_naming = pl.col("kind").is_in(["domain", "category"])
    is_whole = pl.col("start").is_not_null() & pl.col("thread").is_not_null()
    events = nvtx.filter(is_whole & ~is_naming)
    shown = [
        nvtx.filter(pl.col("kind") == kind)
        .join(events.select(keys).unique(), on=keys, how="semi", nulls_equal=False)
        .select("row")
        for kind, keys in (
            ("domain", ["process_key", "domain_key"]),
            ("category", ["process_key", "domain_key", "category"]),
        )
    ]
    rows = pl.concat([events.select("row"), *shown])["row"].implode()
    unless = pl.col("row").is_in(rows).fill_null(value=False)
    cleared = _clear(_clear(raw["nvtx"], "text", unless=unless), "text_id", unless=unless)
    event_rows = events["row"].implode()
    payloads = raw["payloads"]
    for column in ("json", "json_id", "binary"):
        payloads = _clear(payloads, column, unless=pl.col("row").is_in(event_rows).fill_null(value=False))
    return cleared, payloads


def _list_rank_names(strings: pl.DataFrame) -> pl.Series:
    """List the ids of thread names that ranks are read from."""
    return strings.filter(pl.col("text").str.contains(RANK_THREAD))["id"].drop_nulls()


def _list_references(frames: Mapping[str, pl.DataFrame]) -> pl.Series:
    """List the ids of strings that rows refer to."""
    columns: Iterable[pl.Series] = (
        frames[name][column].drop_nulls().unique()
        for name, columns in _REFERENCES.items()
        for column in columns
    )
    return pl.concat([column.alias("id") for column in columns]).unique()


def _clear(frame: pl.DataFrame, column: str, *, unless: pl.Expr) -> pl.DataFrame:
    return frame.with_columns(pl.when(unless).then(column).alias(column))
