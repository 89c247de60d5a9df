"""Frames in, summary tables out: one module per table."""
