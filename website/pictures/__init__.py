"""Pictures of the concept pages, drawn from simulated reports: `python -m website.pictures` writes `docs/pictures/`."""
