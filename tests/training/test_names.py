"""Which names are jobs and steps: every preset, the choice among them, users' rules, jobs within jobs."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.aggregates import NAMED_OPERATORS
from nsys_pp.frames.report import RANGES
from nsys_pp.frames.training import JOB_KINDS
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.training.names import (
    HALVES,
    NAMED_JOBS,
    Rules,
    choose_rules,
    list_presets,
    load_preset,
    name_jobs,
    name_operators,
    name_steps,
    parse_step_rule,
    split_names,
)
from tests.training.expected_training import fill_columns, read_events
from tests.training.hand_programs import PROGRAMS, NamedRange, parse_program


def ranges_of(*names: str | None, domain: str | None = None, category: str | None = None) -> pl.DataFrame:
    frame = pl.DataFrame({"name": names}, schema={"name": pl.String}).with_columns(
        range_id=pl.int_range(pl.len()),
        kind=pl.lit("push_pop"),
        process_key=1,
        thread_key=1,
        start_ns=10 * pl.int_range(pl.len()),
        end_ns=10 * pl.int_range(pl.len()) + 9,
        is_open=False,
        domain=pl.lit(domain),
        category=pl.lit(category),
    )
    return fill_columns(frame, RANGES)


def told(preset: str, name: str) -> dict[str, object]:
    """Return what a preset says of one name: kind and what else is not null."""
    rules = choose_rules(ranges_of(), preset=preset)
    columns = [name for name in NAMED_JOBS if name not in RANGES or name == "kind"]
    for row in name_jobs(ranges_of(name, domain="TSL"), rules).select(columns).iter_rows(named=True):
        return {key: value for key, value in row.items() if value is not None}
    return {}


_CORE = "megatron.core.pipeline_parallel."
_ACTIVATIONS, _GRADIENTS = {"direction": "forward"}, {"direction": "backward"}


@pytest.mark.parametrize(
    ("preset", "name", "kind", "facts"),
    [
        ("plain", "forward", "forward", {}),
        ("plain", "backward_3", "backward", {"micro_batch": 3}),
        ("plain", "weight_3_chunk_1", "weight_gradient", {"micro_batch": 3, "chunk": 1}),
        ("plain", "recompute", "recompute", {}),
        ("plain", "optimizer", "optimizer", {}),
        ("plain", "recv_backward_3", "receive", {"micro_batch": 3, **_GRADIENTS}),
        ("plain", "send_forward_3_chunk_0_recv_backward_1_chunk_0", "send_receive", {}),
        (
            "plain",
            "forward_3_chunk_1_backward_1_chunk_0",
            "forward_backward",
            {"micro_batch": 3, "chunk": 1, "backward_micro_batch": 1, "backward_chunk": 0},
        ),
        ("plain", "next_batch", "data", {}),
        ("plain", "zero_grad", "other", {}),
        ("paddle", "forward", "forward", {}),
        ("paddle", "forward1", "forward", {"chunk": 1}),
        ("paddle", "backward_b0", "backward", {"chunk": 0}),
        ("paddle", "backward_w1", "weight_gradient", {"chunk": 1}),
        ("paddle", "F3", "forward", {"micro_batch": 3}),
        ("paddle", "B12_VP1", "backward", {"micro_batch": 12, "chunk": 1}),
        ("paddle", "lr", "other", {}),
        ("paddle", "send_backward_recv_forward", "send_receive", {}),
        ("megatron", f"{_CORE}schedules.forward_step", "forward", {}),
        ("megatron", "forward_step_mb3_chunk1", "forward", {"micro_batch": 3, "chunk": 1}),
        ("megatron", f"{_CORE}p2p_communication.recv_forward", "receive", _ACTIVATIONS),
        ("megatron", f"{_CORE}p2p_communication.P2PCommunicator.send_backward", "send", _GRADIENTS),
        (
            "megatron",
            f"{_CORE}p2p_communication.send_forward_backward_recv_forward_backward",
            "send_receive",
            {},
        ),
        ("megatron", f"{_CORE}p2p_communication.send_forward_recv_backward", "send_receive", {}),
        ("megatron", "layer_3f-layer_7b", "forward_backward", {}),
        ("megatron", "mlp wgrad", "weight_gradient", {}),
        ("megatron", "megatron.core.optimizer.distrib_optimizer.DistributedOptimizer.step", "optimizer", {}),
        ("megatron", "megatron.core.distributed.finalize_model_grads.finalize_model_grads", "other", {}),
        ("torch", "PP:2F0", "forward", {"virtual_stage": 2, "micro_batch": 0}),
        ("torch", "PP:2I11, op_id = 5", "backward", {"virtual_stage": 2, "micro_batch": 11}),
        ("torch", "PP:2W3", "weight_gradient", {"virtual_stage": 2, "micro_batch": 3}),
        ("torch", "PP:2SEND_F3", "send", {"virtual_stage": 2, "micro_batch": 3, **_ACTIVATIONS}),
        ("torch", "PP:2UNSHARD", "other", {"virtual_stage": 2}),
        ("torch", "Forward 5", "forward", {"micro_batch": 5}),
        ("torch", "Optimizer.step#AdamW.step", "optimizer", {}),
        ("zero-bubble", "W_clear.1.7", "weight_gradient", {"chunk": 1}),
        ("zero-bubble", "R3.1.7", "recompute", {"micro_batch": 3, "chunk": 1}),
        ("zero-bubble", "SEND_FORWARD.3.1.0_RECV_BACKWARD.2.1.0", "send_receive", {}),
        ("deepspeed", "_exec_forward_pass", "forward", {}),
        ("deepspeed", "PipelineEngine._exec_recv_grads", "receive", _GRADIENTS),
        ("deepspeed", "PipelineEngine._exec_load_micro_batch", "data", {}),
        ("jax", "Thunk:#name=/jit(step)/transpose(jvp(Model))/dot_general,hlo_op=fusion.3#", "backward", {}),
        ("jax", "Thunk:#name=/jit(step)/jvp(Model)/dot_general,hlo_op=fusion.3#", "forward", {}),
        ("jax", "XlaModule:#hlo_module=jit_f,program_id=3#", "other", {}),
        ("msprof", "{'name': 'backward_step', 'current_microbatch': 3}", "backward", {"micro_batch": 3}),
        ("msprof", "{'name': 'WeightGradStore.pop'}", "weight_gradient", {}),
        ("msprof", '{"name": "forward_step_no_model_graph", "x": 1}', "forward", {}),
        ("rl", "actor_rollout_compute_log_prob", "forward", {"role": "actor"}),
        ("rl", "update_critic", "other", {"role": "critic"}),
    ],
)
def test_presets_read_names(preset: str, name: str, kind: str, facts: dict[str, object]) -> None:
    assert told(preset, name) == {"kind": kind, **facts}


@pytest.mark.parametrize(
    ("preset", "name"),
    [
        ("plain", "forwarding_3"),
        ("plain", "poolformer_forward"),
        ("plain", "my forward_3"),
        ("plain", "prefetch_batch"),
        ("paddle", "F3x"),
        ("megatron", f"{_CORE}schedules.forward_backward_pipelining_without_interleaving"),
        ("torch", "PP:2X0"),
        ("zero-bubble", "F3.1"),
        ("msprof", "{'name': 'relu', 'args': []}"),
        ("jax", "Thunk:#name=/jit(step)/add,hlo_op=fusion.3#"),
    ],
)
def test_presets_leave_other_names_alone(preset: str, name: str) -> None:
    assert told(preset, name) == {}


@pytest.mark.parametrize(
    ("preset", "name", "step"),
    [
        ("plain", "step_10", 10),
        ("paddle", "10", 10),
        ("megatron", "training_step_7", 7),
        ("torch", "ProfilerStep#3, op_id = 4", 3),
        ("zero-bubble", "iter_3_10", 10),
        ("deepspeed", "PipelineEngine.train_batch", None),
        ("jax", "XlaModule:#hlo_module=jit_train_step,program_id=3#", None),
        ("msprof", "ProfilerStep#3", 3),
        ("megatron", "Iteration 12", 12),  # of any program
    ],
)
def test_presets_read_steps(preset: str, name: str, step: int | None) -> None:
    steps = name_steps(ranges_of(name, "layer_3"), choose_rules(ranges_of(), preset=preset))
    assert steps.select("name", "step", "is_numbered").rows() == [(name, step, step is not None)]


def test_presets_of_real_reports(shared_reports: list[Path]) -> None:
    assert len(shared_reports) > 10
    for path in shared_reports:
        expected = (
            "plain" if path.name.startswith(("NERSC__4gpu", "openhackathons-org__baseline_nvtx")) else ""
        )
        assert choose_rules(read_events(path).ranges).name == expected, path.name


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("1", "2", "3"),
        ("forward",) * 9,
        ("update",) * 9,
        ("backward",) * 3,
        ("forward_0",) * 5,
        ("optimizer", "step_1", "step_2"),
        ("ProfilerStep#1", "ProfilerStep#2", "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"),
        ("aten::linear", "autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0, seq = 3"),
        ("F16", "F32", "cudnnConvolutionForward", "Backward"),
        ("gen", "ref", "values", "step"),
        ("model.forward.layer_0", "model.forward.layer_1", "model.backward.layer_0"),
    ],
)
def test_few_names_by_accident_fit_no_preset(names: tuple[str, ...]) -> None:
    assert choose_rules(ranges_of(*names)) == Rules()


@pytest.mark.parametrize(
    ("names", "preset"),
    [
        (("forward", "backward", "optimizer", "step 3"), "plain"),
        (("F0", "F1", "B0", "B1"), "paddle"),
        (("F0_VP0", "F0_VP1"), "paddle"),
        (("lr", "forward", "backward"), "paddle"),
        ((f"{_CORE}p2p_communication.recv_forward", f"{_CORE}p2p_communication.send_backward"), "megatron"),
        (("Forward 0", "Backward 0"), "torch"),
        (("XlaModule:#hlo_module=jit_train_step,program_id=1#", "Thunk:#name=a/jvp(b)/c,hlo_op=d#"), "jax"),
        (("generate_sequences", "update_actor", "compute_log_prob"), "rl"),
        # rollouts of a training stay jobs
        (("vllm_genertion_worker/generate", "megatron_policy_worker/train", "execute_new_0_cached_5"), "rl"),
    ],
)
def test_names_of_real_programs_are_told_apart(names: tuple[str, ...], preset: str) -> None:
    assert choose_rules(ranges_of(*names)).name == preset


def test_the_preset_that_names_the_most_ranges_comes_first() -> None:
    names = [*[f"PP:0F{at}" for at in range(6)], *[f"forward_{at}" for at in range(2)]]
    rules = choose_rules(ranges_of(*names))
    assert (rules.name, rules.share, rules.others) == ("torch", 6 / 8, ("plain",))
    title = load_preset("torch").title
    assert rules.describe() == f"preset `torch` ({title}): 75 % of what looks like jobs; then `plain`"


def test_all_presets_are_well_formed(tmp_path: Path) -> None:
    presets = {preset.name: preset for preset in list_presets()}
    assert set(presets) == {
        "deepspeed",
        "fastertransformer",
        "jax",
        "lightning",
        "megatron",
        "megatron-inference",
        "msprof",
        "paddle",
        "plain",
        "rl",
        "sglang",
        "tensorrt-llm",
        "torch",
        "triton",
        "vllm",
        "zero-bubble",
    }
    folder = Path(load_preset.__code__.co_filename).parent / "presets"
    for name, preset in presets.items():
        assert preset.title
        assert preset.signs
        copy = tmp_path / f"{name}.toml"  # a user's file is checked, one of ours is not
        copy.write_bytes((folder / f"{name}.toml").read_bytes())
        copied = load_preset(str(copy))
        assert (copied.jobs, copied.steps) == (preset.jobs, preset.steps)


def test_patterns_of_users_come_first() -> None:
    rules = choose_rules(
        ranges_of("forward_1", "forward_2", "fwd 7", "mystery", "epoch 4"),
        job_patterns=["backward=forward_1", r"forward=fwd (?P<micro_batch>\d+)", "mystery"],
        step_patterns=[r"epoch (\d+)"],
    )
    assert rules.name == "plain"
    ranges = ranges_of("forward_1", "forward_2", "fwd 7", "mystery", "epoch 4")
    assert name_jobs(ranges, rules).select("kind", "micro_batch").rows() == [
        ("backward", None),
        ("forward", 2),
        ("forward", 7),
        ("other", None),
    ]
    assert name_steps(ranges, rules).select("name", "step").rows() == [("epoch 4", 4)]


def test_a_group_tells_the_kind() -> None:
    ranges = ranges_of("do forward", "do optimizer", "do nothing")
    rules = choose_rules(ranges, job_patterns=["do (?P<kind>.*)"])
    assert name_jobs(ranges, rules)["kind"].to_list() == ["forward", "optimizer", "other"]


@pytest.mark.parametrize(
    ("pattern", "name", "step"),
    [
        (r"(?:epoch|era) (\d+) of (\d+)", "epoch 4 of 9", 4),
        (r"(\w+) (?P<step>\d+)", "epoch 4", 4),
        ("epoch", "epoch", None),
        ("epoch (.*)", "epoch four", None),
    ],
)
def test_the_first_group_is_the_number_of_a_step(pattern: str, name: str, step: int | None) -> None:
    ranges = ranges_of(name)
    assert name_steps(ranges, choose_rules(ranges, step_patterns=[pattern]))["step"].to_list() == [step]


def test_rules_may_ask_for_a_domain_and_a_category(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "title = 'mine'\n[[job]]\nkind = 'forward'\npattern = 'a'\ndomain = 'App.*'\ncategory = 'work'\n"
        "[[job]]\nkind = 'backward'\nrole = 'critic'\npattern = '.*'\ndomain = 'App'\n"
    )
    rules = choose_rules(ranges_of(), preset=str(path))
    assert (rules.name, rules.title) == (str(path), "mine")
    assert name_jobs(ranges_of("a", domain="Apple", category="work"), rules)["kind"].to_list() == ["forward"]
    other = name_jobs(ranges_of("a", domain="App"), rules)
    assert other.select("kind", "role").rows() == [("backward", "critic")]
    assert name_jobs(ranges_of("a"), rules).is_empty()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[job]\n", "is not TOML"),
        ("[[job]]\nkind = 'forward'\npattern = ''\n", "job rule 1 has an empty expression"),
        ("titel = 'x'\n", "unknown key `titel`"),
        ("job = 3\n", "`job` is not a list of rules"),
        ("[[job]]\nkind = 'forward'\n", "job rule 1 has no `pattern`"),
        ("[[job]]\npattern = 'a'\n", "job rule 1 has no `kind`"),
        ("[[job]]\nkind = 'fwd'\npattern = 'a'\n", "job rule 1 has the unknown kind `fwd`"),
        (
            "[[job]]\nkind = 'send'\npattern = 'a'\n"
            "[[job]]\nkind = 'send'\ndirection = 'up'\npattern = 'b'\n",
            "job rule 2 has the unknown direction `up`",
        ),
        ("[[job]]\nkind = 'send'\npattern = 3\n", "job rule 1: `pattern` is not text"),
        (
            "[[job]]\nkind = 'send'\npattern = 'a'\ncolour = 'red'\n",
            "job rule 1 has the unknown key `colour`",
        ),
        ("[[job]]\nkind = 'send'\npattern = '(?P<batch>.)'\n", "job rule 1 has the unknown group `batch`"),
        ("[[step]]\npattern = '(?P<chunck>.)'\n", "step rule 1 has the unknown group `chunck`"),
        ("[[step]]\npattern = '(?=a)b'\n", "step rule 1: invalid regular expression"),
        ("[[job]]\nkind = 'send'\npattern = 'a'\ndomain = '('\n", "job rule 1: invalid regular expression"),
        ("suffix = 3\n", "`suffix` is not text"),
    ],
)
def test_errors_name_the_file_the_rule_and_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(NsysPPError) as error:
        load_preset(str(path))
    assert error.value.message.startswith(f"`{path}`")
    assert message in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("megatorn", "megatron"),
        ("x" * 300, ""),  # too long for a file
    ],
)
def test_unknown_presets_are_an_error(name: str, hint: str) -> None:
    with pytest.raises(NsysPPError, match="neither a preset nor a file") as error:
        load_preset(name)
    assert hint in (error.value.hint or "")


def test_a_group_inside_a_class_is_none() -> None:
    assert parse_step_rule("[(?P<step>x]+").groups == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"job_patterns": ["forward=("]},
            "`--job-pattern forward=(`: invalid regular expression `(`: unclosed group",
        ),
        (
            {"step_patterns": ["[a"]},
            "`--step-pattern [a`: invalid regular expression `[a`: unclosed character class",
        ),
        (
            {"job_patterns": ["forward=(?<=x)y"]},
            "`--job-pattern forward=(?<=x)y`: invalid regular expression `(?<=x)y`:"
            " look-around, including look-ahead and look-behind, is not supported",
        ),
        (
            {"job_patterns": ["a)(b"]},
            "`--job-pattern a)(b`: invalid regular expression `a)(b`: unopened group",
        ),
        (
            {"job_patterns": ["x{2000}{2000}"]},
            "`--job-pattern x{2000}{2000}`: invalid regular expression `x{2000}{2000}`:"
            " Compiled regex exceeds size limit of 10485760 bytes",
        ),
        ({"job_patterns": [""]}, "`--job-pattern ` has an empty expression"),
        ({"job_patterns": ["forward="]}, "`--job-pattern forward=` has an empty expression"),
        ({"step_patterns": [""]}, "`--step-pattern ` has an empty expression"),
        ({"job_patterns": ["foo=bar"]}, "`--job-pattern foo=bar`: invalid kind `foo`"),
        ({"job_patterns": ["fwd=forward_(..)"]}, "`--job-pattern fwd=forward_(..)`: invalid kind `fwd`"),
    ],
)
def test_wrong_expressions_of_users_are_an_error(words: dict[str, Sequence[str]], message: str) -> None:
    with pytest.raises(NsysPPError) as error:
        choose_rules(ranges_of(), **words)  # type: ignore[arg-type]
    assert error.value.message == message
    assert error.value.hint


def test_a_word_that_is_no_kind_gets_the_kinds_for_a_hint() -> None:
    with pytest.raises(NsysPPError) as error:
        choose_rules(ranges_of(), job_patterns=["mode=.*"])
    assert all(kind in (error.value.hint or "") for kind in JOB_KINDS)
    assert "`other=mode=.*`" in (error.value.hint or "")
    ranges = ranges_of("mode=train")
    assert len(name_jobs(ranges, choose_rules(ranges, job_patterns=["other=mode=.*"]))) == 1


def test_patterns_that_match_no_name_are_told() -> None:
    ranges = ranges_of("fwd_0", "fwd_1", "epoch 1")
    assert choose_rules(
        ranges,
        job_patterns=["forward=fwd_typo", r"forward=fwd_(?P<micro_batch>\d+)", "fwd"],
        step_patterns=[r"epoch (\d+)", r"era (\d+)"],
    ).unmatched == (
        "--job-pattern forward=fwd_typo",
        "--job-pattern fwd",
        r"--step-pattern era (\d+)",
    )
    assert choose_rules(ranges_of(), job_patterns=["x"]).unmatched == ("--job-pattern x",)
    assert choose_rules(ranges_of("x"), preset="plain", job_patterns=["x"]).unmatched == ()
    assert choose_rules(ranges).unmatched == ()


def test_names_that_count_up_are_steps_where_there_are_jobs() -> None:
    ranges = ranges_of("5", "6", "7")
    assert name_steps(ranges, Rules()).is_empty()
    rules = choose_rules(ranges, preset="plain")
    assert name_steps(ranges, rules)["step"].to_list() == [5, 6, 7]
    assert name_steps(ranges_of("5", "6"), rules).is_empty()
    assert name_steps(ranges_of("5", "7", "6"), rules).is_empty()
    assert name_steps(ranges_of("5", "6", "7", "step_1"), rules)["step"].to_list() == [1]


def job_ranges(*rows: tuple[str, int, int], thread: int = 1) -> pl.DataFrame:
    names = ranges_of(*(row[0] for row in rows))
    return names.with_columns(
        start_ns=pl.Series([row[1] for row in rows], dtype=pl.Int64),
        end_ns=pl.Series([row[2] for row in rows], dtype=pl.Int64),
        thread_key=pl.lit(thread, pl.Int64),
    )


def placed(ranges: pl.DataFrame) -> list[tuple[str, int | None]]:
    jobs = name_jobs(ranges, choose_rules(ranges, preset="plain"))
    assert jobs.schema == NAMED_JOBS
    return jobs.select("name", "outer_id").rows()


def test_what_another_thread_does_for_a_backward_lies_within_it() -> None:
    main = job_ranges(("backward_1", 0, 100), ("backward_2", 100, 200))
    elsewhere = job_ranges(
        ("recompute", 110, 150), ("recompute", 210, 250), ("forward_2", 160, 170), thread=2
    )
    assert placed(pl.concat([main, elsewhere.with_columns(pl.col("range_id") + 2)])) == [
        ("backward_1", None),
        ("backward_2", None),
        ("recompute", 1),
        ("recompute", None),
        ("forward_2", None),
    ]


def test_ranges_across_threads_and_data_stand_alone() -> None:
    ranges = job_ranges(
        ("forward_1", 0, 100), ("optimizer", 10, 20), ("next_batch", 30, 90), ("send_forward_1", 40, 50)
    )
    moved = ranges.with_columns(end_thread_key=pl.when(pl.col("range_id") == 0).then(pl.lit(5, pl.Int64)))
    assert [outer for _, outer in placed(moved)] == [None] * 4
    assert [outer for _, outer in placed(ranges)] == [None, 0, None, 0]


KINDS = {"forward_1": "forward", "backward_1": "backward", "optimizer": "optimizer", "send_forward_1": "send"}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 12), st.integers(0, 8), st.integers(1, 2)),
        max_size=12,
    )
)
def test_outer_jobs_equal_their_definition(rows: list[tuple[str, int, int, int]]) -> None:
    ranges = job_ranges(*((name, start, start + length) for name, start, length, _ in rows))
    ranges = ranges.with_columns(thread_key=pl.Series([row[3] for row in rows], dtype=pl.Int64))
    spans = [(start, start + length, thread) for _, start, length, thread in rows]
    kinds = [KINDS[row[0]] for row in rows]

    def holds(outer: int, inner: int) -> bool:
        (since, until, thread), (start, end, other) = spans[outer], spans[inner]
        same = (since, until) == (start, end)
        return thread == other and since <= start and end <= until and (outer < inner if same else True)

    def parent(row: int) -> int | None:
        around = [other for other in range(len(rows)) if other != row and holds(other, row)]
        # the innermost starts last; of those, ends first; of equal ones, it is the later row
        return max(around, key=lambda one: (spans[one][0], -spans[one][1], one), default=None)

    def line(row: int) -> list[int]:
        above = parent(row)
        return [] if above is None else [above, *line(above)]

    def is_dropped(row: int) -> bool:
        above = line(row)
        return bool(above) and (kinds[above[0]] == kinds[row] or any(kinds[one] == "send" for one in above))

    expected = [
        (row, next((one for one in line(row) if not is_dropped(one)), None))
        for row in range(len(rows))
        if not is_dropped(row)
    ]
    jobs = name_jobs(ranges, choose_rules(ranges, preset="plain"))
    assert jobs.select("range_id", "outer_id").rows() == expected


_IDS = ("micro_batch", "chunk", "virtual_stage")


def _read_rows() -> list[dict[str, str]]:
    with Path(__file__).with_name("framework_names.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


ROWS = _read_rows()
FRAMEWORKS = {
    program: [row for row in ROWS if row["program"] == program]
    for program in dict.fromkeys(row["program"] for row in ROWS)
}


def _build_ranges(rows: list[dict[str, str]]) -> pl.DataFrame:
    """Build a report with each name once, one after the other."""
    domains = pl.Series([row["domain"] or None for row in rows], dtype=pl.String)
    return ranges_of(*(row["name"] for row in rows)).with_columns(domain=domains.cast(RANGES["domain"]))


def _read_names(rows: list[dict[str, str]]) -> list[dict[str, object]]:
    """Return what the package reads in the names of one report."""
    ranges = _build_ranges(rows)
    rules = choose_rules(ranges)
    read: list[dict[str, object]] = [{"kind": "none"} for _ in rows]
    jobs = name_jobs(ranges, rules)
    for at, facts in zip(jobs["range_id"], jobs.select("kind", *_IDS, "role").to_dicts(), strict=True):
        read[at] = {key: value for key, value in facts.items() if value is not None}
    for at, step in name_steps(ranges, rules).select("range_id", "step").iter_rows():
        assert read[at]["kind"] in ("none", "other")  # a program of JAX is both
        read[at] = {"kind": "step"} if step is None else {"kind": "step", "step": step}
    return read


def _expect(row: dict[str, str]) -> dict[str, object]:
    kind = "none" if row["kind"] == "phase" else row["kind"]
    numbers = {key: int(row[key]) for key in ("step", *_IDS) if row[key]}
    return {"kind": kind, **numbers, **({"role": row["role"]} if row["role"] else {})}


@pytest.mark.parametrize("program", FRAMEWORKS)
def test_names_of_a_program_are_read_as_its_source_says(program: str) -> None:
    rows = FRAMEWORKS[program]
    assert not [
        (row["name"], read, _expect(row))
        for row, read in zip(rows, _read_names(rows), strict=True)
        if read != _expect(row)
    ]


def read_program(program: list[NamedRange]) -> dict[str, str]:
    """Return the meaning that the package finds for each name of a program."""
    ranges = job_ranges(*((each.name, each.start, each.end) for each in program))
    rules = choose_rules(ranges)
    jobs = name_jobs(ranges, rules).select("name", "kind").rows()
    steps = name_steps(ranges, rules)["name"].to_list()
    return {str(name): str(kind) for name, kind in jobs} | {str(name): "step" for name in steps}


def test_most_names_of_other_loops_are_read_and_none_is_misread() -> None:
    right: dict[tuple[str, str], bool] = {}  # by program and name without numbers
    for program, text in PROGRAMS.items():
        ranges = parse_program(text)
        read = read_program(ranges)
        for name, meaning in dict.fromkeys((each.name, each.meaning) for each in ranges):
            assert read.get(name, meaning) == meaning, (program, name)
            right[program, re.sub("[0-9]+", "#", name)] = read.get(name, "none") == meaning
    assert sum(right.values()) / len(right) >= 0.8


P2P = "megatron.core.pipeline_parallel.p2p_communication"
FORWARD, BACKWARD = "forward", "backward"
# preset and name -> direction, micro-batch, chunk and virtual stage of the send, then of the receive
NAMES = {
    ("plain", "forward_3"): None,
    ("plain", "send_forward_3"): None,
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


@pytest.mark.parametrize(("preset", "name"), NAMES)
def test_both_halves_have_their_direction_and_ids(preset: str, name: str) -> None:
    rules = Rules(jobs=load_preset(preset).jobs)
    found = split_names(name_jobs(ranges_of(name), rules), rules)
    assert found.schema == HALVES
    expected = NAMES[preset, name]
    text = found.select(pl.col("^.*_direction$").cast(pl.String), pl.exclude("^.*_direction$"))
    columns = [column for column in HALVES if column != "name"]
    assert text.select(columns).rows() == ([] if expected is None else [expected])


NAMES_OPERATORS = {
    # name of a range -> the operator, and whether it is communication
    "aten::addmm, seq = 12, op_id = 34": ("aten::addmm", False),
    "aten::relu_": ("aten::relu_", False),
    "AddmmBackward0, seq = 5, op_id = 9": ("AddmmBackward0", False),
    "autograd::engine::evaluate_function: AddmmBackward0, op_id = 3": (
        "autograd::engine::evaluate_function: AddmmBackward0",
        False,
    ),
    "c10d::allreduce_, seq = 1, op_id = 2, sizes = [[4, 4], []]": ("c10d::allreduce_", True),
    "nccl:all_reduce": ("nccl:all_reduce", True),
    "matmul dygraph": ("matmul dygraph", False),
    "c_allreduce_sum compute": ("c_allreduce_sum compute", True),
    "MatmulGradNode grad_node": ("MatmulGradNode grad_node", False),
    "MatmulGradNode": ("MatmulGradNode", False),
    "GradNodeAccumulation": ("GradNodeAccumulation", False),
    "pd_op.layer_norm_grad": ("pd_op.layer_norm_grad", False),
    "matmul_v2": ("matmul_v2", False),
    "elementwise_add_grad": ("elementwise_add_grad", False),
    "c_allreduce_sum": ("c_allreduce_sum", True),
    "send_v2": ("send_v2", True),
    "pd_op.all_reduce": ("pd_op.all_reduce", True),
    "c_identity": ("c_identity", False),
    "Thunk:#name=jit(f)/add,hlo_op=loop_add_fusion.12#": ("loop_add_fusion", False),
    "TSL:Thunk:#hlo_op=all-reduce-start.3.1#": ("all-reduce-start", True),
    "ncclAllGather": (None, True),
}


def test_operators_are_named_without_what_tells_only_calls_apart() -> None:
    ranges = ranges_of(*NAMES_OPERATORS).with_columns(pl.col("range_id") + 7)
    found = name_operators(ranges)
    assert found.schema == NAMED_OPERATORS
    assert (
        dict(zip(NAMES_OPERATORS, found.select("name", "is_communication").rows(), strict=True))
        == NAMES_OPERATORS
    )
    assert found["range_id"].to_list() == ranges["range_id"].to_list()


def test_other_ranges_are_no_operators() -> None:
    names = ("ExpressionEvaluator::evaluate", "forward 3", "step_2", "relu", "model_v2", "aten", "ncclx")
    assert name_operators(ranges_of(*names, "broadcast weights", None)).is_empty()
    assert name_operators(ranges_of()).schema == NAMED_OPERATORS


def test_whatever_stands_in_the_domain_of_nccl_is_communication() -> None:
    assert name_operators(ranges_of("anything", None, domain="NCCL")).rows() == [(0, None, True)]
    assert name_operators(ranges_of("anything", domain="NCCL2")).is_empty()


@pytest.mark.parametrize(
    ("report", "operators", "names"),
    [("GindaChen__mfu_2gpu_before", 18656, 200), ("MohanadOdema__nsys_profile", 67, 40)],
)
def test_real_recordings_of_pytorch_have_few_names_of_operators(
    report: str, operators: int, names: int, shared_reports: list[Path]
) -> None:
    (path,) = [one for one in shared_reports if one.name.startswith(report)]
    found = name_operators(build_report(read_report(path, need=frozenset({"ranges"}), nsys=None)).ranges)
    assert found["name"].count() == operators
    assert not found["name"].cast(pl.String).str.contains(r"seq = |op_id = ").any()
    assert found["name"].n_unique() < names
