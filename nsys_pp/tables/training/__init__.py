"""Tables of a training."""
