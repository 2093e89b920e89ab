"""One number of a scenario's cell over its runs, and where its level changed."""
