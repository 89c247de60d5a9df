"""The site builds without a warning, and its pages agree with the code."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from nsys_pp.cli import main
from nsys_pp.frames.report import RANGES
from nsys_pp.frames.training import BUBBLE_CAUSES
from nsys_pp.tables.registry import SUMMARY_TABLES
from nsys_pp.tables.registry import TABLES as PIPELINE_TABLES
from nsys_pp.training.names import choose_rules, name_jobs, name_steps
from tests.training.test_names import ranges_of
from website.reference import format_commands, format_tables

# MyST reads attributes of Sphinx that a later version removes.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in ("DeprecationWarning", "PendingDeprecationWarning")
]
ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    from website.build import build_site

    assert build_site(tmp_path) == []
    for page in (
        "index",
        "docs/bubbles",
        "docs/frameworks",
        "docs/reference/nsys-pp-merge",
        "docs/zh/guide",
    ):
        assert (tmp_path / "html" / f"{page}.html").is_file()
    assert "docs/reference/tables.html" in (tmp_path / "html" / "index.html").read_text()


def test_broken_links_and_unlisted_pages_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    from website import build

    def write_sources(folder: Path) -> None:
        folder.mkdir()
        (folder / "index.md").write_text(
            "# A page\n\n[gone](gone.md), [no heading](#nothing), [an address](http://example.org/x)\n"
        )
        (folder / "unlisted.md").write_text("# Another page\n")

    monkeypatch.setattr(build, "write_sources", write_sources)
    problems = "\n".join(build.build_site(tmp_path))
    for expected in ("gone.md", "nothing", "http://example.org/x", "unlisted.md"):
        assert expected in problems


def test_the_reference_has_every_option() -> None:
    pages = format_commands()
    assert set(pages) == set(main.commands)
    for name, command in main.commands.items():
        for param in command.params:
            for option in param.opts if param.param_type_name == "option" else []:
                assert option in pages[name], (name, option)


def test_the_reference_has_every_column() -> None:
    of_pipeline, of_summary = format_tables().split("## Tables of `nsys-pp summary`")
    tables = [(table.name, table.columns, of_pipeline) for table in PIPELINE_TABLES.values()]
    tables += [(table.name, table.columns, of_summary) for table in SUMMARY_TABLES.values()]
    for name, columns, text in tables:
        section = re.split(f"^### `{name}`", text, flags=re.MULTILINE)[1].split("\n### ")[0]
        assert [column.name for column in columns if f"| `{column.name}` |" not in section] == [], name


def test_every_cause_of_a_bubble_has_an_entry() -> None:
    text = (DOCS / "bubbles.md").read_text()
    entries = dict(re.findall(r"^## ([a-z ]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert {name.replace(" ", "_") for name in entries} == {*BUBBLE_CAUSES}
    for name, entry in entries.items():
        assert f"pictures/{name.replace(' ', '_')}.svg" in entry
        assert "**It means:**" in entry
        assert re.search(r"\*\*(To do|Beyond the ideal):\*\*", entry)


ROW = re.compile(r"^\| `(?P<name>[^|]+)` \| (?P<meaning>[^|]+) \|$", re.MULTILINE)
FRAMEWORKS = (DOCS / "frameworks.md").read_text()
TABLES = {
    section.split("\n", 1)[0]: table
    for section in FRAMEWORKS.split("\n## ")
    for table in section.split("| range | read as |\n")[1:]
}


@pytest.mark.parametrize("title", TABLES)
def test_names_of_frameworks_are_read_as_the_page_shows(title: str) -> None:
    rows = ROW.findall(TABLES[title].split("\n\n")[0])
    assert rows
    domains = pl.Series([None] * len(rows), dtype=pl.String).cast(RANGES["domain"])
    ranges = ranges_of(*(name for name, _ in rows)).with_columns(domain=domains)
    rules = choose_rules(ranges)
    read = dict.fromkeys(range(len(rows)), ("none", None, None))
    for job in name_jobs(ranges, rules).iter_rows(named=True):
        read[job["range_id"]] = (job["kind"], job["micro_batch"], job["role"])
    steps = dict(name_steps(ranges, rules).select("range_id", "step").iter_rows())
    read |= dict.fromkeys(steps, ("step", None, None))
    for at, (name, meaning) in enumerate(rows):
        kind, micro_batch, role = read[at]
        assert re.match(r"[a-z_]+", meaning)[0] == kind, name  # type: ignore[index]
        if number := re.search(r"micro-batch (\d+)", meaning):
            assert micro_batch == int(number[1]), name
        if number := re.match(r"step (\d+)", meaning):
            assert steps[at] == int(number[1]), name
        if word := re.search(r"role (\w+)", meaning):
            assert role == word[1], name


def test_every_preset_for_training_has_a_section() -> None:
    for name in (
        "Megatron",
        "PyTorch",
        "Lightning",
        "DeepSpeed",
        "Paddle",
        "JAX",
        "zero-bubble",
        "verl",
        "vLLM",
        "SGLang",
    ):
        assert name in FRAMEWORKS
