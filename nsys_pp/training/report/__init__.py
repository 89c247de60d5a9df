"""Training frames of one report: jobs, steps, messages, compute segments and kernel aggregates."""
