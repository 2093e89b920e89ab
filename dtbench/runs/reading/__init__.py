"""What a run wrote, read once: disturbed steps, lost ones and copies are found here and nowhere else."""
