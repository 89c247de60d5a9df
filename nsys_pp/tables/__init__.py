"""Tables: their columns, and the functions that build their rows from a training, a summary, or two runs."""
