"""Contracts between stages: schemas of frames, the dataclasses that carry them, and `conform`."""
