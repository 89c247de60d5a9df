"""Families of kernels, by their names.

Rules of libraries in TOML, shared by aggregates, training and tables.
"""
