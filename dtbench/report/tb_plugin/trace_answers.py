"""Plain traces as a log directory: those of one job, that no run of dtbench wrote, with the tabs of a run.

They are read as ``dtbench analyze`` reads them: one ``TraceSet`` is behind every tab.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from dtbench.base.errors import DtbenchError
from dtbench.report.tb_plugin.asked import Words, read_choice, read_number, read_number_or_none, read_query
from dtbench.report.tb_plugin.kept import Kept
from dtbench.report.tb_plugin.refusal import ABSENT, BROKEN, NOT_FOUND, Refusal

if TYPE_CHECKING:
    from dtbench.traces.job.trace_set import TraceSet

_MOST_TIMELINES: Final = 2


@dataclass(frozen=True)
class TraceAnswers:
    """Answers requests about the traces of one job.

    Attributes:
        path: a folder of them, one of them, or an archive.
    """

    path: Path
    _jobs: Kept = field(default_factory=lambda: Kept(1))
    _timelines: Kept = field(default_factory=lambda: Kept(_MOST_TIMELINES))

    def answer(self, route: str, state: str, words: Words) -> object:
        """Return the document of a tab.

        Args:
            route: of the tab.
            state: of the traces' files; where it changed, they are read anew.
            words: of the request.

        Raises:
            Refusal: it asks for something that is not there, or the traces cannot be read.
        """
        from dtbench.report.tb_plugin import trace_tabs

        traces = self._jobs.get(state, self._analyze)
        match route:
            case "/overview":
                return trace_tabs.make_traces_overview(traces)
            case "/overlap":
                return trace_tabs.make_traces_overlap(traces, read_choice(words))
            case "/collectives":
                make = trace_tabs.group if words.get("grouped") == "owner" else trace_tabs.list_single
                return make(traces, read_query(words))
            case "/collective":
                return trace_tabs.describe(traces, read_number(words, "row"))
            case "/timeline":
                step = read_number_or_none(words, "step")
                return Raw(self._timelines.get((state, step), partial(self._draw, traces, step)))
        raise Refusal(NOT_FOUND, "Plain traces have no such tab.")

    def _analyze(self) -> "TraceSet":
        from dtbench.traces.job.foreign import analyze_traces

        try:
            return analyze_traces([self.path])
        except DtbenchError as error:
            raise Refusal(BROKEN, f"These traces cannot be read. {error}") from error

    def _draw(self, traces: "TraceSet", step: int | None) -> bytes:
        from dtbench.report.timeline import make_timeline

        try:
            return make_timeline(traces, steps=step, title=self.path.name).to_json()
        except DtbenchError as error:
            raise Refusal(ABSENT, str(error)) from error
