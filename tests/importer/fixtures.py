"""The fixture `importer`, shared by a whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.importer.importer import Importer
from tests.importer.parts import PartMissingError


@pytest.fixture(scope="session")
def importer() -> Iterator[Importer]:
    """Give Perfetto's importer; skip, and say why, where a part of it is not installed."""
    try:
        started = Importer()
    except PartMissingError as error:
        pytest.skip(f"Perfetto's importer cannot run here: {error}")
    yield started
    started.close()
