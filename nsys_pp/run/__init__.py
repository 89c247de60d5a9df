"""The stages put together: one report, a run of reports, and a batch of inputs."""
