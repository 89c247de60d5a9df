"""The preset that a hint names, compared with plain loops over rules, ranges and kernels."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import nsys_pp
from fixtures.recording.export import write_report
from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.run.report_training import PresetHint, find_preset_hint
from nsys_pp.training.report.presets import list_presets
from nsys_pp.training.report.rule_choice import choose_rules, find_preset_readings
from tests.draws import count_draws

NAMES = (
    *(
        "forward_3",
        "backward_1",
        "optimizer",
        "forward-2",
        "backward1-3",
        "recv_forward1-2",
        "F5.1.0",
        "W2.0.0",
    ),
    *(
        "PP:2F0, op_id = 9",
        "Forward 3",
        "DistributedDataParallel.forward, op_id = 5",
        "[pl][profile]run_training_batch",
    ),
    *(
        "DeepSpeedEngine.forward",
        "DeepSpeedZeroOptimizer_Stage3.step",
        "{'name': 'forward_step'}",
        "actor_update",
    ),
    *(
        "gen",
        "old_log_prob",
        "update_critic",
        "MFSDP <root> forward",
        "megatron_policy_worker/train_microbatch",
    ),
    *(
        "Forward pass",
        "bwd",
        "Bwd step 4",
        "opt.step",
        "my forward thing",
        "Iteration 7",
        "load batch",
        "fprop 2",
    ),
    *("layer_4", "aten::mm", "ncclSend", "solve", "attention", "epoch 3", "Prefill", "total_time/token_4"),
)


def write_random(path: Path, random: Random) -> Path:
    """Write ranges without nesting, each with up to three kernels of one stream."""
    names = random.sample(NAMES, random.randint(1, 5))
    ranges: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    now = done = 0
    for _ in range(random.randint(1, 12)):
        start = now
        for _ in range(random.randint(0, 3)):
            number = len(calls) + 1
            calls.append({"start": now + 1, "end": now + 2, "correlation": number})
            begin = max(done, now + 3)
            done = begin + random.randint(1, 500)
            kernels.append({"start": begin, "end": done, "correlation": number, "name": "gemm"})
            now += 3
        ranges.append({"name": random.choice(names), "start": start, "end": now + 4})
        now += 5
    return write_report(path, ranges=ranges, api_calls=calls, kernels=kernels)


def read(path: Path) -> Report:
    return build_report(read_report(path, need=frozenset({"ranges", "ops", "communication"})))


def matches(pattern: str, name: str) -> bool:
    """Match a whole name; the expressions of presets have sets in sets, which Python lacks."""
    return bool(re.fullmatch(pattern.replace("[0-9A-Za-z_]", r"\w").replace("[0-9]", r"\d"), name))


def count_in_loops(report: Report) -> dict[str, tuple[int, int]]:
    """Return the GPU time and the number of ranges that each preset reads, if it reads a pass or a step of inference."""
    begun = dict(report.api_calls.select("correlation_id", "start_ns").rows())
    kernels = report.gpu_ops.select("correlation_id", "start_ns", "end_ns").rows()
    ranges = report.ranges.select(pl.col("name").cast(pl.String), "start_ns", "end_ns").rows()
    found = {}
    for preset in list_presets():
        is_plain = preset.name == "plain"
        rules = choose_rules(report.ranges, preset="plain").jobs if is_plain else preset.jobs
        if preset.is_inference:
            rules = tuple(rule for rule in preset.steps if rule.source == preset.name)
        gpu_ns, count, has_pass = 0, 0, preset.is_inference
        for name, start, end in ranges:
            rule = next((rule for rule in rules if not rule.domain and matches(rule.pattern, name)), None)
            if rule is None:
                continue
            has_pass |= rule.kind in ("forward", "backward", "forward_backward")
            count += 1
            gpu_ns += sum(until - since for key, since, until in kernels if start <= begun[key] < end)
        if has_pass and gpu_ns:
            found[preset.name] = (gpu_ns, count)
    return found


@pytest.mark.draws
def test_the_preset_that_reads_the_most_is_named(tmp_path: Path) -> None:
    outcomes = set()
    for seed in range(count_draws(60, least=5)):
        report = read(write_random(tmp_path / f"{seed}.sqlite", Random(seed)))
        expected = count_in_loops(report)
        hint = find_preset_hint(report, find_preset_readings(report.ranges))
        if hint is None:
            assert not expected
        else:
            assert expected[hint.preset] == (hint.gpu_ns, hint.range_count) == max(expected.values())
        outcomes.add(None if hint is None else hint.preset)
    assert {None, "plain"} < outcomes


def test_uncertain_names_by_hand_are_named_in_a_note_and_read_on_request(tmp_path: Path) -> None:
    calls = [{"start": 10 * at + 1, "end": 10 * at + 2, "correlation": at + 1} for at in range(6)]
    kernels = [{"start": 10 * at + 3, "end": 10 * at + 8, "correlation": at + 1} for at in range(6)]
    names = ["Forward pass", "mystery"] * 3
    ranges = [{"name": name, "start": 10 * at, "end": 10 * at + 9} for at, name in enumerate(names)]
    path = write_report(tmp_path / "r.sqlite", ranges=ranges, api_calls=calls, kernels=kernels)
    note = nsys_pp.pipeline(path).training.notes[0]
    assert "`--preset plain` would read the most GPU time (15 ns in 3 ranges)" in note
    jobs = nsys_pp.pipeline(path, preset="plain").training.jobs
    assert jobs["kind"].to_list() == ["forward"] * 3
    report = read(path)
    assert find_preset_hint(report, {}) is None
    unread = report.ranges.filter(pl.col("name").cast(pl.String) == "mystery")
    assert find_preset_readings(unread) == {}
    assert find_preset_hint(report, find_preset_readings(report.ranges)) == PresetHint(
        preset="plain", range_count=3, gpu_ns=15
    )


def test_a_note_says_that_no_preset_would_read_a_range(tmp_path: Path) -> None:
    path = write_report(
        tmp_path / "r.sqlite",
        ranges=[{"name": "solve", "start": 0, "end": 9}],
        api_calls=[{"start": 1, "end": 2, "correlation": 1}],
        kernels=[{"start": 3, "end": 8, "correlation": 1}],
    )
    assert "no preset would read one with GPU work" in nsys_pp.pipeline(path).training.notes[0]
