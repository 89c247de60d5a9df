"""Frames -> where the time went, as tables; and what a report holds."""
