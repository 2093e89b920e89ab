"""Arithmetic of time: sets of half-open intervals in integer nanoseconds, and shares that add up to the whole."""
