"""Halves of ranges that send and receive, by the names of the frameworks."""

from __future__ import annotations

import polars as pl
import pytest

from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import RANGES
from nsys_pp.training.names import HALVES, Rules, name_jobs, split_names
from nsys_pp.training.rules import load_preset

P2P = "megatron.core.pipeline_parallel.p2p_communication"
FORWARD, BACKWARD = "forward", "backward"
# preset and name -> direction, micro-batch, chunk and virtual stage of the send, then of the receive
NAMES = {
    ("plain", "send_forward_3_recv_backward_1"): (FORWARD, 3, None, None, BACKWARD, 1, None, None),
    ("plain", "recv_forward_4_chunk_1_send_backward_0_chunk_0"): (BACKWARD, 0, 0, None, FORWARD, 4, 1, None),
    ("megatron", f"{P2P}.send_forward_recv_backward"): (FORWARD, *3 * [None], BACKWARD, *3 * [None]),
    ("megatron", f"{P2P}.send_forward_recv_forward"): (FORWARD, *3 * [None], FORWARD, *3 * [None]),
    ("megatron", f"{P2P}.send_forward_backward_recv_forward_backward"): None,
    ("torch", "PP:0SEND_F3_PP:0RECV_B1"): (FORWARD, 3, None, 0, BACKWARD, 1, None, 0),
    ("zero-bubble", "SEND_FORWARD.3.0.0_RECV_BACKWARD.1.0.0"): (FORWARD, 3, 0, None, BACKWARD, 1, 0, None),
    ("zero-bubble", "pre_send"): None,
    ("deepspeed", "PipelineEngine._exec_send_grads_PipelineEngine._exec_recv_activations"): (
        *(BACKWARD, *3 * [None]),
        *(FORWARD, *3 * [None]),
    ),
    ("paddle", "send_forward_recv_backward"): (FORWARD, *3 * [None], BACKWARD, *3 * [None]),
}


def split(preset: str, *names: str) -> pl.DataFrame:
    rows = pl.DataFrame({"name": names, "range_id": range(len(names))}).with_columns(
        start_ns=10 * pl.col("range_id"),
        end_ns=10 * pl.col("range_id") + 5,
        thread_key=pl.lit(1),
        process_key=pl.lit(1),
    )
    ranges = conform(pl.concat([RANGES.to_frame(), rows], how="diagonal_relaxed"), RANGES)
    rules = Rules(jobs=load_preset(preset).jobs)
    return split_names(name_jobs(ranges, rules), rules)


@pytest.mark.parametrize(("preset", "name"), NAMES)
def test_both_halves_have_their_direction_and_ids(preset: str, name: str) -> None:
    found = split(preset, name)
    assert found.schema == HALVES
    expected = NAMES[preset, name]
    text = found.select(pl.col("^.*_direction$").cast(pl.String), pl.exclude("^.*_direction$"))
    columns = [column for column in HALVES if column != "name"]
    assert text.select(columns).rows() == ([] if expected is None else [expected])


def test_other_names_have_no_halves() -> None:
    assert split("plain", "send_forward_3", "forward_3").is_empty()
