"""What may be changed in a graph: each module one kind of change, which gives the changed graph."""
