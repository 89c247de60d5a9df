"""Fixtures of all tests."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.draws import FRESH, count_draws, leave_out_cases
from tests.importer.importer import importer

__all__ = ["each_nsys", "importer", "newer_nsys", "nsys", "shared_report", "shared_reports"]

# Tests start hundreds of processes: without it, each of them would compile the package anew, and pytest all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The processes of `-n` share the cores, so each has one thread of polars; the commands that they start have as many as on
# any machine. OpenBLAS starts no threads anywhere: that takes longer than their work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("POLARS_MAX_THREADS", None)  # read when polars was imported

# The same examples on every machine, however slow: a run passes everywhere or nowhere. `tests/fresh.py` draws new ones.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", _PATIENT, derandomize=True)
settings.register_profile(FRESH, _PATIENT, derandomize=False, print_blob=True)
settings.load_profile("fixed")


def pytest_xdist_auto_num_workers() -> int | None:
    """Return the number of processes of `-n auto`: one more than cores, as some tests wait for other processes."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """Set the environment of the processes of `-n`."""
    for spec in specs:
        spec.env["POLARS_MAX_THREADS"] = "1"


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[Any], list[Any]]:
    """Leave out doctests of tests: only the package has some, and each process of `-n` would look for them."""
    collectors = yield
    return [collector for collector in collectors if type(collector) is pytest.Module]


REPOSITORY = Path(__file__).parent.parent
# Small reports of old and new schemas, with ranges, calls of the OS, events and graphs: tests of each report run on these,
# and on the others with `-m slow`.
_FEW_REPORTS = ("Athrun0109__", "caoye310__", "quasiben__cudf", "zx3xyy__result_2_7B_compile")
_SLOW = ("batch", "fuzz", "load", "ui", "website")  # folders of tests that `-m slow` runs


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, set the number of examples of random ones, and choose the cases of others."""
    for item in items:
        if item.path.is_relative_to(REPOSITORY / "tests") and (
            item.path.relative_to(REPOSITORY / "tests").parts[0] in _SLOW
        ):
            item.add_marker("slow")
    for item in leave_out_cases(items):
        item.add_marker("slow")
    functions = {item.obj for item in items if isinstance(item, pytest.Function)}
    for function in functions:
        own = getattr(function, "_hypothesis_internal_use_settings", None)
        if own is not None:
            function._hypothesis_internal_use_settings = settings(
                own, max_examples=count_draws(own.max_examples)
            )


def find_shared_reports() -> list[Path]:
    """The real reports, which lie beside the repository or where the environment says."""
    folder = Path(os.environ.get("NSYS_PP_SHARED_REPORTS", REPOSITORY.parent / "shared" / "reports"))
    return sorted(folder.glob("*.sqlite"))


@pytest.fixture(scope="session")
def shared_reports() -> list[Path]:
    """All real reports, oldest names first; skips where there are none."""
    reports = find_shared_reports()
    if not reports:
        pytest.skip("no real reports: set NSYS_PP_SHARED_REPORTS to a folder of them")
    return reports


def list_cases(reports: list[Path]) -> list[Any]:
    """Real reports as cases of a test, most of them slow; where there are none, a case that skips."""
    if not reports:
        return [pytest.param(None, marks=pytest.mark.skip("no real reports: set NSYS_PP_SHARED_REPORTS"))]
    return [
        pytest.param(
            path, id=path.stem, marks=[] if path.name.startswith(_FEW_REPORTS) else [pytest.mark.slow]
        )
        for path in reports
    ]


@pytest.fixture(params=list_cases(find_shared_reports()))
def shared_report(request: pytest.FixtureRequest) -> Path:
    """Each real report in turn."""
    return Path(request.param)


@pytest.fixture(scope="session")
def nsys() -> str:
    """A real nsys; skips where there is none."""
    found = os.environ.get("NSYS_PP_NSYS") or shutil.which("nsys")
    if not found:
        pytest.skip("no nsys: set NSYS_PP_NSYS, or get one with tests/tools/fetch_nsys.sh")
    return found


@pytest.fixture(scope="session")
def newer_nsys() -> str:
    """The second real version of nsys; skips where there is none."""
    found = os.environ.get("NSYS_PP_NSYS_NEWER")
    if not found:
        pytest.skip(
            "no second nsys: set NSYS_PP_NSYS_NEWER, or get one with tests/tools/fetch_nsys.sh FOLDER 2024.2"
        )
    return found


@pytest.fixture(scope="session", params=["nsys", "newer_nsys"])
def each_nsys(request: pytest.FixtureRequest) -> str:
    """Each real version of nsys in turn."""
    return str(request.getfixturevalue(request.param))
