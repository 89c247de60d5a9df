"""Renderers of tables: one for the terminal, one for each file format."""
