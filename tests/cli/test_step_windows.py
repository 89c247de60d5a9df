"""`--steps` on reports without numbered steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.recording.export import write_report
from tests.cli.calls import assert_refused, call

COMMANDS = ("merge", "pipeline", "summary", "chart", "compare", "report")


@pytest.fixture(scope="module")
def unnumbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report whose ranges have neither steps nor numbers."""
    return write_report(
        tmp_path_factory.mktemp("report") / "report.sqlite",
        ranges=[{"name": "work", "start": 0, "end": 100}],
        api_calls=[{"start": 10, "end": 20}],
        kernels=[{"name": "gemm", "start": 30, "end": 50, "correlation": 1}],
    )


@pytest.fixture(scope="module")
def without_gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report without work on a GPU, hence without any step."""
    path = tmp_path_factory.mktemp("report") / "report.sqlite"
    return write_report(path, ranges=[{"name": "work", "start": 0, "end": 100}])


def arguments(command: str, report: Path, folder: Path) -> list[str]:
    output = {"merge": "run.pftrace", "chart": "run.html", "report": "report.html"}.get(command)
    reports = [str(report)] * (2 if command == "compare" else 1)
    return [command, *reports, *(["-o", str(folder / output)] if output else [])]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("window", ["1:2", "7:", "99999999999999999999:", "9" * 30 + ":"])
def test_a_window_without_steps_names_the_steps(
    command: str, window: str, unnumbered: Path, without_gpu: Path, tmp_path: Path
) -> None:
    for report, hint in ((unnumbered, "0 to 0"), (without_gpu, "steps are known of")):
        done = call(*arguments(command, report, tmp_path), "--steps", window)
        assert done.code == 1
        assert_refused(done, "")
        if f"`--steps {window}`" in done.stderr:
            assert hint in done.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("window", ["0:1", "0:", ":1", ":99999999999999999999", ":" + "9" * 30])
def test_the_only_step_is_number_0(command: str, window: str, unnumbered: Path, tmp_path: Path) -> None:
    assert call(*arguments(command, unnumbered, tmp_path), "--steps", window).code == 0
