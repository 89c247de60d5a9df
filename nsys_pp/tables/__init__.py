"""Tables: the training, the summary, and the comparison of two runs."""
