"""Collectives of a CPU trace: gloo's spans, whose each is, how large, and who stood still for it."""
