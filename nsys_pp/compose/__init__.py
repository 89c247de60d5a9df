"""Composition of the stages: one report, a run of reports, and a batch of inputs."""
