"""Plain modules with no parallelism in them, and how each is cut by tensor parallelism."""
