"""Published facts about GPUs."""
