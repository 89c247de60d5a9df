"""Frames -> bytes."""
