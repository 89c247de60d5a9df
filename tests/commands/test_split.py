"""A run as several traces: together they hold what one trace holds, and the index counts right."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from msgspec.structs import replace

import nsys_pp
from fixtures import simulate
from fixtures.recording.export import Session, write_report
from fixtures.serving.reports import write_reports
from fixtures.serving.simulate import draw_serving, serve
from nsys_pp.errors import OptionError, OutputError, ReportError
from nsys_pp.frames.verdict import Verdict
from nsys_pp.options import Detail
from nsys_pp.output.split_index import is_split_folder
from nsys_pp.output.tables.text import clean
from tests.cli.calls import PIPELINE, REPORTS, succeed
from tests.importer import Importer, assert_no_errors, slices_by_machine

PAIR = REPORTS[1:3]  # of two machines
EPOCH = 1_790_000_000_000_000_000
NASTY = "../../<img src=x onerror=alert(1)>\"'&\\ con:*?|\u202e😀"


def rows(importer: Importer, trace: Path) -> Counter[tuple[Any, ...]]:
    """Count the slices of a trace, each with its row and its arguments; a trace is valid."""
    slices = slices_by_machine(importer, trace)
    assert_no_errors(importer)
    columns = slices.select("path", "ts", "dur", "name").rows()
    return Counter(
        (*row, json.dumps(args, sort_keys=True)) for row, args in zip(columns, slices["args"], strict=True)
    )


def union(counters: Iterable[Counter[tuple[Any, ...]]]) -> Counter[tuple[Any, ...]]:
    every: Counter[tuple[Any, ...]] = Counter()
    for counter in counters:
        every |= counter
    return every


def unmarked(path: Path, *, host: str, rank: int, threads: int = 1) -> Path:
    """A report without jobs: nested ranges around kernels."""
    pid = 1000 + rank
    return write_report(
        path,
        session=Session(
            duration_ns=90_000,
            pid=pid,
            hostname=host,
            utc_epoch_ns=EPOCH + rank,
            environment={"RANK": str(rank)},
        ),
        ranges=[
            {"start": at, "end": 50_000 - at, "name": f"level {at}", "pid": pid}
            for at in range(1, 10 * threads)
        ],
        api_calls=[{"start": 20_000, "end": 20_500, "pid": pid}],
        kernels=[{"start": 30_000, "end": 90_001, "correlation": 1, "name": "gemm", "pid": pid}],
    )


@pytest.mark.filterwarnings("ignore:of 4 ranks")
@pytest.mark.few(1)
@pytest.mark.parametrize(("split", "detail"), [("machine", "kernels"), ("rank", "cpu"), ("step", "kernels")])
def test_the_pieces_hold_what_one_trace_holds(
    split: Any, detail: Any, tmp_path: Path, importer: Importer
) -> None:
    (tmp_path / "one").mkdir()
    one, jobs, run = (
        tmp_path / "one" / "run.pftrace",
        tmp_path / "one" / "run.jobs",
        tmp_path / "run.pftrace",
    )
    nsys_pp.merge(PAIR, one, detail=detail, split="none")
    nsys_pp.merge(PAIR, jobs, detail="jobs", split="none")
    divided = nsys_pp.merge(PAIR, run, detail=detail, split=split, max_events=2_500)
    assert len(divided.files) == {"machine": 2, "rank": 2, "step": 3}[split]
    overview = rows(importer, run)
    assert overview == rows(importer, jobs)
    pieces = [rows(importer, file.path) for file in divided.files]
    whole = rows(importer, one)
    assert union([overview, *pieces]) == whole
    of_run = Counter({row: count for row, count in whole.items() if row[0].startswith("pipeline/")})
    if split == "step":
        assert union(pieces) == whole
    else:  # rows of the run are in the overview alone, all others in one piece
        assert sum(pieces, Counter()) == whole - of_run
    for file, piece in zip(divided.files, pieces, strict=True):
        marks = sum(
            "/marks " in row[0] for row in piece.elements()
        )  # slices without a length, to the importer
        assert file.slice_count == sum(piece.values()) - marks
        assert file.size_bytes == file.path.stat().st_size
        ranks = {int(found) for row in piece for found in re.findall(r"/rank (\d)", row[0])}
        assert ranks == set(file.ranks)
        if split == "machine":
            assert {row[0].split("/")[0] for row in piece} == set(file.machines) == {file.title}


@pytest.mark.filterwarnings("ignore:of 4 ranks")
@pytest.mark.few(1)
@pytest.mark.parametrize("split", ["machine", "rank"])
def test_parts_are_divided_as_their_reports(split: Any, tmp_path: Path) -> None:
    parts = [part.output for part in nsys_pp.extract(PAIR, tmp_path / "parts").parts]
    written = []
    for name, inputs in [("a", PAIR), ("b", parts)]:
        folder = tmp_path / name
        folder.mkdir()
        assert nsys_pp.merge(inputs, folder / "run.pftrace", split=split).split == split
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        written.append({path.relative_to(folder): path.read_bytes() for path in files})
    assert written[0] == written[1]
    with pytest.raises(ReportError, match="`--split step` cannot be had from it"):
        nsys_pp.merge(parts, tmp_path / "step.pftrace", split="step")
    assert not (tmp_path / "step.traces").exists()


def test_hostile_names_are_safe(tmp_path: Path, importer: Importer) -> None:
    hosts = [NASTY, "CON", "con", "a/b", "a\\b", "." * 5]
    reports = [unmarked(tmp_path / f"{n}.sqlite", host=host, rank=n) for n, host in enumerate(hosts)]
    folder = tmp_path / "out"
    folder.mkdir()
    done = nsys_pp.merge(reports, folder / "<b>&.pftrace", split="machine", clock="utc")
    assert {path.name for path in folder.iterdir()} == {"<b>&.pftrace", "<b>&.traces"}
    names = [file.path.name for file in done.files]
    assert len({name.lower() for name in names}) == len(hosts)
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*\.pftrace", name) for name in names)
    assert done.index is not None
    page = done.index.read_text()
    assert "<img" not in page
    assert "<b>" not in page
    assert "\u202e" not in page
    for file in done.files:
        assert html.escape(clean(file.title)) in page
        assert rows(importer, file.path)
    links = [unquote(html.unescape(link)) for link in re.findall(r'href="([^"]*)"', page)]
    assert links == ["../<b>&.pftrace", *names]
    assert all((done.index.parent / link).is_file() for link in links)


def test_the_index_lists_right_counts(tmp_path: Path) -> None:
    done = succeed(
        "merge", PIPELINE, "-o", tmp_path / "run.pftrace", "--split", "rank", "--result", tmp_path / "r.json"
    )
    files = nsys_pp.merge(PIPELINE, tmp_path / "b.pftrace", split="rank").files
    page = (tmp_path / "run.traces" / "index.html").read_text()
    table = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line) for line in re.findall(r"<tr>(.*)</tr>", page)]
    assert table[0] == ["Trace", "Machines", "Ranks", "Steps", "Slices", "Size"]
    assert [line[1:5] for line in table[2:]] == [
        [file.machines[0], str(file.ranks[0]), "10-12", f"{file.slice_count:,}"] for file in files
    ]
    assert [file.ranks for file in files] == [(0,), (1,), (2,), (3,)]
    assert "http" not in re.sub(r"https://ui\.perfetto\.dev", "", page)
    assert "<script" not in page
    outputs = json.loads((tmp_path / "r.json").read_text())["outputs"]
    assert [Path(output["path"]).name for output in outputs] == [
        *("run.pftrace", "index.html"),
        *(file.path.name for file in files),
    ]
    assert all(output["bytes"] == Path(output["path"]).stat().st_size for output in outputs)
    closing = next(line for line in reversed(done.stderr.splitlines()) if line.startswith("Wrote "))
    assert closing.startswith(f"Wrote {tmp_path / 'run.traces'} (")
    assert "4 traces, one per rank" in closing
    assert str(tmp_path / "run.traces" / "index.html") in closing


@pytest.mark.filterwarnings("ignore:of 4 ranks")
def test_outputs_are_replaced_with_force_only(tmp_path: Path) -> None:
    run, folder = tmp_path / "run.pftrace", tmp_path / "run.traces"
    nsys_pp.merge(PAIR, run, split="rank")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    run.unlink()
    for options in ({"split": "machine"}, {"max_events": 1}):
        with pytest.raises(OutputError, match=r"run\.traces` exists"):
            nsys_pp.merge(PAIR, run, **options)
        assert not run.exists()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    nsys_pp.merge(PAIR, run, split="machine", force=True)
    assert sorted(path.name for path in folder.iterdir()) == ["index.html", "node10.pftrace", "node2.pftrace"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.pftrace", "run.traces"]


@pytest.mark.filterwarnings("ignore:of 4 ranks")
def test_a_folder_of_others_is_never_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "run.traces"
    nsys_pp.merge(PAIR, tmp_path / "run.pftrace", split="machine")
    (folder / "thesis.txt").write_text("mine")
    assert not is_split_folder(folder)
    with pytest.raises(OutputError, match="did not write it"):
        nsys_pp.merge(PAIR, tmp_path / "run.pftrace", split="machine", force=True)
    assert (folder / "thesis.txt").read_text() == "mine"
    shutil.rmtree(folder)
    folder.write_text("a file")
    with pytest.raises(OutputError, match="did not write it"):
        nsys_pp.merge(PAIR, tmp_path / "run.pftrace", split="machine", force=True)


@pytest.mark.filterwarnings("ignore:of 4 ranks")
def test_a_division_needs_perfetto_and_steps(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="needs Perfetto's format"):
        nsys_pp.merge(PAIR, tmp_path / "run.json", split="rank")
    report = write_report(tmp_path / "0.sqlite", ranges=[{"start": 1, "end": 9, "name": "host"}])
    with pytest.raises(ReportError, match="needs steps"):
        nsys_pp.merge(report, tmp_path / "run.pftrace", split="step", detail="cpu")
    assert nsys_pp.merge(PAIR, tmp_path / "run.json", max_events=1).split == "none"


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("options", [{"devices": {0}}, {"steps": "11:12"}, {"start_ns": 200_000_000}])
def test_a_part_of_the_run_is_divided_alike(
    options: dict[str, Any], tmp_path: Path, importer: Importer
) -> None:
    (tmp_path / "one").mkdir()
    one = tmp_path / "one" / "run.pftrace"
    nsys_pp.merge(PIPELINE, one, split="none", **options)
    for split in ("machine", "rank", "step"):
        run = tmp_path / split / "run.pftrace"
        run.parent.mkdir()
        divided = nsys_pp.merge(PIPELINE, run, split=split, max_events=3_000, **options)
        assert union(rows(importer, path) for path in (run, *(file.path for file in divided.files))) == rows(
            importer, one
        )


RUNS = {
    "a stage with more kernels": "--pp 4 --dp 1 --stage-costs 1,1,1,1.15",
    "a slow rank, in all families": "--pp 2 --dp 2 --slow-rank 1=1.3",
    "a slow rank, in whole graphs": "--pp 2 --dp 2 --slow-rank 1=1.3 --graphs graph --schema 3.25.0",
}


def merge(folder: Path, inputs: Path, detail: Detail) -> Verdict:
    return nsys_pp.merge(inputs, folder / "run.pftrace", detail=detail, force=True).verdict


@pytest.mark.few(1)
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("detail", ["jobs", "kernels"])
def test_slow_ranks_and_stages_are_those_of_a_pipeline(run: str, detail: Detail, tmp_path: Path) -> None:
    """Their gain and confidence depend on kernels: more of them, or whole graphs, which may hold waits."""
    options = f"{RUNS[run]} --steps 4 --micro-batches 3 --layers 1 --no-truth"
    simulate.main([str(tmp_path / "run"), *options.split()])
    expected = nsys_pp.pipeline(tmp_path / "run").verdict
    assert "straggler" in {finding.kind for finding in expected.findings}
    assert merge(tmp_path, tmp_path / "run", detail) == expected


def test_waits_of_a_server_are_no_work_of_its_host(tmp_path: Path) -> None:
    """They are in calls of the operating system, which a trace does not show."""
    serving = draw_serving(18_600_007, engine="sglang-spans")
    write_reports(tmp_path / "run", serving, serve(serving, 18_600_007))
    expected = nsys_pp.pipeline(tmp_path / "run").verdict
    assert "idle" in {finding.kind for finding in expected.findings}
    found = merge(tmp_path, tmp_path / "run", "kernels")  # a stall has no range there
    assert [replace(one, text="", call=None) for one in found.findings] == [
        replace(one, text="", call=None) for one in expected.findings
    ]
