"""A training -> tables, and two trainings -> what changed."""
