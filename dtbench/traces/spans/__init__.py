"""Every span of a job that has a kind, rank by rank on one clock: what a picture of its traces shows."""

from dtbench.traces.spans.collect import JobSpans, RankSpans, collect_spans
from dtbench.traces.spans.span_rows import EXPOSED, SPANS, STAGE_WORK

__all__ = [
    "EXPOSED",
    "SPANS",
    "STAGE_WORK",
    "JobSpans",
    "RankSpans",
    "collect_spans",
]
