"""Figures: functions from a table or a summary to a ``Figure``."""
