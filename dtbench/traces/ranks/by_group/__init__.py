"""What ranks have in common, host or place in a mesh, and what of their differences and waits that explains."""
