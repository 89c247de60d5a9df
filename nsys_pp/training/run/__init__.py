"""What all reports together say of a training, on one clock."""
