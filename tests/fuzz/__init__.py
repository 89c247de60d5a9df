"""Fuzzing that stays: damaged inputs and odd options, of which each gives a result or one of the project's errors."""
