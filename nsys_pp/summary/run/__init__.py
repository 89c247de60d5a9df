"""What all reports together add to the tables of a summary."""
