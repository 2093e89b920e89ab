"""Ranks by fork: copies of a process that has imported torch once, in place of processes that each import it anew."""
