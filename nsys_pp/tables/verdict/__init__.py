"""Verdict of a training: a module for each kind of finding, and their registry."""
