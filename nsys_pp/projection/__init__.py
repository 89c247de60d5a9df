"""Projection of CPU ranges onto GPU intervals."""
