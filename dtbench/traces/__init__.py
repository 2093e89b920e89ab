"""Anyone's traces become collectives, owners and causes: needs neither torch nor a GPU, and knows no run folder.

::

    file -> reader/ -> Trace -> host/, kinds/ -> who/ -> device/ or cpu/ -> rank/ (TraceAnalysis)       one rank
                                                                              |
                     job/ (TraceSet) <- ranks/ (skew), causes/ (why) <- RankTimeline                    all ranks

What is in each folder stands in ``docs/architecture.md``; the layers of the contract in ``pyproject.toml`` hold the
arrows between them.
"""
