"""Every span of a job that has a kind, rank by rank on one clock: what a picture of its traces shows."""

from dtbench.traces.spans.collect import JobSpans, RankSpans, StepRange, collect_spans
from dtbench.traces.spans.span_rows import tabulate_exposed, tabulate_spans, tabulate_stage_work

__all__ = [
    "JobSpans",
    "RankSpans",
    "StepRange",
    "collect_spans",
    "tabulate_exposed",
    "tabulate_spans",
    "tabulate_stage_work",
]
