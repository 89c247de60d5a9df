"""Tables of a training: steps, stages, jobs, links, stragglers and critical paths."""
