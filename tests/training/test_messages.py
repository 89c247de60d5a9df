"""What point-to-point kernels send and receive, against what the simulator knows of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsys_pp
from fixtures import simulate
from fixtures.recording.export import write_report
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import (
    FIRST_FORWARDS,
    MESSAGES,
    RUN_JOBS,
    RUN_MPI_MESSAGES,
    RUN_STEPS,
    TRANSFERS,
)
from nsys_pp.training.messages import pair_messages, pair_mpi_messages
from tests.sql import edit
from tests.training.expected_training import (
    SimulatedRun,
    expected_lanes,
    read_simulated_run,
    read_truth,
    survey,
)

SHORT = "--steps 2 --layers 1 --micro-batches 4 --brief-truth"


def find_messages_of(path: Path, *, with_requests: bool) -> pl.DataFrame:
    """Find the messages of a report, perhaps without the ranges of NCCL."""
    if not with_requests:
        domain = "SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND text = 'NCCL'"
        edit(path, f"DELETE FROM NVTX_EVENTS WHERE eventType = 59 AND domainId IN ({domain})")
    return survey(path).frames["messages"]


def true_messages(truth: dict[str, pl.DataFrame], report: str) -> pl.DataFrame:
    zero_ns = truth["clocks"].filter(report=report)["capture_utc_ns"].item()
    sides = [
        truth["messages"].select(
            report=f"{side}_report",
            verb=pl.lit(side),
            direction="kind",
            micro_batch="micro_batch",
            start_ns=pl.col(f"{side}_start_ns") - zero_ns,
            end_ns=pl.col(f"{side}_end_ns") - zero_ns,
        )
        for side in ("send", "receive")
    ]
    return pl.concat(sides).filter(report=report)


ORDER = ["start_ns", "end_ns", "verb"]


TOLD = ["start_ns", "end_ns", "verb", "direction", "micro_batch"]


@pytest.mark.few(4)
@pytest.mark.parametrize("with_requests", [True, False], ids=["NCCL's ranges", "names"])
@pytest.mark.parametrize("names", ["plain", "torch", "zero-bubble", "plain --grouped-messages"])
def test_every_kernel_tells_its_verb_direction_and_micro_batch(
    tmp_path: Path, names: str, with_requests: bool
) -> None:
    simulate.main([str(tmp_path), *SHORT.split(), "--pp", "3", "--machines", "3", "--names", *names.split()])
    truth = read_truth(tmp_path)
    for report in truth["clocks"]["report"]:
        found = find_messages_of(tmp_path / report, with_requests=with_requests)
        expected = true_messages(truth, report).sort(ORDER)
        assert found.schema == MESSAGES
        assert found["start_ns"].is_sorted()
        assert found["source"].cast(pl.String).unique().to_list() == ["NCCL" if with_requests else "name"]
        text = found.with_columns(pl.col("verb", "direction").cast(pl.String)).sort(ORDER)
        assert text.select(TOLD).equals(expected.select(TOLD))
        assert found["op_id"].is_duplicated().any() == ("--grouped-messages" in names)


def test_the_message_of_the_thread_around_a_launch_names_it(tmp_path: Path) -> None:
    ranges = [
        {"start": 0, "end": 1000, "name": "send_forward_7"},
        {"start": 10, "end": 100, "name": "layer"},
        {"start": 20, "end": 30, "name": "recv_backward_3"},
        {"start": 200, "end": 300, "name": "recv_backward_4"},
        {"start": 0, "end": 1000, "name": "recv_backward_9", "tid": 1001},
    ]
    at = {40: ("send", 7), 25: ("send", 7), 400: ("send", 7), 1500: (None, None)}
    calls = [{"start": start, "end": start + 2, "correlation": start} for start in at]
    kernels = [
        {"start": 2000 + start, "end": 2001 + start, "correlation": start, "name": "ncclDevKernel_SendRecv"}
        for start in at
    ]
    path = write_report(tmp_path / "r.sqlite", ranges=ranges, api_calls=calls, kernels=kernels)
    found = survey(path, preset="plain").frames["messages"]
    told = zip(found["start_ns"] - 2000, found["verb"].cast(pl.String), found["micro_batch"], strict=True)
    assert {start: (verb, micro_batch) for start, verb, micro_batch in told} == at


def test_pytorch_names_the_ranks_of_a_message(tmp_path: Path) -> None:
    names = ["nccl:send 3->1, op_id = 55", "nccl:recv 3<-0, op_id = 56", "nccl:send"]
    starts = [100 * number for number in range(len(names))]
    path = write_report(
        tmp_path / "r.sqlite",
        ranges=[
            {"start": start, "end": start + 50, "name": name}
            for start, name in zip(starts, names, strict=True)
        ],
        api_calls=[{"start": start + 5, "end": start + 9, "correlation": start + 1} for start in starts],
        kernels=[
            {
                "start": start + 20,
                "end": start + 30,
                "correlation": start + 1,
                "name": "ncclDevKernel_SendRecv",
            }
            for start in starts
        ],
    )
    found = survey(path, preset="torch").frames["messages"]
    assert found.select(pl.col("verb").cast(pl.String), "rank", "peer").rows() == [
        ("send", 3, 1),
        ("receive", 3, 0),
        ("send", None, None),
    ]


SMALL = "--steps 2 --layers 1 --pp 4 --micro-batches 8 --brief-truth"


MEGATRON = "--names megatron"


PAYLOAD = "--schema 3.25.0 --nccl-payload"


BUFFERED = "--buffered-bytes 100000000"


WINDOWS = "--window-ms 40 --steps 3"


def record_run(folder: Path, options: str) -> SimulatedRun:
    simulate.main([str(folder), *SMALL.split(), *options.split()])
    return read_simulated_run(folder)


def transfers_of(run: SimulatedRun) -> tuple[pl.DataFrame, list[str]]:
    return pair_messages(
        lanes=run.lanes, messages=run.messages, steps=steps_of(run), jobs=RUN_JOBS.to_frame()
    )


def steps_of(run: SimulatedRun) -> pl.DataFrame:
    return conform(run.steps, RUN_STEPS).sort("step", "lane")


def agrees_with_truth(run: SimulatedRun, found: pl.DataFrame, *, share: float = 1.0) -> bool:
    """Return whether all pairs are true, and at least a share of the true ones is found."""
    expected = true_transfers(run)
    text = found.with_columns(pl.col("direction").cast(pl.String)).select(expected.columns)
    is_true = (
        text.join(expected, on=expected.columns, how="anti").is_empty() and not text.is_duplicated().any()
    )
    return is_true and len(text) >= share * len(expected)


def true_transfers(run: SimulatedRun) -> pl.DataFrame:
    lane = dict(run.lanes.select("rank", "lane").iter_rows())
    return (
        run.truth["messages"]
        .drop_nulls(["send_correlation_id", "receive_correlation_id"])
        .select(
            sender=pl.col("sender").replace_strict(lane, return_dtype=pl.UInt32),
            receiver=pl.col("receiver").replace_strict(lane, return_dtype=pl.UInt32),
            direction="kind",
            send_start_ns="send_start_ns",
            send_end_ns="send_end_ns",
            receive_start_ns="receive_start_ns",
            receive_end_ns="receive_end_ns",
        )
    )


RUNS = {
    "peers told, ranks not": f"{MEGATRON} {PAYLOAD}",
    "peers and ranks told": f"{PAYLOAD} --init-communicators --tp 2 {MEGATRON}",
    "buffered": f"{MEGATRON} {BUFFERED}",
    "grouped": f"{MEGATRON} --grouped-messages",
    "captures differ": WINDOWS,
    "captures differ, buffered, no micro-batches": f"{MEGATRON} {WINDOWS} {BUFFERED}",
    "interleaved, free running": f"--schedule interleaved --free-running {MEGATRON}",
    "interleaved, buffered": f"--schedule interleaved {MEGATRON} {BUFFERED}",
    "interleaved, buffered, windows": f"--schedule interleaved {BUFFERED} {WINDOWS}",
    "folded": "--schedule dualpipev",
    "gpipe, grouped": "--schedule gpipe --grouped-messages",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_arrows_are_the_messages_of_which_both_sides_are_recorded(tmp_path: Path, options: str) -> None:
    run = record_run(tmp_path, options)
    found, _ = transfers_of(run)
    assert found.schema == TRANSFERS
    assert found["send_start_ns"].is_sorted()
    assert len(found) > 40
    assert agrees_with_truth(run, found)


WITHOUT_DIRECTIONS = {  # options of a run, and the least share of its pairs that are found
    "a line": ("", 0.97),
    "captures differ": (WINDOWS, 0.4),  # in steps that are cut, the order tells nothing
    "replicas, buffered": (f"--dp 2 {BUFFERED}", 0.97),
    "split backwards": ("--schedule zb-h1", 0.97),
    "gpipe, grouped": ("--schedule gpipe --grouped-messages", 0.97),
    "interleaved": ("--schedule interleaved", 0.97),
    "rings": ("--dp 2 --ring", 0.0),
}


def hide_names(messages: pl.DataFrame) -> pl.DataFrame:
    """Remove what names say of messages."""
    hidden = ("direction", "micro_batch", "chunk", "virtual_stage")
    return messages.with_columns(pl.lit(None, MESSAGES[name]).alias(name) for name in hidden)


@pytest.mark.few(2)
@pytest.mark.parametrize(("options", "share"), WITHOUT_DIRECTIONS.values(), ids=WITHOUT_DIRECTIONS)
def test_the_order_of_jobs_tells_directions_that_names_do_not(
    options: str, share: float, tmp_path: Path
) -> None:
    run = record_run(tmp_path, options)
    jobs = run.jobs
    if jobs["chunk"].n_unique() > 1:
        place = run.lanes.select("lane", place="stage")
        virtual = (len(place) * pl.col("chunk") + pl.col("place")).cast(pl.Int64).alias("virtual_stage")
        jobs = jobs.join(place, on="lane", maintain_order="left").with_columns(virtual).drop("place")
    found, _ = pair_messages(
        lanes=run.lanes, messages=hide_names(run.messages), steps=steps_of(run), jobs=jobs
    )
    assert agrees_with_truth(run, found, share=share)


@pytest.mark.parametrize("payload", ["", PAYLOAD])
def test_no_pair_of_a_fold_is_wrong_where_names_have_no_direction(payload: str, tmp_path: Path) -> None:
    run = record_run(tmp_path, f"--schedule dualpipev {BUFFERED} {payload}")
    found, _ = pair_messages(
        lanes=run.lanes, messages=hide_names(run.messages), steps=steps_of(run), jobs=run.jobs
    )
    true = true_transfers(run).drop("direction")
    assert found.select(true.columns).join(true, on=true.columns, how="anti").is_empty()


@pytest.mark.parametrize("options", ["", "--dp 2", f"--tp 2 {BUFFERED}"])
def test_names_with_ranks_name_the_peer(options: str, tmp_path: Path) -> None:
    """The ranks are those in the group of a pipeline, of which there are several."""
    run = record_run(tmp_path, options)
    is_onward = (pl.col("verb") == "send") == (pl.col("direction") == "forward")
    named = run.messages.join(run.lanes.select("lane", rank="stage"), on="lane").with_columns(
        rank="rank_right", peer=pl.col("rank_right") + pl.when(is_onward).then(1).otherwise(-1)
    )
    found, _ = pair_messages(
        lanes=run.lanes.with_columns(stage=pl.lit(None, pl.Int64)),
        messages=hide_names(named.select(run.messages.columns)),
        steps=steps_of(run),
        jobs=RUN_JOBS.to_frame(),
    )
    true = true_transfers(run).drop("direction")
    assert found.select(true.columns).sort(true.columns).equals(true.sort(true.columns))
    assert set(found["source"]) == {"named peer and order"}


@pytest.mark.parametrize("report", ["rich7420__mfu_2gpu_after", "GindaChen__mfu_2gpu_before"])
def test_two_gpus_that_exchange_with_nobody_else_are_peers(report: str, shared_reports: list[Path]) -> None:
    (path,) = [one for one in shared_reports if one.name.startswith(report)]
    training = nsys_pp.pipeline([path]).training
    assert sorted(training.transfers.select("sender", "receiver").unique().rows()) == [(0, 1), (1, 0)]
    assert not [note for note in training.notes if "sends and receives" in note]


def test_no_side_is_paired_across_a_missing_rank(tmp_path: Path) -> None:
    run = record_run(tmp_path, "--missing-ranks 1")
    found, notes = transfers_of(run)
    assert len(found) == len(true_transfers(run)) == 32
    assert notes == [
        "64 sends and receives have no known peer (1 rank of the run is missing), and are not paired"
    ]


@pytest.mark.parametrize(("are_stages_known", "buffered"), [(True, BUFFERED), (True, ""), (False, "")])
def test_where_the_layout_of_the_model_is_not_known_nothing_is_paired_at_random(
    are_stages_known: bool, buffered: str, tmp_path: Path
) -> None:
    """Names tell no parts of the model."""
    run = record_run(tmp_path, f"--schedule dualpipev {MEGATRON} {buffered}")
    unknown = [pl.lit(None, pl.Int64).alias(name) for name in ("stage", "replica", "tensor")]
    found, notes = transfers_of(
        run if are_stages_known else replace(run, lanes=run.lanes.with_columns(unknown))
    )
    assert found.is_empty()
    assert all("not paired" in note for note in notes)


def message(lane: int, verb: str | None, start: int, end: int) -> dict[str, object]:
    return {
        "lane": lane, "verb": verb, "start_ns": start, "end_ns": end, "direction": "forward", "op_id": start,
        "context_id": 1, "stream_id": 7, "micro_batch": 0,
    }  # fmt: skip


def pair(*messages: dict[str, object]) -> tuple[pl.DataFrame, list[str]]:
    places = {"rank": [0, 1], "stage": [0, 1], "replica": [0, 0], "tensor": [0, 0], "report": ["a", "b"]}
    lanes = expected_lanes(
        pl.DataFrame({**places, "pid": [1, 2], "device_id": [0, 0], "machine": ["m", "m"], "gpu": [0, 1]})
    )
    lanes = lanes.with_columns(bound_ns=pl.Series([300, 400]))
    own = {n: t for n, t in MESSAGES.items() if n not in ("process_key", "device_id")}
    frame = pl.DataFrame(list(messages), schema=build_schema({"lane": pl.UInt32, **own}))
    return pair_messages(lanes=lanes, messages=frame, steps=RUN_STEPS.to_frame(), jobs=RUN_JOBS.to_frame())


WAITS = {
    "the receiver waits": ((50, 100), (0, 101), (0, 50, 51, False)),
    "the sender waits": ((0, 100), (60, 101), (60, 0, 41, False)),
    "both begin together": ((5, 100), (5, 101), (0, 0, 96, False)),
    "the send was buffered": ((0, 20), (50, 101), (0, 0, 51, True)),
    "the send ends as the receive begins": ((0, 50), (50, 60), (50, 0, 10, False)),
}


@pytest.mark.parametrize(("send", "receive", "expected"), WAITS.values(), ids=WAITS)
def test_wait_is_what_lies_before_the_other_side(
    send: tuple[int, int], receive: tuple[int, int], expected: tuple[int, int, int, bool]
) -> None:
    found, notes = pair(message(0, "send", *send), message(1, "receive", *receive))
    row = found.select("send_wait_ns", "receive_wait_ns", "transfer_ns", "is_buffered", "bound_ns").row(0)
    assert (*row, notes) == (*expected, 700, [])


def test_one_message_that_both_sides_name_tells_how_many_are_missing() -> None:
    """The capture of the receiver is much shorter, and the sends are buffered."""
    sends = [message(0, "send", 100 * number, 100 * number + 5) for number in range(5)]
    rows = [*sends, message(1, "receive", 950, 960)]
    found, _ = pair(
        *(row | {"micro_batch": number} for row, number in zip(rows, [0, 1, 2, 3, 4, 3], strict=True))
    )
    assert found["send_start_ns"].to_list() == [300]


def test_wrong_neighbours_are_recognised_by_the_ends_of_their_messages(tmp_path: Path) -> None:
    """Three stages are said to follow each other, of which one is missing between the first two."""
    run = record_run(tmp_path, "--missing-ranks 1")
    dense = run.lanes.with_columns(stage=pl.col("lane").cast(pl.Int64))
    found, notes = transfers_of(replace(run, lanes=dense))
    assert (len(found), set(found.select("sender", "receiver").rows())) == (32, {(1, 2), (2, 1)})
    assert [note.partition(",")[0] for note in notes] == [
        "64 sends and receives end together with no presumed peer"
    ]


def test_a_peer_that_is_told_but_has_no_lane_leaves_its_messages_alone(tmp_path: Path) -> None:
    run = record_run(tmp_path, f"--missing-ranks 2 {PAYLOAD} --init-communicators")
    dense = run.lanes.with_columns(stage=pl.col("lane").cast(pl.Int64))
    found, notes = transfers_of(replace(run, lanes=dense))
    assert set(found.select("sender", "receiver").rows()) == {(0, 1), (1, 0)}
    assert len(found) == len(true_transfers(run)) == 32
    assert notes == ["64 sends and receives have no other side, or it is not recognised, and are not paired"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "share"),
    [
        ("--pp 2 --dp 2", 1.0),
        ("--schedule dualpipev --dp 2", 1.0),
        ("--pp 2 --tp 2 --sequence-parallel", 0.0),
        (f"--dp 2 {BUFFERED}", 0.0),
    ],
    ids=["replicas", "replicas, folded", "lockstep", "buffered"],
)
def test_of_several_lanes_the_one_whose_messages_end_together_is_the_peer_or_none(
    tmp_path: Path, options: str, share: float
) -> None:
    run = record_run(tmp_path, f"{options}")
    unknown = [pl.lit(None, pl.Int64).alias(name) for name in ("replica", "tensor")]
    found, notes = transfers_of(replace(run, lanes=run.lanes.with_columns(unknown)))
    assert agrees_with_truth(run, found, share=share)
    assert any("specify `--layout`" in note for note in notes) == (len(found) < len(true_transfers(run)))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "options", ["--schedule interleaved", "--schedule gpipe", f"--schedule 1f1b {MEGATRON}"]
)
def test_rings_between_replicas_are_no_messages_of_the_pipeline(options: str, tmp_path: Path) -> None:
    run = record_run(tmp_path, f"--pp 2 --dp 2 --ring {options}")
    assert agrees_with_truth(run, transfers_of(run)[0])


@pytest.mark.parametrize("bound_ns", [None, 50_000_000])
def test_two_ranks_exchange_all_messages_though_stages_and_clocks_are_unknown(
    bound_ns: int | None, tmp_path: Path
) -> None:
    run = record_run(tmp_path, f"--pp 2 --schedule interleaved {BUFFERED}")
    unknown = {name: pl.lit(None, pl.Int64) for name in ("stage", "replica", "tensor")}
    lanes = run.lanes.with_columns(bound_ns=pl.lit(bound_ns, pl.Int64), **unknown)
    found, notes = transfers_of(replace(run, lanes=lanes))
    assert agrees_with_truth(run, found)
    assert set(found["source"]) == {"only peer and order"}
    assert not notes
    assert transfers_of(replace(run, lanes=lanes.with_columns(rank=pl.col("rank") * 2)))[0].is_empty()


@pytest.mark.parametrize(("stages", "is_right"), [([0, 1, 2, 3], True), ([0, 2, 1, 3], False)])
def test_stages_that_first_forwards_imply_are_compared_with_the_ends_of_messages(
    stages: list[int], is_right: bool, tmp_path: Path
) -> None:
    run = record_run(tmp_path, f"{MEGATRON}")
    stage = pl.Series("stage", stages, pl.Int64)
    lanes = run.lanes.sort("lane").with_columns(stage, stage_source=pl.lit(FIRST_FORWARDS))
    found, _ = transfers_of(replace(run, lanes=lanes))
    assert agrees_with_truth(run, found, share=float(is_right))


def test_clocks_that_are_wrong_by_more_than_their_bounds_make_pairs_doubtful(tmp_path: Path) -> None:
    run = record_run(tmp_path, f"--pp 2 {MEGATRON}")
    late = pl.when(pl.col("lane") == 1).then(5_000_000).otherwise(0)
    moved = run.messages.with_columns(pl.col("start_ns", "end_ns", "launch_ns") + late)
    lanes = run.lanes.with_columns(bound_ns=pl.lit(1_000, pl.Int64))
    found, notes = transfers_of(replace(run, lanes=lanes, messages=moved))
    assert len(found) == len(true_transfers(run))
    assert found["doubtful"].cast(pl.String).to_list() == ["clocks"] * len(found)
    assert len(notes) == 1


RANKS = 3


SENDS = st.lists(  # sender, receiver, tag, order of arrival
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 2), st.integers(0, 9)), max_size=12
)


RECEIVES = st.lists(  # receiver, sender, tag (None: any), time
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([0, 1, 2, 0, 1, 2, None]),
        st.sampled_from([1, 2, 1, 2, None]),
        st.integers(0, 30),
    ),
    max_size=12,
)


Send = tuple[int, int, int, int]


Receive = tuple[int, int | None, int | None, int]


def message_mpi_pairs(
    rank: int, *, is_send: bool, peer: int | None, tag: int | None, start: int, **more: object
) -> dict[str, object]:
    row = {"process_key": rank, "thread_key": rank, "name": "MPI_Isend" if is_send else "MPI_Irecv"}
    row |= {
        "communicator": "all 3",
        "rank": rank,
        "member_count": RANKS,
        "size_bytes": 8,
        "has_size": is_send,
    }
    row |= {"start_ns": start, "end_ns": 1000, "report": rank}
    row |= {"is_whole": True, "process_row": "CPU", "clock": rank, "clock_group": 0, "bound_ns": 5}
    return {**row, "is_send": is_send, "peer": peer, "tag": tag, **more}


def pair_mpi_pairs(rows: list[dict[str, object]]) -> pl.DataFrame:
    columns = {name: [row[name] for row in rows] for name in RUN_MPI_MESSAGES.names()}
    return pair_mpi_messages(pl.DataFrame(columns, schema=dict(RUN_MPI_MESSAGES)))


def match(sends: list[Send], receives: list[Receive]) -> dict[int, int]:
    """Match messages as MPI does, in an order of arrival that keeps those of two ranks in order."""
    order = sorted(
        range(len(sends)), key=lambda at: max(one[3] for one in sends[: at + 1] if one[:2] == sends[at][:2])
    )
    posted = sorted(range(len(receives)), key=lambda at: (receives[at][3], at))
    events = [(3 * position, "arrival", at) for position, at in enumerate(order)]
    events += [(receives[at][3], "receive", at) for at in posted]
    waiting: list[int] = []
    open_receives: list[int] = []
    found: dict[int, int] = {}

    def fits(send: int, receive: int) -> bool:
        sender, receiver, tag, _ = sends[send]
        wanted = receives[receive]
        return receiver == wanted[0] and wanted[1] in (None, sender) and wanted[2] in (None, tag)

    for _, kind, at in sorted(events, key=lambda event: event[0]):
        if kind == "arrival":
            other = next((receive for receive in open_receives if fits(at, receive)), None)
            if other is None:
                waiting.append(at)
            else:
                open_receives.remove(other)
                found[at] = other
        else:
            other = next((send for send in waiting if fits(send, at)), None)
            if other is None:
                open_receives.append(at)
            else:
                waiting.remove(other)
                found[other] = at
    return found


@settings(deadline=None, max_examples=150)
@given(SENDS, RECEIVES)
def test_pairs_are_those_of_the_standard(sends: list[Send], receives: list[Receive]) -> None:
    rows = [
        message_mpi_pairs(sender, is_send=True, peer=receiver, tag=tag, start=at)
        for at, (sender, receiver, tag, _) in enumerate(sends)
    ]
    rows += [
        message_mpi_pairs(receiver, is_send=False, peer=sender, tag=tag, start=time)
        for receiver, sender, tag, time in receives
    ]
    rows += [
        message_mpi_pairs(rank, is_send=True, peer=rank, tag=9, start=0) for rank in range(RANKS)
    ]  # all are there
    pairs = pair_mpi_pairs(rows)
    found = {
        send: other - len(sends)
        for send, other in enumerate(pairs["other"][: len(sends)])
        if other is not None
    }
    truth = match(sends, receives)
    assert found.items() <= truth.items()
    if all(None not in one for one in receives):
        assert found == truth
    other = pairs["other"].to_list()
    assert all(other[to] == at for at, to in enumerate(other) if to is not None)
    assert all((to is None) == (why is not None) for to, why in pairs.select("other", "unpaired").iter_rows())


_SEND = message_mpi_pairs(0, is_send=True, peer=1, tag=1, start=100)
_RECEIVE = message_mpi_pairs(1, is_send=False, peer=0, tag=1, start=100)
_ANY = [
    message_mpi_pairs(0, is_send=True, peer=1, tag=3, start=5),
    message_mpi_pairs(2, is_send=True, peer=0, tag=1, start=5),
    message_mpi_pairs(1, is_send=False, peer=None, tag=None, start=1),
]
# messages, then the other side of each, or why it has none
MPI_PAIRS: dict[str, tuple[list[dict[str, object]], list[int | str | None]]] = {
    "any sender: the only one": (_ANY, [2, "no counterpart", 0]),
    "any sender: one rank has no report": (
        [{**row, "member_count": 4} for row in _ANY],
        ["no counterpart", "no counterpart", "any sender or tag"],
    ),
    "too small": ([_SEND, {**_RECEIVE, "size_bytes": 4}], ["sizes or times that do not fit"] * 2),
    "too early": ([_SEND, {**_RECEIVE, "end_ns": 89}], ["sizes or times that do not fit"] * 2),
    "early within the bounds of both clocks": ([_SEND, {**_RECEIVE, "end_ns": 90}], [1, 0]),
    "a recording of a part": ([{**_SEND, "is_whole": False}, _RECEIVE], [1, 0]),
    "a recording of a part, with other counts": (
        [{**_SEND, "is_whole": False, "start_ns": 99}, {**_SEND, "is_whole": False}, _RECEIVE],
        ["different counts"] * 3,
    ),
    "several threads": (
        [_SEND, {**_SEND, "start_ns": 101, "thread_key": 77}, _RECEIVE],
        ["several threads"] * 3,
    ),
    "a rank of two processes": (
        [_SEND, _RECEIVE, {**_RECEIVE, "report": 2, "process_key": 9}],
        ["a rank with several processes"] * 3,
    ),
    "no communicator": ([{**_SEND, "communicator": None}], ["unknown communicator"]),
    "clocks": ([_SEND, {**_RECEIVE, "clock_group": 1}], ["clocks that cannot be compared"] * 2),
}


@pytest.mark.parametrize(("rows", "expected"), MPI_PAIRS.values(), ids=MPI_PAIRS)
def test_mpi_messages_have_their_other_side_or_a_reason(
    rows: list[dict[str, object]], expected: list[int | str | None]
) -> None:
    assert pair_mpi_pairs(rows).select(
        pl.coalesce(pl.col("other", "unpaired").cast(pl.String))
    ).to_series().to_list() == [str(one) for one in expected]
