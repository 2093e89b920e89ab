"""HTA's part of the comparison: load one trace, overlap of communication, temporal breakdown.

Run by the interpreter of a virtual environment that holds HTA (``pip install traceinsight "pandas<3"``), as
``python tests/benchmarks/hta_answer.py TRACE``; imports nothing of dtbench. Prints its version and overlap, in percent.
"""

import importlib.metadata
import logging
import sys


def find_version() -> str:
    """Return name and version; it was renamed in 2025."""
    for name in ("traceinsight", "HolisticTraceAnalysis"):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


def main() -> None:
    """Answer and print."""
    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.INFO)
    analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    analysis.get_temporal_breakdown(visualize=False)
    print(f"{find_version()}, pandas {importlib.metadata.version('pandas')}")
    print(overlap.to_csv(index=False).strip())


if __name__ == "__main__":
    main()
