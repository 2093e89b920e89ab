"""What would change it: the steps of a trace as lengths and edges, run again as they were, and with something changed.

::

    TraceSet -> read (lengths, edges) -> JobGraph -> compose -> Program of each rank -> prediction.simulate
                                            ^                                                |
                                         changes/                                       fit, answers

A replay knows how long everything took and what had to wait for what; of the trace's starts and waits it knows none but
the state in which it begins. So the graph as it was must give the step that it was read from, and where it does not,
nothing is said of what would change it.
"""
