"""Alignment of clocks: many clocks -> one."""
