"""Alignment of the clocks of all reports onto one clock."""
