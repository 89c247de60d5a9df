"""The page of two runs: what changed, how comparable they are, and the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import polars as pl
from msgspec import Struct

from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.frames.table import FilledTable
from nsys_pp.frames.training import BUBBLE_CAUSES
from nsys_pp.frames.verdict import Verdict
from nsys_pp.output.pages.page import (
    LEAST_SCALE,
    MANY,
    Bar,
    Drawn,
    Piece,
    Section,
    build_step_bar,
    draw_bars,
    draw_rows,
    fold_rows,
    format_change,
    format_finding,
    format_grid,
    format_notes,
    format_share,
    format_text,
    name_part,
    name_row,
    write_page,
)
from nsys_pp.units import format_duration

_HEIGHT, _MARGIN = 150, 26
_MOST_POINTS = 2_000
# Colors of verdicts beyond noise; others are muted, or have the color of compute where noise is unknown.
_COLORS = {"slower": "bubble", "new": "bubble", "faster": "backward", "gone": "backward"}
_CONFIDENCE = {
    "certain": "certain: twice the change that noise explains, in three steps or more; or a statement"
    " without a test",
    "likely": "likely: beyond noise",
    "guess": "guess: steps are inferred, or the noise is unknown",
}


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


def write_comparison(source: ComparisonSource, output: BinaryIO) -> None:
    """Write the page of a comparison.

    Args:
        source: Results of the comparison.
        output: A binary stream.
    """
    write_page(
        output,
        _SECTIONS,
        source,
        {section.name: [source.tables[name] for name in section.tables] for section in _SECTIONS},
        title=source.title,
        facts=[
            f"{letter}: {name} ({len(facts.steps):,} steps, {facts.lane_count:,} ranks)"
            for letter, name, facts in zip("AB", source.names, source.facts, strict=True)
        ],
        foot=f"Written by nsys-pp {source.made_by}; the numbers are those of `nsys-pp compare`."
        " Noise is estimated from the steps of both runs.",
        absent="neither run has any",
        is_pair=True,
    )


def _draw_verdict(source: ComparisonSource, drawn: Mapping[str, Drawn]) -> Drawn:
    items = "".join(format_finding(one, _SECTIONS, drawn, _CONFIDENCE) for one in source.verdict.findings)
    sentence = source.comparability
    body = f'<ol class="findings">{items}</ol><p>{format_text(f"{sentence[:1].upper()}{sentence[1:]}.")}</p>'
    return Drawn(html=body + _format_gates(source) + format_notes(source.notes))


def _format_gates(source: ComparisonSource) -> str:
    if not source.gates:
        return ""
    passed = [
        f"`{gate}`"
        for gate in source.gates
        if not any(text.startswith(f"`{gate}`") for text in source.failures)
    ]
    items = [
        f'<li><span class="{verdict}">{verdict}</span> {format_text(text)}</li>'
        for verdict, texts in (("failed", source.failures), ("passed", passed))
        for text in texts
    ]
    return f'<h3>Gates</h3><ul class="gates">{"".join(items)}</ul>'


def _draw_comparability(source: ComparisonSource) -> Drawn:
    """Draw the facts that differ as a table, and list the others."""
    table = source.tables["comparability"].frame
    rows = [
        (
            *(format_text(row[name] or "unknown") for name in ("fact", "a", "b")),
            f'<span class="{row["effect"]}">{row["effect"]}</span>',
            format_text(row["meaning"] or ""),
        )
        for row in table.filter(pl.col("effect") != "same").iter_rows(named=True)
    ]
    same = table.filter(pl.col("effect") == "same")["fact"].to_list()
    body = format_grid(("Fact", "A", "B", "Effect", "Meaning"), rows, ' class="facts-table"') if rows else ""
    if same:
        body += f'<p class="muted">{format_text("The same in both runs: " + ", ".join(same) + ".")}</p>'
    return Drawn(html=body)


def _draw_steps(source: ComparisonSource) -> Drawn:
    """Draw the lengths of the steps of A and B side by side, as points on one scale."""
    of_steps = [samples["steps"].filter(subject="step").sort("step") for samples in source.samples]
    runs = [samples.select("step", "value") for samples in of_steps]
    if any(run.is_empty() for run in runs):
        return Drawn()
    low, high = pl.concat(runs).select(low=pl.col("value").min(), high=pl.col("value").max()).row(0)
    middle = (low + high) / 2
    half = max((high - low) / 2, 0.02 * middle)  # noise of equal steps does not fill the height
    drawn = [_draw_run(run, letter, middle, half) for run, letter in zip(runs, "AB", strict=True)]
    return Drawn(html=f'<div class="steps">{"".join(drawn)}</div>')


def _draw_run(run: pl.DataFrame, letter: str, middle: float, half: float) -> str:
    """Draw the steps of a run; the scale extends by `half` around `middle`."""
    count, stride = len(run), -(-len(run) // _MOST_POINTS)

    def find_y(value: float) -> str:
        return f"{_HEIGHT / 2 - (_HEIGHT / 2 - _MARGIN) * (value - middle) / (half or 1):.1f}"

    first, last, shortest, longest, median = run.select(
        pl.first("step"),
        last=pl.last("step"),
        shortest=pl.min("value"),
        longest=pl.max("value"),
        median=pl.median("value"),
    ).row(0)
    name = letter.lower()
    shapes = []
    for value, gap in ((middle - half, 16), (middle + half, -8)):  # labels outside of the points
        y = find_y(value)
        shapes.append(f'<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>')
        shapes.append(f'<text x="4" y="{float(y) + gap:.1f}">{format_duration(round(value))}</text>')
    y = find_y(median)
    shapes.append(f'<line class="{name}" x1="0" x2="100%" y1="{y}" y2="{y}" stroke-dasharray="4 3"/>')
    for at, (step, value) in enumerate(run.select("step", "value").gather_every(stride).iter_rows()):
        shapes.append(
            f'<circle class="{name}" cx="{100 * (at * stride + 0.5) / count:.2f}%" cy="{find_y(value)}"'
            ' r="4">'
            f"<title>step {step}: {format_duration(round(value))}</title></circle>"
        )
    caption = f"{letter}: median {format_duration(round(median))}, steps {first} to {last}"
    if stride > 1:
        caption += f", every {stride}th is drawn"
    ends = f"shortest {format_duration(round(shortest))}, longest {format_duration(round(longest))}"
    return (
        f"<figure><figcaption>{caption}</figcaption>"
        f'<svg role="img" aria-label="{caption}; {ends}">{"".join(shapes)}</svg></figure>'
    )


def _draw_members(noun: str, source: ComparisonSource) -> Drawn:
    both = source.tables[f"{noun}s"].frame.drop_nulls("change_fraction")
    changed = both.filter(pl.col("verdict").is_in(("slower", "faster", "unknown")))
    shown, caption = changed, "Changes beyond noise"
    if changed.is_empty():
        shown, caption = both, "No change beyond noise; the largest ones"
    shown = shown.sort(pl.col("change_fraction").abs(), descending=True)
    caption += f"{{of}}; {len(both) - len(changed):,} of {len(both):,} {noun}s within noise"
    return Drawn(html=_draw_changes(shown, caption, section=f"{noun}s"))


def _draw_stages(source: ComparisonSource) -> Drawn:
    stages = source.tables["stages"].frame.filter(pl.col("unit") == "ns", pl.col("subject") == "compute")
    kinds = source.tables["kinds"].frame.filter(pl.col("stage").is_null())
    of_stages = _draw_changes(stages, "Compute of the jobs of a stage, per rank{of}")
    return Drawn(html=of_stages + _draw_changes(kinds, "Compute of a job, mean, by kind{of}"))


def _draw_changes(rows: pl.DataFrame, caption: str, *, section: str = "stages") -> str:
    build = partial(_build_change, section)
    known = rows.drop_nulls("change_fraction")
    is_equal = known["change_fraction"].round(3) == 0
    html = draw_rows(
        known.filter(~is_equal), build, caption=caption, most=MANY, order="largest", least=LEAST_SCALE
    )
    return html + fold_rows(known.filter(is_equal), build)


def _build_change(section: str, row: dict[str, Any]) -> Bar:
    text = format_change(row["change_fraction"], row["noise_fraction"])
    is_marked = row["verdict"] in _COLORS
    if is_marked:
        text += f", {row['verdict']}"
    if row["since_step"] is not None:
        text += f" since step {row['since_step']}"
    label = f"stage {row['stage']}" if row["subject"] == "compute" else row["subject"]
    return Bar(
        label=label,
        pieces=(Piece(key=_color(row["verdict"]), value=row["change_fraction"], text=text),),
        text=text,
        is_marked=is_marked,
        row=name_row(section, label),
    )


def _color(verdict: str) -> str:
    return _COLORS.get(verdict, "compute" if verdict == "unknown" else "")


def _draw_bubbles(source: ComparisonSource) -> Drawn:
    bars, used = [], set[str]()
    for letter, samples in zip("AB", source.samples, strict=True):
        times = samples["bubbles"].filter(pl.col("unit") == "ns", pl.col("metric") == "per lane")
        medians = dict(times.group_by("subject").agg(pl.col("value").median()).iter_rows())
        share = (
            samples["bubbles"]
            .filter(pl.col("unit") == "fraction", pl.col("subject") == "bubble")["value"]
            .median()
        )
        if not isinstance(share, float):  # the run has none
            continue
        bubble = medians.get("bubble", 0.0)
        parts = {
            "compute": bubble * (1 - share) / share if share > 0 else 0.0,
            **{cause: medians.get(cause, 0.0) for cause in BUBBLE_CAUSES},
        }
        drawn = {name: value for name, value in parts.items() if value}
        used |= drawn.keys()
        text = f"bubble {format_duration(round(bubble))} ({format_share(share)})"
        bars.append(build_step_bar(letter, drawn, text))
    return Drawn(
        html=draw_bars(
            bars,
            caption="A step on a rank, by cause: medians of all complete steps",
            legend={name: name_part(name) for name in ("compute", *BUBBLE_CAUSES) if name in used},
        )
    )


def _draw_kernels(source: ComparisonSource) -> Drawn:
    families = source.tables["families"].frame.with_columns(
        size=pl.col("b").fill_null(0) - pl.col("a").fill_null(0)
    )

    def build(row: dict[str, Any]) -> Bar:
        sign = "+" if row["size"] > 0 else "-" if row["size"] < 0 else ""
        text = f"{sign}{format_duration(abs(round(row['size'])))}"
        if row["change_fraction"] is not None:
            text += f" ({format_share(row['change_fraction'], '+')})"
        text += f", {row['verdict']}"
        return Bar(
            label=row["subject"],
            pieces=(Piece(key=_color(row["verdict"]), value=row["size"], text=text),),
            text=text,
            is_marked=row["verdict"] in _COLORS,
        )

    is_equal = (families["change_fraction"].round(3) == 0).fill_null(value=False)
    return Drawn(
        html=draw_rows(
            families.filter(~is_equal).sort(pl.col("size").abs(), descending=True),
            build,
            caption="B less A, per rank and step{of}",
            most=MANY,
            order="largest",
            least=float(families["a"].sum() or 0) * 0.01,
        )
        + fold_rows(families.filter(is_equal), build)
    )


_SECTIONS = (
    Section(
        name="verdict",
        title="Verdict",
        lead="What changed from A to B, by the time of a step; nothing within noise is named.",
        draw=_draw_verdict,
    ),
    Section(
        name="comparability",
        title="How comparable the runs are",
        lead="Facts in which the runs differ, and what each difference means for the comparison.",
        draw=_draw_comparability,
    ),
    Section(
        name="steps",
        title="Steps",
        lead="Length of each complete step; the line is the median.",
        draw=_draw_steps,
        kinds=("step", "long_step"),
        tables=("steps",),
    ),
    Section(
        name="ranks",
        title="Ranks",
        lead="Own compute of a rank, waiting not counted, relative to the same rank of run A."
        " Less than 2 % does not count.",
        draw=partial(_draw_members, "rank"),
        kinds=("rank", "ranks"),
        tables=("ranks",),
    ),
    Section(
        name="stages",
        title="Stages and jobs",
        lead="Compute of the jobs of a stage, and of jobs by kind, relative to run A.",
        draw=_draw_stages,
        kinds=("stage",),
        tables=("stages", "kinds"),
    ),
    Section(
        name="bubbles",
        title="Bubbles",
        lead="Where the time of a step goes on a rank: compute, and the bubble by cause.",
        draw=_draw_bubbles,
        kinds=("bubble",),
        tables=("bubbles",),
    ),
    Section(
        name="links",
        title="Links",
        lead="Median transfer of a message on each link between ranks, relative to the same link of run A."
        " Less than 25 % and the error of the clocks does not count.",
        draw=partial(_draw_members, "link"),
        kinds=("link",),
        tables=("links",),
    ),
    Section(
        name="kernels",
        title="Kernels",
        lead="Total of each family of kernels on a rank in a step: B less A.",
        draw=_draw_kernels,
        kinds=("kernel",),
        tables=("families", "kernels"),
    ),
)
