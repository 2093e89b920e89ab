"""What carries the collectives: the real backend, wrapped where only so is seen what was issued, or behind a link."""
