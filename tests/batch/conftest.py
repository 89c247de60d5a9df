"""Fixtures of the tests of batch scripts."""

from __future__ import annotations

import pytest

from tests.cli.calls import REPORTS, succeed


@pytest.fixture(scope="session")
def merged(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The trace that `merge` makes of all reports at once."""
    trace = tmp_path_factory.mktemp("merged") / "run.pftrace"
    succeed("merge", *REPORTS, "-o", trace)
    return trace.read_bytes()
