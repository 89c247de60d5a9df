"""What one report adds to the tables of a run."""
