"""Where work runs: in this process, in processes of its own, on a Dask cluster."""
