"""Ranks on several nodes: node 0 leads, an agent on each node starts the ranks there."""
