"""Files -> raw frames: finding, exporting and reading reports."""
