"""Many clocks -> one."""
