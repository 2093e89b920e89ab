"""One canvas timeline for TensorBoard, notebooks and single pages: the document, and the module that draws it."""

from dtbench.report.timeline.document import TimelineDocument, make_document
from dtbench.report.timeline.open import Timeline, make_timeline, open_launch_timeline, open_run_timeline
from dtbench.report.timeline.page import script_text, timeline_html, timeline_inset, timeline_page

__all__ = [
    "Timeline",
    "TimelineDocument",
    "make_document",
    "make_timeline",
    "open_launch_timeline",
    "open_run_timeline",
    "script_text",
    "timeline_html",
    "timeline_inset",
    "timeline_page",
]
