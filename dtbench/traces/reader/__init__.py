"""A Kineto trace file as columns of exact integer nanoseconds: the one reader that every analysis starts from.

::

    source --> inflate --> windows --> decode (typed, else exact, else event by event) --> columns --> Trace

Everything outside this package uses ``read_trace``, and ``find`` for folders and archives.
"""

from dtbench.traces.reader.read import read_trace

__all__ = ["read_trace"]
