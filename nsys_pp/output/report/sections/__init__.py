"""Sections of a report page, a module each."""
