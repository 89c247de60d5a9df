"""Comparison of two runs: tables, samples and gates."""
