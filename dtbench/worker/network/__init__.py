"""What carries the collectives: the real backend, wrapped where that is the only way to see what was issued."""
