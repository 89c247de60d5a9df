"""What one report says of a training: names -> jobs, steps, messages, stretches of compute."""
