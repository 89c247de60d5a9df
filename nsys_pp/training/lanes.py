"""Lanes of a run.

Its GPU processes, their pipeline stages, and which lane is a rank of an NCCL communicator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import whole_numbers
from nsys_pp.arrays.names import natural_key
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.clock import CLOCK, is_comparable, relative_bound
from nsys_pp.frames.conform import conform
from nsys_pp.frames.roster import GPU_ORDER, MACHINE_ORDER, list_missing_ranks
from nsys_pp.frames.training import FIRST_FORWARDS, LANES, MESSAGE_PEERS, SCHEDULED_KINDS, WARM_UPS

_KEYS = ("report", "process_key", "device_id")
_COORDINATES = ("rank", "stage", "replica", "tensor", "stage_source", "stage_count", "run_size")
_JOB_COLUMNS = [
    *(*_KEYS, "kind", "step", "stage", "virtual_stage", "backward_virtual_stage"),
    *("start_ns", "end_ns", "compute_start_ns", "compute_end_ns", "host_end_ns"),
]
_BEFORE = "_before"  # suffix of the columns of the lane before
# Largest error of the delay between two lanes, in durations of a forward, for which their order is known.
_MOST_ERROR = 0.5
# Limits between stages, in durations of a forward. A lane is of a later stage than another one if its first
# forward begins after the other one's ends, or up to `_NOISE` before. It is of the same stage only if its
# first forward begins at least `_MARGIN` before that. Delays between these limits are ambiguous: replicas may
# begin at different times, and a slow GPU delays its replica.
_NOISE, _MARGIN = 0.05, 0.2
_NEARLY_ALL = 0.9  # of the steps of a lane, in which it receives before its first forward, or does not
_NONE = -1


def build_lanes(
    roster: pl.DataFrame,
    jobs: pl.DataFrame,
    steps: pl.DataFrame | None = None,
    messages: pl.DataFrame | None = None,
) -> tuple[pl.DataFrame, list[str]]:
    """List the GPU processes of all reports, and find their stages.

    Stages are from the roster (`--layout`, or names written with NVTX); else from job names. If no stage is
    known, they are from the peers of messages, where NCCL recorded them (`find_stages_of_peers`); else from
    the forwards before the first backward (`find_stages_of_warm_ups`); else from the order of the first
    forwards of a step, by the median over steps. Where ranks are missing, whole stages may be: then only from
    that order, if one number of stages fits the ranks.

    Args:
        roster: `ROSTER_WITH_BOUNDS`.
        jobs: `GATHERED_FRAMES`: jobs.
        steps: `GATHERED_FRAMES`: steps. The first recorded forward of a partial step may not be the first
            forward of the step. None: all steps count.
        messages: `GATHERED_FRAMES`: messages; None: there are none.

    Returns:
        `LANES`, and notes on inferred and unknown stages. Empty without operations on a GPU.
    """
    located = roster.drop_nulls(["process_key", "device_id"]).unique(_KEYS, keep="first", maintain_order=True)
    jobs = jobs[_JOB_COLUMNS].filter(pl.col("kind").is_in(SCHEDULED_KINDS) & pl.col("start_ns").is_not_null())
    located, others = _set_aside_others(located, jobs)
    located, notes = _check_guessed_ranks(located, jobs, steps)
    notes += others
    named = _join(located, _find_stages_of_names(jobs)).with_columns(
        stage=pl.coalesce("stage", "named_stage"),
        stage_count=pl.coalesce("stage_count", "named_count"),
        stage_source=pl.when(pl.col("stage").is_not_null())
        .then("stage_source")
        .when(pl.col("named_stage").is_not_null())
        .then(pl.lit("job names")),
    )
    working = named.join(jobs.select(_KEYS).unique(), on=_KEYS, how="semi", nulls_equal=True)
    missing = list_missing_ranks(named)
    by_peer = working.select(*_KEYS, "stage").clear()
    if named["stage"].count() == 0 and messages is not None and not missing:
        by_peer = find_stages_of_peers(working, _find_first_forwards(jobs, steps), messages)
    if len(by_peer):
        named = _join(named.drop("stage"), by_peer).with_columns(
            stage_source=pl.when(pl.col("stage").is_not_null()).then(pl.lit(MESSAGE_PEERS))
        )
    elif named["stage"].count() == 0:
        # of a restart the processes that were first; those in their place have the same stages
        earliest = jobs.group_by(_KEYS).agg(begin_ns=pl.col("start_ns").min())
        first = (
            working.join(earliest, on=_KEYS, nulls_equal=True)
            .sort("begin_ns")
            .filter(pl.col("rank").is_first_distinct() | pl.col("rank").is_null())
        )
        source, found = WARM_UPS, working.select(_KEYS).clear().with_columns(stage=None, stage_count=None)
        if not missing:
            found = find_stages_of_warm_ups(jobs.join(first, on=_KEYS, how="semi", nulls_equal=True), steps)
        notes += _note_order(_join(first.drop("stage", "stage_count"), found), _BY_COUNT)
        if found.is_empty():
            source = FIRST_FORWARDS
            found, unknown = _find_stages_of_first_forwards(first, jobs, steps, missing=missing)
            notes += unknown
        of_rank = [
            pl.coalesce(name, pl.when(pl.col("rank").is_not_null()).then(pl.col(name).max().over("rank")))
            for name in ("stage", "grid_count")
        ]
        named = (
            _join(named.drop("stage"), found.rename({"stage_count": "grid_count"}))
            .with_columns(of_rank)
            .with_columns(
                stage_count=pl.coalesce("stage_count", "grid_count"),
                stage_source=pl.when(pl.col("stage").is_not_null()).then(pl.lit(source)),
            )
        )
    elif count := working["stage"].null_count():
        notes += [f"the stages of {count:,} GPU processes that ran jobs are unknown; specify `--layout`"]
    return conform(_label_lanes(_sort_lanes(named)), LANES), notes


def _set_aside_others(lanes: pl.DataFrame, jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Remove other programs from the GPUs of the training, as an evaluation, and describe them.

    They have no rank, on the GPU of a process with one, or ran no job where another process did.
    """
    ran = jobs.select(*_KEYS, has_jobs=pl.lit(value=True)).unique()
    marked = lanes.join(ran, on=_KEYS, how="left", maintain_order="left")
    member = pl.col("rank").is_not_null().cast(pl.Int8) * 2 + pl.col("has_jobs").fill_null(value=False)
    is_other = (member < member.max().over("machine", "gpu")) & pl.col("rank").is_null()
    others = marked.filter(is_other & pl.col("gpu").is_not_null())
    if others.is_empty():
        return lanes, []
    pid, machine, gpu = others.select("pid", "machine", "gpu").row(0)
    more = f", and {len(others) - 1:,} more," if len(others) > 1 else ""
    return lanes.join(others, on=_KEYS, how="anti", maintain_order="left"), [
        f"process {pid}{more} on a GPU of the training ({machine} {gpu}) is no rank of it: it is not compared"
    ]


def count_stages(lanes: pl.DataFrame) -> int:
    """Count the stages of the run, also stages without lanes where their number is known.

    0 if no stage is known.

    Args:
        lanes: `LANES`.
    """
    last = int(whole_numbers(lanes["stage"]).max(initial=-1))
    return max(last + 1, int(whole_numbers(lanes["stage_count"]).max(initial=0))) if last >= 0 else 0


def find_nccl_peers(messages: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Find the peers of messages with an NCCL peer: row, peer_lane (null where the peer has no lane).

    The rank of a lane in a communicator is recorded if the communicator was created during the capture. Else
    it is assumed to be its stage, or its position among the lanes of the communicator, provided that this
    makes peers mutual: if lane A has messages with lane B, then B has messages with A.

    Args:
        messages: row, lane, stage, and communicator, rank and peer of `MESSAGES`.
        lanes: lane, rank.
    """
    requested = messages.select("row", "lane", "communicator", "rank", "stage", "peer").drop_nulls(
        ["communicator", "peer"]
    )
    order = lanes.select("lane", order=pl.col("rank").fill_null(pl.col("lane").cast(pl.Int64)))
    members = (
        requested.join(order, on="lane")
        .group_by("communicator", "lane")
        .agg(pl.col("rank", "stage", "order").first(), pl.col("peer").unique())
        .with_columns(position=pl.col("order").rank("ordinal").over("communicator").cast(pl.Int64) - 1)
    )
    resolved = []
    for name in ("rank", "stage", "position"):
        is_numbered = pl.col(name).is_not_null().all() & (pl.col(name).n_unique() == pl.len())
        numbered = members.filter(is_numbered.over("communicator")).with_columns(number=name)
        directed = numbered.select("communicator", "number", "peer").explode("peer")
        both = directed.join(
            directed,
            left_on=["communicator", "number", "peer"],
            right_on=["communicator", "peer", "number"],
            how="semi",
        ).with_columns(is_mutual=True)
        is_member = pl.struct("communicator", "peer").is_in(
            numbered.select(pl.struct("communicator", peer="number")).to_series().implode()
        )
        is_mutual = pl.col("is_mutual").fill_null(value=False)
        is_sound = (
            (pl.col("number") != pl.col("peer")).all() & (is_mutual | ~is_member).all() & is_mutual.any()
        )
        checked = directed.join(both, on=directed.columns, how="left")
        sound = checked.group_by("communicator").agg(is_sound=is_sound).filter("is_sound")
        found = numbered.join(sound, on="communicator", how="semi")
        resolved.append(found.select("communicator", peer="number", peer_lane="lane"))
        members = members.join(sound, on="communicator", how="anti")
    peers = pl.concat(resolved)
    known = requested.join(peers, on="communicator", how="semi")
    return known.join(peers, on=["communicator", "peer"], how="left").select("row", "peer_lane")


def _check_guessed_ranks(
    lanes: pl.DataFrame, jobs: pl.DataFrame, steps: pl.DataFrame | None
) -> tuple[pl.DataFrame, list[str]]:
    """Remove guessed ranks and places of lanes, unless the first forwards confirm the stages."""
    sources = set(lanes["rank_source"].drop_nulls()) & {GPU_ORDER, MACHINE_ORDER}
    if not sources:
        return lanes, []
    (source,) = sources
    ran = lanes.join(jobs.select(_KEYS).unique(), on=_KEYS, how="semi", nulls_equal=True)
    by_time, _ = _find_stages_of_first_forwards(ran, jobs, steps, missing=[])
    both = lanes.join(by_time, on=_KEYS, suffix="_by_time")
    if both.is_empty():
        reason = "the order of machines is not recorded" if source == MACHINE_ORDER else ""
    elif not both["stage"].eq_missing(both["stage_by_time"]).all():
        reason = "it contradicts the first forwards"
    else:
        machines = both.group_by("stage").agg(pl.col("machine").n_unique())["machine"]
        is_certain = source == GPU_ORDER or (machines == 1).all()
        reason = "" if is_certain else "several machines have the same stage"
    if not reason:
        return lanes, [f"no rank is recorded: ranks are numbered by {source}"]
    unknown = [pl.lit(None, lanes.schema[name]).alias(name) for name in _COORDINATES]
    return lanes.with_columns(unknown), [
        f"`--layout` is not used: no rank is recorded, and to number them by {source} is not certain, as "
        f"{reason}"
    ]


def _join(lanes: pl.DataFrame, located: pl.DataFrame) -> pl.DataFrame:
    return lanes.join(located, on=_KEYS, how="left", maintain_order="left")


def _find_stages_of_names(jobs: pl.DataFrame) -> pl.DataFrame:
    """Find stages from job names: stages in names, or the least virtual stage of a lane.

    Virtual stages continue in a loop over the stages, or back in a V: either way, the first chunk of a stage
    is the virtual stage of the same number.
    """
    virtual = pl.concat(
        jobs.select(*_KEYS, virtual=name).drop_nulls("virtual")
        for name in ("virtual_stage", "backward_virtual_stage")
    )
    held = virtual.group_by(_KEYS).agg(least=pl.col("virtual").min(), chunks=pl.col("virtual").n_unique())
    stages = (virtual.select(pl.col("virtual").max() + 1) // held.select(pl.col("chunks").max())).to_series()
    named = jobs.group_by(_KEYS).agg(stage=pl.col("stage").drop_nulls().mode().min())
    count = pl.lit(stages).max()
    of_virtual = pl.when(pl.col("least") < count).then("least")
    return _join(named, held).select(*_KEYS, named_stage=pl.coalesce("stage", of_virtual), named_count=count)


def find_stages_of_warm_ups(
    jobs: pl.DataFrame, steps: pl.DataFrame | None, by: Sequence[str] = _KEYS
) -> pl.DataFrame:
    """Find stages by how many forwards each lane runs before its first backward, which no clock changes.

    In 1F1B and ZB-H1, each stage runs one less than the one before it, and the last stage one; in interleaved
    1F1B two less, and the last stage one and a multiple of the number of stages (Narayanan et al., 2021,
    section 2.2; `megatron.core.pipeline_parallel.schedules`).

    Args:
        jobs: Jobs of `SCHEDULED_KINDS`: `by`, step, kind, start_ns and compute_start_ns.
        steps: `by`, step and is_partial, of which the whole ones count; None: all do.
        by: Columns of a lane.

    Returns:
        `by`, stage and stage_count; empty unless the lanes do the same in all steps and are two stages or
        more, of as many lanes each.
    """
    at, is_backward = pl.coalesce("compute_start_ns", "start_ns"), pl.col("kind") == "backward"
    whole = jobs.drop_nulls("step")
    if steps is not None:
        cut = steps.filter("is_partial").select(*by, "step")
        whole = whole.join(cut, on=[*by, "step"], how="anti", nulls_equal=True)
    is_early = (pl.col("kind") == "forward") & (at < at.filter(is_backward).min())
    counts = (
        whole.group_by(*by, "step")
        .agg(is_early.sum().cast(pl.Int64).alias("count"), known=is_backward.any())
        .group_by(by)
        .agg(pl.col("count").first(), known=pl.col("known").all() & (pl.col("count").n_unique() == 1))
    )
    sizes = counts.group_by("count").len("size").sort("count", descending=True)
    stage_count, less = len(sizes), -sizes["count"].diff().drop_nulls()
    last = int(sizes["count"].min() or 0)  # type: ignore[arg-type]  # integers
    is_pipeline = (
        stage_count > 1
        and counts["known"].all()
        and not (whole["kind"] == "forward_backward").any()
        and less.n_unique() == sizes["size"].n_unique() == 1
        and (last == 1 if less[0] == 1 else less[0] == 2 and (last - 1) % stage_count == 0)
    )
    stage = pl.col("count").rank("dense", descending=True).cast(pl.Int64) - 1
    found = counts.select(*by, stage=stage, stage_count=pl.lit(stage_count, pl.Int64))
    return found if is_pipeline else found.clear()


def _find_stages_of_first_forwards(
    lanes: pl.DataFrame, jobs: pl.DataFrame, steps: pl.DataFrame | None, *, missing: list[int]
) -> tuple[pl.DataFrame, list[str]]:
    """Group lanes into stages by the start of their first forwards; empty where groups are ambiguous."""
    nothing = lanes.select(*_KEYS, "stage", "stage_count").clear()
    delays = _measure_delays(_find_first_forwards(jobs, steps))
    started = lanes.join(delays, on=_KEYS, how="inner").sort("delay_ns")
    ending = lanes.join(jobs.filter(kind="backward"), on=_KEYS, how="semi")
    if not ending.join(started, on=_KEYS, how="anti").is_empty():
        return nothing, ["stages are unknown: a GPU has backwards, and no forward is known"]
    if len(started) < 2:
        return nothing, []
    clocks = [
        pl.col(name).shift(1, fill_value=pl.col(name).first()).alias(f"{name}{_BEFORE}") for name in CLOCK
    ]
    bound = relative_bound(_BEFORE)
    errors = started.with_columns(clocks).select(
        is_certain=is_comparable(_BEFORE) & (bound == 0),
        error_ns=pl.when(is_comparable(_BEFORE) & (bound > 0)).then(bound),
        forward_ns=pl.col("forward_ns").shift(1),
    )
    is_uncertain = ~pl.col("is_certain") & (
        (pl.col("error_ns") / pl.col("forward_ns")).fill_null(1.0) > _MOST_ERROR
    )
    is_known = not errors.select(is_uncertain.any()).item()
    stage, is_clear = _layer_lanes(started, float(errors["error_ns"].fill_null(0).to_numpy().max()))
    staged = started.with_columns(stage=pl.Series(stage), stage_count=pl.lit(None, pl.Int64))
    sizes = np.bincount(stage)
    if missing:
        grid = find_rank_grid(staged, len(missing)) if is_known and is_clear else None
        more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        reason = f"rank {missing[0]} is missing{more}"
        if grid is not None:
            count = grid["stage_count"][0]
            return grid.select(nothing.columns), [f"{reason}; {_INFERRED.format(count)} {_BY_TIME}"]
    elif not is_known:
        reason = "clocks are not known well enough to order the first forwards"
    elif not is_clear or sizes.min() < sizes.max():
        reason = "GPUs do not begin their first forwards in groups of one size, one after the other"
    else:
        return staged.select(nothing.columns), _note_order(staged, _BY_TIME)
    return nothing, [f"stages are unknown: {reason}; specify `--layout`"]


_INFERRED = "that there are {} stages is inferred from"
_BY_TIME, _BY_COUNT = (
    "when GPUs begin their first forwards",
    "how many forwards GPUs run before their first backward",
)


def _note_order(staged: pl.DataFrame, how: str) -> list[str]:
    """Note how several stages were inferred, unless they are in the order of known ranks."""
    count, by_rank = staged["stage"].drop_nulls().n_unique(), staged.sort("rank", nulls_last=True)["stage"]
    is_expected = staged["rank"].null_count() == 0 and by_rank.is_sorted()
    return [] if is_expected or count < 2 else [f"{_INFERRED.format(count)} {how}"]


def _layer_lanes(started: pl.DataFrame, error_ns: float) -> tuple[Int64s, bool]:
    """Assign lanes to stages: a stage begins once a first forward of the previous stage has ended.

    Args:
        started: Lanes with delay_ns, forward_ns; by delay.
        error_ns: Error of the difference of two delays.

    Returns:
        Stage of each lane; whether all lanes of each stage begin clearly before any of them ends.
    """
    start, length = started["delay_ns"].to_numpy(), started["forward_ns"].to_numpy()
    stage = np.zeros(len(start), dtype=np.int64)
    first, is_clear = 0, True
    for number in range(len(start)):
        ends = start[first:] + length[first:]
        earliest = first + int(np.argmin(ends))
        until, forward = ends[earliest - first], length[earliest]
        last = max(int(np.searchsorted(start, until - _NOISE * forward - error_ns)), first + 1)
        is_clear &= bool(start[last - 1] <= until - _MARGIN * forward - error_ns)
        stage[first:last] = number
        if last == len(start):
            break
        first = last
    return stage, is_clear


def find_rank_grid(staged: pl.DataFrame, missing_count: int) -> pl.DataFrame | None:
    """Find the stages of a run with missing ranks: the one grid of ranks that agrees with the groups found.

    In a layout of any order, stage s has the ranks with `rank // stride % count == s`, for one stride and one
    count.

    Args:
        staged: Lanes with rank and stage, the number of their group in the order of first forwards.
        missing_count: Ranks of the run without a lane.

    Returns:
        The lanes with their stage and the number of stages; None if ranks are unknown, no grid agrees, or
        several with different stages do.
    """
    if staged["rank"].null_count() or not staged["rank"].is_unique().all():
        return None
    rank, group = staged["rank"].to_numpy(), staged["stage"].to_numpy()
    size = len(rank) + missing_count
    grids = {  # number of stages, and stage of each lane
        (count, *(rank // stride % count).tolist())
        for count in range(int(group.max()) + 1, size + 1)
        for stride in range(1, size // count + 1)
        if size % (stride * count) == 0
        and (np.unique(rank // stride % count, return_inverse=True)[1] == group).all()
    }
    if len(grids) != 1:
        return None
    ((count, *stages),) = grids
    return staged.with_columns(stage=pl.Series(stages, dtype=pl.Int64), stage_count=pl.lit(count, pl.Int64))


def _find_first_forwards(jobs: pl.DataFrame, steps: pl.DataFrame | None) -> pl.DataFrame:
    """Find start, length and end on the host of the first forward of each lane and step.

    Of lanes with complete steps, only of these.
    """
    first = (
        jobs.filter(pl.col("kind").is_in(["forward", "forward_backward"]))
        .drop_nulls("step")
        .with_columns(begin_ns=pl.coalesce("compute_start_ns", "start_ns"))
        .group_by(*_KEYS, "step")
        .agg(
            start_ns=pl.col("begin_ns").min(),
            length_ns=(pl.coalesce("compute_end_ns", "end_ns") - pl.col("begin_ns"))
            .sort_by("begin_ns")
            .first(),
            host_end_ns=pl.col("host_end_ns").sort_by("begin_ns").first(),
            is_partial=pl.lit(False),
        )
    )
    if steps is not None:
        cut = steps.select(*_KEYS, "step", "is_partial")
        first = first.drop("is_partial").join(cut, on=[*_KEYS, "step"], how="left")
    is_partial = pl.col("is_partial").fill_null(False)
    return first.filter(~is_partial | is_partial.all().over(_KEYS)).sort(*_KEYS, "start_ns")


def _measure_delays(first: pl.DataFrame) -> pl.DataFrame:
    """Measure the first forwards of each lane: median length, and delay after those of a reference lane."""
    times = first.group_by(_KEYS, maintain_order=True).agg(
        "start_ns", forward_ns=pl.col("length_ns").median()
    )
    if times.is_empty():
        return times.select(*_KEYS, "forward_ns", delay_ns=pl.lit(None, pl.Float64))
    starts = [series.to_numpy() for series in times["start_ns"]]
    reference = max(starts, key=len)
    return times.select(*_KEYS, "forward_ns").with_columns(
        delay_ns=pl.Series([float(np.median(_subtract_nearest(start, reference))) for start in starts])
    )


def _subtract_nearest(times: Int64s, reference: Int64s) -> Int64s:
    """Return the difference of each time and the nearest reference time; both ascend.

    >>> _subtract_nearest(np.array([12, 29]), np.array([10, 20, 30]))
    array([ 2, -1])
    """
    right = np.searchsorted(reference, times).clip(0, len(reference) - 1)
    left = (right - 1).clip(0)
    nearest = np.where(abs(times - reference[left]) < abs(times - reference[right]), left, right)
    return np.asarray(times - reference[nearest])


def find_stages_of_peers(
    lanes: pl.DataFrame, first_forwards: pl.DataFrame, messages: pl.DataFrame
) -> pl.DataFrame:
    """Find the stage of each lane by the lanes that its first forwards receive from.

    Args:
        lanes: Lanes that ran jobs, with report, process_key, device_id and rank.
        first_forwards: First forward of each lane and step: report, process_key, device_id, step, start_ns,
            host_end_ns.
        messages: `GATHERED_FRAMES`: messages.

    Returns:
        report, process_key, device_id and stage of all lanes; empty without at least two stages of as many
        lanes each, or where a rank is unknown, a peer has no lane, or a message connects lanes that are not
        neighbours in a pipeline.
    """
    nothing = lanes.select(*_KEYS, pl.lit(None, pl.Int64).alias("stage")).clear()
    if len(lanes) < 2 or lanes["rank"].null_count() or messages["peer"].count() == 0:
        return nothing
    numbered = lanes.select(*_KEYS, "rank", lane=pl.int_range(pl.len(), dtype=pl.UInt32))
    requested = (
        messages.drop_nulls(["communicator", "peer", "verb"])
        .join(numbered.drop("rank"), on=_KEYS, nulls_equal=True)
        .with_row_index("row")
        .with_columns(stage=pl.lit(None, pl.Int64))
    )
    peers = requested.join(find_nccl_peers(requested, numbered), on="row", how="left")
    if peers["peer_lane"].has_nulls():
        return nothing
    upstream = _find_upstream(
        peers, first_forwards.join(numbered.drop("rank"), on=_KEYS, nulls_equal=True), len(lanes)
    )
    if upstream is None:
        return nothing
    stage = _follow(upstream)
    if stage is None or not _connects_neighbours(peers, stage, upstream):
        return nothing
    return numbered.select(*_KEYS, stage=pl.Series(stage, dtype=pl.Int64))


def _find_upstream(peers: pl.DataFrame, first_forwards: pl.DataFrame, count: int) -> Int64s | None:
    """Find the lane that the first forwards of each lane receive from, -1 for none.

    None where its steps differ.
    """
    steps = np.bincount(first_forwards["lane"].to_numpy(), minlength=count)
    received = (
        first_forwards.join(
            peers.filter(pl.col("verb") == "receive"), on=["lane", "step"], suffix="_of_message"
        )
        .filter(pl.col("launch_ns") < pl.col("host_end_ns"), pl.col("end_ns") <= pl.col("start_ns"))
        .group_by("lane", "peer_lane")
        .agg(steps=pl.col("step").n_unique())
    )
    share = received["steps"].to_numpy() / steps[received["lane"].to_numpy()]
    often = received.filter(pl.Series(share >= _NEARLY_ALL))
    is_clear = ((share >= _NEARLY_ALL) | (share <= 1 - _NEARLY_ALL)).all()
    if not steps.all() or not is_clear or not often["lane"].is_unique().all():
        return None
    upstream = np.full(count, _NONE)
    upstream[often["lane"].to_numpy()] = often["peer_lane"].to_numpy()
    return upstream


def _follow(upstream: Int64s) -> Int64s | None:
    """Number the stages along the chains of lanes; None without chains of one length, of at least two lanes.

    >>> _follow(np.array([-1, 0, -1, 2])).tolist()
    [0, 1, 0, 1]
    >>> [_follow(np.array(lanes)) for lanes in ([-1, 0, -1], [1, 0], [-1, 0, 0], [-1, -1])]
    [None, None, None, None]
    """
    stage = np.zeros(len(upstream), dtype=np.int64)
    lane = upstream
    while (lane != _NONE).any():
        if stage.max() >= len(upstream):  # a circle
            return None
        stage += lane != _NONE
        lane = np.where(lane == _NONE, _NONE, upstream[lane])
    sizes = np.bincount(stage)
    has_branches = len(np.unique(upstream[upstream != _NONE])) < (upstream != _NONE).sum()
    if len(sizes) < 2 or has_branches or sizes.min() < sizes.max():
        return None
    return stage


def _connects_neighbours(peers: pl.DataFrame, stage: Int64s, upstream: Int64s) -> bool:
    """Whether each message is between neighbours of one chain.

    The last stage and the first one are neighbours, too.
    """
    first = np.arange(len(stage))
    for _ in range(int(stage.max())):
        first = np.where(upstream[first] == _NONE, first, upstream[first])
    lane, peer = peers["lane"].to_numpy(), peers["peer_lane"].to_numpy()
    apart = np.abs(stage[lane] - stage[peer])
    is_next = (apart == 1) | (apart == stage.max())
    return bool((is_next & (first[lane] == first[peer])).all())


def _sort_lanes(lanes: pl.DataFrame) -> pl.DataFrame:
    gpus = sorted(lanes["gpu"].drop_nulls().unique(), key=natural_key)
    gpu_order = pl.col("gpu").replace_strict(gpus, range(len(gpus)), default=None, return_dtype=pl.Int64)
    keys = ("stage", "replica", "tensor", "rank", "machine_order")
    return lanes.sort(*keys, gpu_order, "report", "process_key", "device_id", nulls_last=True).with_row_index(
        "lane"
    )


def _label_lanes(lanes: pl.DataFrame) -> pl.DataFrame:
    gpu = pl.concat_str("machine", "gpu", separator=" ", ignore_nulls=True)
    rank = pl.concat_str(pl.lit("rank "), "rank")
    process = pl.concat_str(pl.lit("process "), "pid")
    longer = (
        pl.concat_str(rank, "gpu", separator=", ", ignore_nulls=True),
        pl.concat_str(rank, gpu, process, separator=", ", ignore_nulls=True),
        pl.concat_str(
            rank, gpu, process, pl.concat_str(pl.lit("lane "), "lane"), separator=", ", ignore_nulls=True
        ),
    )
    labelled = lanes.with_columns(label=pl.coalesce(rank, gpu))
    for label in longer:
        labelled = labelled.with_columns(
            label=pl.when(pl.len().over("label") == 1).then("label").otherwise(label)
        )
    return labelled
