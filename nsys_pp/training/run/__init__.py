"""Training frames of a whole run: all reports on one clock."""
