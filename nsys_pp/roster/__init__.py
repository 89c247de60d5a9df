"""Machines, processes, GPUs, ranks and stages, identified across all reports of a run."""
