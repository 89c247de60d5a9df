"""CPU ranges -> GPU intervals."""
