"""A summary -> tables of where the time went."""
