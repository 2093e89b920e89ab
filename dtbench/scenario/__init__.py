"""Scenario files: what to train, how to parallelize it, what to measure. YAML in, frozen records out."""
