"""The pictures: projection, clocks, a chart, and every cause of a bubble."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from nsys_pp.frames.training import BUBBLE_CAUSES
from nsys_pp.units import NS_PER_MS, NS_PER_US
from nsys_pp.write.trace.colors import COLORS
from website.pictures.runs import Run, make_run
from website.pictures.svg import GAP, ROW, WIDTH, Timeline

_EXAMPLES = {  # the run with the example of a cause
    "message_wait": "pipeline",
    "message_transfer": "pipeline",
    "collective_wait": "pipeline",
    "host": "pipeline",
    "message": "missing",
    "collective": "missing",
    "collective_transfer": "varied",
    "copy": "varied",
    "data": "varied",
    "idle": "varied",
    "unknown": "lost",
    "profiler": "held",
}
_MACHINES = {"node1": "forward", "node2": "backward", "node10": "optimizer"}  # colors of machines


def draw_pictures(folder: Path) -> dict[str, str]:
    """Draw all pictures, by name.

    Args:
        folder: A folder for simulated runs.
    """
    runs = {name: Run(make_run(name, folder)) for name in {*_EXAMPLES.values(), "clocks"}}
    return {
        "projection": draw_projection(runs["pipeline"]),
        "clocks": draw_clocks(runs["clocks"]),
        "chart": draw_chart(runs["pipeline"]),
        **{cause: draw_cause(runs[_EXAMPLES[cause]], cause) for cause in BUBBLE_CAUSES},
    }


def _color(key: str) -> str:
    return "#{:02x}{:02x}{:02x}".format(*COLORS[key].rgb)


def draw_projection(run: Run) -> str:
    """Draw the last forward of a step before its backward: range, launches, kernels, and projection."""
    job = run.result.training.jobs.filter(lane=0, step=11, kind="forward", micro_batch=3).row(0, named=True)
    ops = run.operations(0).filter(
        pl.col("launch_ns").is_between(job["host_start_ns"], job["host_end_ns"]), ~pl.col("is_communication")
    )
    margin = (job["end_ns"] - job["host_start_ns"]) // 25
    picture = Timeline(job["host_start_ns"] - margin, job["end_ns"] + margin)
    top = picture.add_row("CPU: range")
    picture.add_bar(top, job["host_start_ns"], job["host_end_ns"], _color("range"), "forward_3")
    calls = picture.add_row("CPU: launches")
    picture.add_space(30)
    kernels = picture.add_row("GPU: kernels")
    for op in ops.iter_rows(named=True):
        picture.add_bar(calls, op["launch_ns"], op["launch_ns"] + 4 * NS_PER_US, _color("step"))
        picture.add_bar(kernels, op["start_ns"], op["end_ns"], _color("compute"))
    for op in (ops.row(0, named=True), ops.row(-1, named=True)):
        picture.add_link(
            [(picture.place(op["launch_ns"]), calls + ROW), (picture.place(op["start_ns"]), kernels)]
        )
    top = picture.add_row("projection")
    picture.add_bar(top, job["start_ns"], job["end_ns"], _color("forward"), "forward_3: first to last kernel")
    picture.add_axis(NS_PER_MS, "ms")
    return picture.format()


def draw_chart(run: Run) -> str:
    """Draw one step of all lanes, with numbered marks."""
    training = run.result.training
    states = training.lane_states.filter(step=11)
    picture = Timeline(int(states["start_ns"].min()), int(states["end_ns"].max()))  # type: ignore[arg-type]
    picture.add_space(14)
    tops: dict[int, int] = {}
    for lane in training.lanes.sort("stage").iter_rows(named=True):
        top = tops[lane["lane"]] = picture.add_row(f"rank {lane['rank']} · stage {lane['stage']}", 30)
        for state in states.filter(
            pl.col("lane") == lane["lane"], pl.col("cause").is_in(BUBBLE_CAUSES)
        ).iter_rows(named=True):
            picture.add_bar(top + 8, state["start_ns"], state["end_ns"], _color(state["cause"]), height=14)
        jobs = training.jobs.filter(
            pl.col("lane") == lane["lane"],
            pl.col("step") == 11,
            pl.col("compute_ns") > 0,
            pl.col("outer").is_null(),
        )
        for job in jobs.iter_rows(named=True):
            text = "" if job["micro_batch"] is None else str(job["micro_batch"])
            picture.add_bar(
                top, job["compute_start_ns"], job["compute_end_ns"], _color(job["kind"]), text, height=30
            )
    _mark_chart(picture, run, tops)
    picture.add_axis(NS_PER_MS, "ms")
    _add_legend(
        picture,
        ["forward", "backward", "optimizer", *states["cause"].cast(pl.String).unique(maintain_order=True)],
    )
    return picture.format()


def _mark_chart(picture: Timeline, run: Run, tops: dict[int, int]) -> None:
    training = run.result.training
    jobs = training.jobs.filter(pl.col("step") == 11, pl.col("compute_ns") > 0)

    def middle(lane: int, kind: str, position: int) -> float:
        row = jobs.filter(lane=lane, kind=kind).sort("compute_start_ns").row(position, named=True)
        return picture.place((row["compute_start_ns"] + row["compute_end_ns"]) / 2)

    last = max(tops)
    first_ns = jobs.filter(lane=last)["compute_start_ns"].min()
    gaps = training.lane_states.filter(step=11, lane=0, cause="message_wait").sort(
        pl.col("end_ns") - pl.col("start_ns")
    )
    gap = gaps.row(-1, named=True)
    tail = (
        training.lane_states.filter(step=11, lane=last, cause="collective_wait")
        .sort("end_ns")
        .row(-1, named=True)
    )
    picture.add_mark(136, tops[0] + 15, "1")
    picture.add_mark(middle(0, "forward", 1), tops[0] - 6, "2")
    picture.add_mark(middle(0, "backward", 1), tops[0] - 6, "3")
    picture.add_mark(
        (picture.place(picture.start_ns) + picture.place(float(str(first_ns)))) / 2, tops[last] + 15, "4"
    )
    picture.add_mark(picture.place((gap["start_ns"] + gap["end_ns"]) / 2), tops[0] + 15, "5")
    picture.add_mark(picture.place((tail["start_ns"] + tail["end_ns"]) / 2), tops[last] + 15, "6")
    picture.add_mark(middle(0, "optimizer", 0), tops[0] - 6, "7")


def _add_legend(picture: Timeline, keys: list[str]) -> None:
    keys = [key for key in dict.fromkeys(keys) if key not in ("compute", "pause")]
    top, x = picture.add_space(24), 10.0
    for key in keys:
        if x > WIDTH - 140:
            top, x = picture.add_space(20), 10.0
        picture.add_square(x, top + 2, _color(key))
        picture.add_text(x + 16, top + 13, key.replace("_", " "))
        x += 34 + 7 * len(key)


def draw_clocks(run: Run) -> str:
    """Draw the ends of the all-reduces of all ranks relative to their median, by recorded UTC and on the common clock."""
    lanes, ends = run.result.training.lanes, []
    for lane in lanes["lane"]:
        report = run.read(lane)
        ops = report.gpu_ops.filter(pl.col("name").cast(pl.String).str.contains("AllReduce_Sum_f32")).sort(
            "start_ns"
        )
        times = ops["end_ns"].to_numpy()
        utc = times - (report.session.time_shift_ns or 0) + (report.session.utc_epoch_ns or 0)
        ends.append(
            pl.DataFrame(
                {
                    "lane": [lane] * len(times),
                    "number": range(len(times)),
                    "utc": utc,
                    "one": run.align(lane, times),
                }
            )
        )
    frame = pl.concat(ends).join(lanes.select("lane", "machine", "label"), on="lane", maintain_order="left")
    picture = Timeline(0, 1)
    for column, title, unit, name in (
        ("utc", "recorded UTC", NS_PER_MS, "ms"),
        ("one", "one clock", NS_PER_US, "us"),
    ):
        deviation = frame.with_columns(off=(pl.col(column) - pl.col(column).median().over("number")) / unit)
        most = float(np.ceil(deviation["off"].abs().max() or 1))  # type: ignore[arg-type]
        height = 130
        top = picture.add_space(height + 24)
        picture.add_text(4, top + 14, title)
        picture.add_text(4, top + 30, "difference from")
        picture.add_text(4, top + 46, "the median end")
        for value in (most, 0.0, -most):
            y = round(top + height / 2 - value / most * (height / 2 - 8), 1)
            picture.add_text(142, y + 4, f"{value:+g} {name}" if value else "0", "end")
            picture.add_link([(150, y), (WIDTH - 10, y)])
        count = frame["number"].n_unique()
        for row in deviation.iter_rows(named=True):
            x = round(165 + (row["number"] + row["lane"] / 12) / count * (WIDTH - 190), 1)
            y = round(top + height / 2 - row["off"] / most * (height / 2 - 8), 1)
            picture.add_dot(x, y, _color(_MACHINES[row["machine"]]))
    top = picture.add_space(24)
    for position, (machine, key) in enumerate(_MACHINES.items()):
        picture.add_dot(160 + 90 * position, top + 8, _color(key))
        picture.add_text(168 + 90 * position, top + 12, machine)
    picture.add_text(WIDTH - 10, top + 12, "all-reduces of all ranks, in order", "end")
    return picture.format()


def draw_cause(run: Run, cause: str) -> str:
    """Draw the longest bubble of a cause: the streams of its lane, those of the lane that it waits for, and causes."""
    training = run.result.training
    states = training.lane_states.with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
    state = states.filter(cause=cause).sort("length", descending=True).row(0, named=True)
    margin = max(state["length"] * 2 // 5, 60 * NS_PER_US)
    picture = Timeline(state["start_ns"] - margin, state["end_ns"] + margin)
    names = dict(training.lanes.select("lane", "label").iter_rows())
    lanes = [state["lane"], *([state["waits_for"]] if state["waits_for"] is not None else [])]
    for lane in dict.fromkeys(lanes):
        _draw_lane(picture, run, lane, names[lane])
    top = picture.add_row(f"{names[state['lane']]}: cause")
    shown = states.filter(
        pl.col("lane") == state["lane"],
        pl.col("end_ns") > picture.start_ns,
        pl.col("start_ns") < picture.end_ns,
    )
    for row in shown.iter_rows(named=True):
        if row["cause"] not in ("compute", "pause"):
            picture.add_bar(
                top, row["start_ns"], row["end_ns"], _color(row["cause"]), row["cause"].replace("_", " ")
            )
    unit = (NS_PER_MS, "ms") if picture.end_ns - picture.start_ns > 2 * NS_PER_MS else (NS_PER_US, "us")
    picture.add_axis(*unit)
    return picture.format()


def _draw_lane(picture: Timeline, run: Run, lane: int, label: str) -> None:
    """Draw rows of computing kernels, communication, copies and launches of a lane, where there are any."""
    ops = run.operations(lane).filter(
        pl.col("end_ns") > picture.start_ns, pl.col("start_ns") < picture.end_ns
    )
    is_kernel, is_shared = pl.col("kind") == "kernel", pl.col("is_communication")
    kinds = (
        ("compute", "compute", is_kernel & ~is_shared),
        ("communication", "communication", is_kernel & is_shared),
        ("copies", "copy", pl.col("kind").is_in(["memcpy", "memset"])),
    )
    for title, key, mask in kinds:
        rows = ops.filter(mask)
        if rows.is_empty() and title != "compute":
            continue
        top = picture.add_row(f"{label}: {title}")
        for row in rows.iter_rows(named=True):
            text = str(row["name"]) if title != "compute" else ""
            picture.add_bar(top, row["start_ns"], row["end_ns"], _color(key), text)
    launches = run.operations(lane).filter(pl.col("launch_ns").is_between(picture.start_ns, picture.end_ns))
    top = picture.add_row(f"{label}: launches", ROW - GAP)
    for start_ns in launches["launch_ns"]:
        picture.add_bar(top, start_ns, start_ns + 2 * NS_PER_US, _color("step"), height=ROW - GAP)
