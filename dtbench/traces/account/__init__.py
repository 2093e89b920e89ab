"""Accounts of a window, exact in nanoseconds: by lane, process group, purpose, gap; the overlap tax."""
