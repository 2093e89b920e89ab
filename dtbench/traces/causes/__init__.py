"""Why communication is exposed: each collective's exposed time, split into causes that add up to it."""
