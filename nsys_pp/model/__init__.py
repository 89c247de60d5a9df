"""Raw frames -> our frames."""
