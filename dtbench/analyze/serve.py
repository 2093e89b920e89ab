"""The worker of ``many.py``: reads a ``TraceFile`` from standard input, answers on standard output, until told no more.

``python -m dtbench.analyze.serve``; both directions are pickles, one after another.
"""

import os
import pickle
import signal
import sys

from dtbench.analyze.many import TraceFile, analyze_file


def serve() -> None:
    """Analyse what comes, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one; it ends us
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not stand between two answers
    while True:
        try:
            file: TraceFile = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(analyze_file(file), answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    serve()
