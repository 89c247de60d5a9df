"""What programs mark themselves: read by the preset that is taken without a word, recorded by the real nsys."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest

import nsys_pp
from nsys_pp import capture
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.training.names import choose_rules, name_jobs, name_steps
from tests import recording
from tests.importer import Importer, assert_no_errors, slices_by_track
from tests.training.test_names import ranges_of

PROGRAM = """
import sys, time
from nsys_pp import capture

@capture.forward_step
def forward(chunk): time.sleep(0.001)
def backward(chunk): time.sleep(0.002)
backward = capture.backward_step(backward, chunk=lambda chunk: chunk)

capture.profile_steps(2, 4, exit_after="exit" in sys.argv)
for number in range(6):
    with capture.step(number):
        for micro_batch in range(2):
            forward(0)
        for chunk in (1, 0):
            backward(chunk)
        with capture.job("optimizer"):
            time.sleep(0.001)
print("the end")
"""
STEP = ["forward_0", "forward_1", "backward_0_chunk_1", "backward_0_chunk_0", "optimizer"]
ON_RANGE = ["--capture-range=nvtx", "--nvtx-capture=capture", "--capture-range-end=stop"]
UNREGISTERED = "NSYS_NVTX_PROFILER_REGISTER_ONLY=0"  # or nsys sees no range of Python's as a border


def test_every_name_is_read_by_the_preset_that_is_found() -> None:
    numbered = capture.KINDS[: capture.KINDS.index("optimizer")]
    told: dict[str, tuple[int | None, int | None]] = {
        capture.name_job(kind): (None, None) for kind in capture.KINDS
    }
    told |= {capture.name_job(kind, 3): (3, None) for kind in numbered}
    told |= {
        capture.name_job(kind, micro, chunk): (micro, chunk)
        for kind, micro, chunk in product(numbered, (0, 12), (0, 1))
    }
    ranges = ranges_of(*told, "step_0", "step_17")
    rules = choose_rules(ranges, preset=None, job_patterns=(), step_patterns=())
    assert rules.name == "plain"
    jobs = name_jobs(ranges, rules).select("name", "micro_batch", "chunk").rows()
    assert {name: (micro, chunk) for name, micro, chunk in jobs} == told
    assert name_steps(ranges, rules)["step"].to_list() == [0, 17]


def test_an_overlapped_forward_and_backward_are_both_read() -> None:
    name = capture.name_job("forward", 4, 0, backward=(1, 1))
    assert name == "forward_4_chunk_0_backward_1_chunk_1"
    ranges = ranges_of("forward_0", "backward_0", name)
    jobs = name_jobs(ranges, choose_rules(ranges, preset=None, job_patterns=(), step_patterns=()))
    columns = ("kind", "micro_batch", "chunk", "backward_micro_batch", "backward_chunk")
    assert jobs.select(columns).row(-1) == ("forward_backward", 4, 0, 1, 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            partial(capture.name_job, "forwards"),
            "invalid kind of job 'forwards'; expected one of forward, backward",
        ),
        *(
            (partial(capture.name_job, kind, 3), f"{kind!r} has no micro-batches")
            for kind in capture.KINDS[capture.KINDS.index("optimizer") :]
        ),
        (partial(capture.name_job, "forward", chunk=3), "a chunk needs a micro-batch"),
        (partial(capture.name_job, "backward", 3, backward=(1,)), "only a forward overlaps"),
        (partial(capture.profile_steps, 3, 3), r"empty interval of steps \[3, 3\)"),
    ],
)
def test_what_cannot_be_named_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def run(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NVTX_INJECTION64_PATH"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_profiler_nothing_is_imported_and_everything_runs() -> None:
    code = PROGRAM + "print(sorted({'nvtx', 'numpy', 'polars', 'torch'} & set(sys.modules)))"
    done = run(code, "exit")
    assert (done.stdout, done.stderr, done.returncode) == ("the end\n[]\n", "", 0)


def test_a_missing_package_is_told_once_and_the_program_runs_on() -> None:
    hidden = "import sys; sys.modules['nvtx'] = None\n"
    done = run(hidden + PROGRAM, NVTX_INJECTION64_PATH="/nowhere/lib.so")
    assert done.stdout == "the end\n"
    assert done.stderr.count("neither PyTorch nor the package `nvtx`") == 1


def record(nsys: str, folder: Path, options: list[str], *arguments: str) -> tuple[Path, str]:
    printed = recording.record(
        nsys,
        folder,
        ["-t", "nvtx", "--sample=none", "--cpuctxsw=none", *options],
        ["-c", PROGRAM, *arguments],
        environ={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    return folder / "run.nsys-rep", printed


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "arguments", "steps"),
    [
        ([*ON_RANGE, "-e", UNREGISTERED], [], [2, 3]),
        ([], [], [0, 1, 2, 3, 4, 5]),
        ([], ["exit"], [0, 1, 2, 3]),
    ],
    ids=["capture range", "all", "exit after the last step"],
)
def test_the_real_nsys_records_what_is_marked(
    nsys: str,
    tmp_path: Path,
    importer: Importer,
    options: list[str],
    arguments: list[str],
    steps: list[int],
) -> None:
    report, said = record(nsys, tmp_path, options, *arguments)
    assert "capture:" not in said
    assert ("the end" in said) == (len(steps) == 6 or bool(options))
    ranges = build_report(read_report(report, need=frozenset({"ranges"}), nsys=nsys)).ranges.sort("start_ns")
    rules = choose_rules(ranges, preset=None, job_patterns=(), step_patterns=())
    assert rules.name == "plain"
    assert name_steps(ranges, rules)["step"].to_list() == steps
    assert name_jobs(ranges, rules).sort("start_ns")["name"].to_list() == STEP * len(steps)
    trace = tmp_path / "run.pftrace"
    nsys_pp.merge([report], trace, detail="cpu", nsys=nsys)
    importer.load(trace)
    assert_no_errors(importer)
    drawn = slices_by_track(importer)["name"].to_list()
    assert sorted(name for name in drawn if name in STEP) == sorted(STEP * len(steps))
    assert drawn.count("capture") == 1


@pytest.mark.skipif(
    shutil.which("cc") is None, reason="no C compiler to make a CUDA runtime that only counts"
)
def test_the_loaded_cuda_runtime_is_told_when_to_record(tmp_path: Path) -> None:
    source = tmp_path / "cudart.c"
    source.write_text(
        '#include <stdio.h>\nint cudaProfilerStart(void) { puts("on"); return fflush(stdout); }\n'
        'int cudaProfilerStop(void) { puts("off"); return fflush(stdout); }\n'
    )
    library = tmp_path / "libcudart.so.12"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    code = f"""
import ctypes, sys
ctypes.CDLL({str(library)!r})
sys.modules['nvtx'] = None
from nsys_pp import capture
capture.profile_steps(1, 3)
for number in range(4):
    with capture.step(number):
        print(number, flush=True)
"""
    profiled = run(code, NVTX_INJECTION64_PATH="/nowhere/lib.so")
    assert profiled.stdout.split() == ["0", "on", "1", "2", "off", "3"]
    assert run(code).stdout.split() == ["0", "1", "2", "3"]


def test_a_step_that_fails_ends_the_capture(tmp_path: Path) -> None:
    code = """
import sys
sys.modules['nvtx'] = None
from nsys_pp import capture
capture._call_profiler = print
capture.profile_steps(0, 3, exit_after=True)
with capture.step(0):
    raise RuntimeError("lost")
"""
    done = run(code, NVTX_INJECTION64_PATH="/nowhere/lib.so")
    assert done.stdout.split() == ["Start", "Stop"]
    assert "RuntimeError: lost" in done.stderr


def test_the_options_that_the_page_tells_are_those_of_nsys(nsys: str) -> None:
    page = (Path(__file__).parents[1] / "docs" / "capture.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [
        line for block in blocks for line in block.replace("\\\n", " ").splitlines() if "nsys profile" in line
    ]
    told = {
        option for line in lines for option in re.findall(r"(?<=\s)--[a-z-]+", line.split("nsys profile")[1])
    }
    told -= {"--nproc-per-node", "--devices"}  # of the programs that nsys starts
    assert len(lines) > 6
    done = subprocess.run([nsys, "profile", "--help"], capture_output=True, text=True, check=True)
    assert told - set(re.findall(r"--[a-z-]+", done.stdout)) == set()
