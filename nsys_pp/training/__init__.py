"""Intervals -> the training's view: steps, jobs, messages, bubbles, schedules."""
