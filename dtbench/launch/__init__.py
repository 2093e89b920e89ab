"""From a plan to a finished run folder: makes folders, starts ranks, watches them, says how it ended."""
