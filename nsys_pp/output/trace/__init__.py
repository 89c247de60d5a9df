"""Trace contents, independent of the file format: tracks, lanes, slices, counters."""
