"""Callbacks with which other people's training loops are measured; a module for each, which imports its package."""
