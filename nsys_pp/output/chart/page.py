"""Interactive page of a chart: one file without network access, drawn on Bokeh's canvas.

Bokeh provides the canvas, the time axis, the grid and repaints; the scripts in `static/` do the rest. Without
a GPU, Bokeh's own glyphs draw 100,000 bars at 4 frames a second. So the bars are painted by a renderer of our
own, which draws bars within the same pixel once.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from nsys_pp.frames.training import (
    BUBBLE_CAUSES,
    CAUSES,
    DIRECTION,
    DOUBTFUL,
    DOUBTFUL_TEXTS,
    JOB_KINDS,
    POSITION,
    Training,
    span_steps,
)
from nsys_pp.frames.verdict import NO_VERDICT, Verdict
from nsys_pp.output.chart.content import (
    build_bars,
    build_bubbles,
    choose_step,
    describe_missing,
    describe_run,
    list_named_lanes,
    name_kinds,
    name_lanes,
    time_span,
    used_causes,
    used_kinds,
)
from nsys_pp.output.colors import HATCH_PX, HATCHES, color_of, kind_looks
from nsys_pp.output.tables.text import clean

_SCRIPTS = (
    "columns",
    "look",
    "lanes",
    "lines",
    "paint",
    "arrows",
    "scene",
    "hover",
    "input",
    "panel",
    "plot",
    "main",
)


def write_html(training: Training, output: BinaryIO, *, title: str, verdict: Verdict = NO_VERDICT) -> None:
    """Write the chart of a training as one HTML page.

    Args:
        training: The run. Without lanes or jobs, the page shows the reason instead of a chart.
        output: A binary stream.
        title: Heading of the page.
        verdict: Findings below the heading: the step of the first one is in view, ranks that they name are
            marked.

    Raises:
        NsysPPError: Bokeh is not installed.
    """
    before, after = split_page(title)
    data = embed_json(describe_page(training, title=title, verdict=verdict))
    output.write(f"{before}{data}{after}".encode("utf-8", "replace"))


def split_page(title: str) -> tuple[str, str]:
    """Return the page of a chart before and after its data, which is `embed_json(describe_page(...))`.

    Raises:
        NsysPPError: Bokeh is not installed.
    """
    parts = {
        "title": html.escape(clean(title)),
        "style": read_page_file("page.css"),
        "library": _library(),
        "script": wrap_scripts([read_page_file(f"{name}.js") for name in _SCRIPTS]),
    }
    before, after = read_page_file("page.html").split("{{data}}")
    return fill_template(before, parts), fill_template(after, parts)


def fill_template(template: str, parts: Mapping[str, str]) -> str:
    """Replace each `{{name}}` of a template; it is split before, as texts may contain braces themselves."""
    pieces = [text for piece in template.split("{{") for text in piece.split("}}", 1)]
    return pieces[0] + "".join(
        parts[name] + text for name, text in zip(pieces[1::2], pieces[2::2], strict=True)
    )


def wrap_scripts(scripts: Sequence[str]) -> str:
    """Join scripts into a function of their own, so that their names are not global."""
    return "(() => {\n'use strict';\n" + "\n".join(scripts) + "})();"


def describe_page(
    training: Training, *, title: str, verdict: Verdict = NO_VERDICT, unfolded: Sequence[int] = ()
) -> dict[str, Any]:
    """Describe the data of the page, ready for JSON; times are ns since `training.zero_ns`.

    Args:
        training: The run.
        title: Heading of the page.
        verdict: Findings, as of `write_html`.
        unfolded: Stages whose ranks are all shown at first, also in a run of many ranks.
    """
    bars, bubbles = build_bars(training), build_bubbles(training)
    lanes, spans = training.lanes, span_steps(training.steps).sort("start_ns", "step")
    first, last = time_span(training, bars)
    named = list_named_lanes(lanes, verdict.findings)
    names, name_codes = pack_strings(bars["name"])
    labels, label_codes = pack_strings(bars["label"])
    roles, role_codes = pack_strings(bars["role"])
    codes = {"name": name_codes, "label": label_codes} | ({"role": role_codes} if any(roles) else {})
    return {
        "title": title,
        "facts": describe_run(training),
        "verdict": verdict.lines,
        "opensOn": choose_step(training, verdict),
        "notes": training.notes,
        "missing": describe_missing(training),
        "first": first - training.zero_ns,
        "last": last - training.zero_ns,
        "kinds": JOB_KINDS,
        "causes": CAUSES,
        "directions": DIRECTION.categories.to_list(),
        "doubtful": [DOUBTFUL_TEXTS[reason] for reason in DOUBTFUL.categories],
        "positions": POSITION.categories.to_list(),
        "usedKinds": used_kinds(bars, training.transfers),
        "kindTexts": name_kinds(training, used_kinds(bars, training.transfers)),
        "usedCauses": used_causes(bubbles),
        "looks": kind_looks(),
        "kindColors": {kind: color_of(kind) for kind in JOB_KINDS},
        "causeColors": {cause: color_of(cause) for cause in BUBBLE_CAUSES},
        "hatches": HATCHES,
        "hatchSize": HATCH_PX,
        "hasMessages": training.transfers.height > 0 or bool(bars["is_message"].any()),
        "lanes": pl.concat(
            [
                name_lanes(lanes),
                lanes.select("rank", "stage", "replica", "tensor", isNamed=pl.col("lane").is_in(named)),
            ],
            how="horizontal",
        ).to_dicts(),
        "unfolded": list(unfolded),
        "runSteps": spans.select(
            *("step", (pl.col("start_ns") - training.zero_ns).alias("start")),
            end=pl.col("end_ns") - training.zero_ns,
            isPartial="is_partial",
            isInferred="is_inferred",
        ).to_dicts(),
        "names": names,
        "labels": labels,
        "roles": roles if any(roles) else [],
        "tables": {
            "jobs": _jobs(bars, codes, training.zero_ns),
            "transfers": _transfers(training.transfers, training.zero_ns),
            "bubbles": _spans(bubbles, training.zero_ns, "step", "position", "cause", "waits_for"),
            "ideal": _spans(training.ideal.sort("lane", "start_ns"), training.zero_ns, "job"),
            "steps": _spans(training.steps.sort("lane", "start_ns"), training.zero_ns, "step"),
        },
    }


def _jobs(bars: pl.DataFrame, codes: dict[str, pl.Series], zero_ns: int) -> dict[str, Any]:
    # `codes`: indices of their strings, by column
    table = bars.select(
        "lane",
        "job",
        pl.col("kind").to_physical(),
        "shade",
        "depth",
        "step",
        "micro_batch",
        "chunk",
        "backward_micro_batch",
        "is_inferred",
        "confidence",
        start=pl.col("bar_start_ns") - zero_ns,
        duration=pl.col("bar_end_ns") - pl.col("bar_start_ns"),
        hull_lead=pl.col("bar_start_ns") - pl.col("start_ns"),
        hull_duration=pl.col("end_ns") - pl.col("start_ns"),
        busy="busy_ns",
        compute_lead=pl.col("compute_start_ns") - pl.col("start_ns"),
        compute_duration=pl.col("compute_end_ns") - pl.col("compute_start_ns"),
        launch_delay="launch_delay_ns",
    )
    return pack_table(table.with_columns(**codes))


def _transfers(transfers: pl.DataFrame, zero_ns: int) -> dict[str, Any]:
    return pack_table(
        transfers.sort("send_start_ns", maintain_order=True).select(
            "sender",
            "receiver",
            "step",
            pl.col("direction").to_physical(),
            "micro_batch",
            "is_buffered",
            pl.col("doubtful").to_physical(),
            send_start=pl.col("send_start_ns") - zero_ns,
            send_duration=pl.col("send_end_ns") - pl.col("send_start_ns"),
            receive_lag=pl.col("receive_start_ns") - pl.col("send_start_ns"),
            receive_duration=pl.col("receive_end_ns") - pl.col("receive_start_ns"),
            send_wait="send_wait_ns",
            receive_wait="receive_wait_ns",
            transfer="transfer_ns",
            size="size_bytes",
            bound="bound_ns",
        )
    )


def _spans(frame: pl.DataFrame, zero_ns: int, *others: str) -> dict[str, Any]:
    return pack_table(
        frame.select(
            "lane",
            *[pl.col(name).to_physical() for name in others],
            start=pl.col("start_ns") - zero_ns,
            duration=pl.col("end_ns") - pl.col("start_ns"),
        )
    )


def embed_json(value: Any) -> str:
    """Encode JSON for a `<script>` element.

    Without `<`, it can neither close the element nor open a comment.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")


@cache
def read_page_file(name: str, folder: str = "chart") -> str:
    """Read a file of a page: a style or a script."""
    return files(f"nsys_pp.output.{folder}").joinpath("static", name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    import bokeh

    script = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
    # `</script` would close the element early; in a JavaScript string, `<\/` is the same as `</`.
    return script.read_text(encoding="utf-8").replace("</script", "<\\/script")


_TYPES = {
    name: np.dtype(code).newbyteorder("<")
    for name, code in [("u8", "u1"), ("i8", "i1"), ("u16", "u2"), ("i16", "i2"), ("u32", "u4"), ("i32", "i4")]
}

# Doubles hold all integers up to this value exactly.
_EXACT = 2**53


def pack_table(frame: pl.DataFrame) -> dict[str, Any]:
    """Pack a frame for `readTable` of `columns.js`."""
    columns = {values.name: pack_column(values) for values in frame.iter_columns()}
    return {"length": len(frame), "columns": columns}


def pack_column(values: pl.Series) -> dict[str, Any]:
    """Pack one column of numbers, booleans or codes.

    Returns:
        `type` and `data`; for a column with nulls also `missing`, the number that stands for null.

    Raises:
        ValueError: An integer is too large for a double.
    """
    name, null = "f64", -1
    if not values.dtype.is_float():
        values = values.cast(pl.Int64)
        present = values.drop_nulls().to_numpy()
        low, high = int(present.min(initial=0)), int(present.max(initial=0))
        if values.null_count():
            low = null = low - 1
        if max(-low, high) > _EXACT:
            raise ValueError(f"{max(-low, high)} is too large to be exact in a page")
        name = next(
            (
                one
                for one, limits in zip(_TYPES, map(np.iinfo, _TYPES.values()), strict=True)
                if limits.min <= low and high <= limits.max
            ),
            "f64",
        )
    packed = values.fill_null(null).to_numpy().astype(_TYPES.get(name, np.dtype("<f8")))
    missing = {"missing": null} if values.null_count() else {}
    return {"type": name, "data": base64.b64encode(packed.tobytes()).decode("ascii"), **missing}


def round_exact(values: pl.Series) -> pl.Series:
    """Round numbers to integers, which take less space in a page.

    Numbers beyond the exact ones remain, as 104 days in nanoseconds.
    """
    rounded = values.round()
    largest = rounded.abs().max()
    return rounded if isinstance(largest, float) and largest > _EXACT else rounded.cast(pl.Int64)


def pack_strings(values: pl.Series) -> tuple[list[str], pl.Series]:
    """Return the distinct strings and the index of each row's string; null is ""."""
    filled = values.cast(pl.String).fill_null("")
    strings = filled.unique(maintain_order=True)
    return strings.to_list(), filled.replace_strict(
        strings, pl.int_range(strings.len(), eager=True), return_dtype=pl.UInt32
    )
