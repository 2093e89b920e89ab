"""The seam between the wings: where a run's files lie, what is in them, and how they are written and read."""
