"""Output formats of other tools."""
