"""A job's traces for other viewers."""
