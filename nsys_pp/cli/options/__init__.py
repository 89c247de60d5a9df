"""Options of the command line, each defined once."""
