"""Fixtures of the tests of batch scripts."""

from __future__ import annotations

import pytest

from tests.batch.world import REPORTS
from tests.cli.calls import succeed


@pytest.fixture(scope="session")
def merged(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The trace that `merge` makes of all reports at once."""
    trace = tmp_path_factory.mktemp("merged") / "run.pftrace"
    succeed("merge", *REPORTS, "-o", trace)
    return trace.read_bytes()
