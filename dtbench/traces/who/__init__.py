"""Whose a collective is, and what for: purposes, owners, buckets, bytes."""
