"""Perfetto's real importer under pytest: the fixture `importer`, and helpers that read a trace back."""

from tests.importer.importer import Importer, ImporterError, PartMissingError
from tests.importer.readback import (
    assert_no_errors,
    read_args,
    read_flows,
    read_machines,
    read_tracks,
    read_zero_ns,
    slices_by_machine,
    slices_by_track,
)

__all__ = [
    "Importer",
    "ImporterError",
    "PartMissingError",
    "assert_no_errors",
    "read_args",
    "read_flows",
    "read_machines",
    "read_tracks",
    "read_zero_ns",
    "slices_by_machine",
    "slices_by_track",
]
