"""Perfetto traces."""
