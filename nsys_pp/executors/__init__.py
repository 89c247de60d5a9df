"""Executors: this process, spawned processes, or a Dask cluster."""
