"""Families of kernels, by their names: rules of libraries in TOML, shared by aggregates, training and tables."""
