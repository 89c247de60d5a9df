"""The training view of a run: steps, jobs, messages, bubbles and schedules."""
