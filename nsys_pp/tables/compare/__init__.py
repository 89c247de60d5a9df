"""Comparison of two runs: tables, noise, and gates."""
