"""A page as one HTML file that needs nothing else: no server, no network; without scripts it has all its words."""

from dtbench.report.render.html_page.document import Inset, page_document, read_look

__all__ = ["Inset", "page_document", "read_look"]
