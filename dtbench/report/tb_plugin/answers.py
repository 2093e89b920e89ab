"""From a request's words to a document: one method per route; everything heavy is imported inside it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import MsgspecError, Raw
from msgspec.json import decode

from dtbench.report.tb_plugin.asked import Words, read_choice, read_number, read_number_or_none, read_query, read_word
from dtbench.report.tb_plugin.load import Loader, Side, check_launch, choose_launches, find_cell
from dtbench.report.tb_plugin.refusal import NOT_ASKED_WELL, Refusal
from dtbench.report.tb_plugin.run_list import RunList
from dtbench.report.tb_plugin.runs import WHOLE, FoundRun, LogDirectory
from dtbench.report.tb_plugin.trace_answers import TraceAnswers

if TYPE_CHECKING:
    import pandas as pd

    from dtbench.report.words.knobs import Ran

ROUTES: Final = ("/runs", "/progress", "/overview", "/overlap", "/collectives", "/collective", "/timeline", "/compare")


@dataclass(frozen=True)
class Answer:
    """A document, and the state of the files that it was made from; no document: the page has this state already."""

    state: str
    document: object | None


@dataclass(frozen=True)
class Answers:
    """Answers requests about the runs below one log directory."""

    directory: LogDirectory
    runs: RunList
    loader: Loader = field(init=False)
    traces: TraceAnswers = field(init=False)

    def __post_init__(self) -> None:
        """Share one loader, so that what a tab has read is there for the next."""
        object.__setattr__(self, "loader", Loader(self.directory))
        object.__setattr__(self, "traces", TraceAnswers(self.directory.root))

    def answer(self, route: str, words: Words) -> object:
        """Answer a request.

        Raises:
            Refusal: it asks for something that is not there, not whole, or not inside the log directory.
        """
        match route:
            case "/runs":
                return self.runs.make_document(words.get("find", ""), words.get("run"))
            case "/progress":
                return self._progress(words)
            case "/compare":
                return self._compare(words)
            case _ if words.get("run") == WHOLE and self.directory.holds_traces():
                return self._of_traces(route, words)
            case "/timeline":
                return self._timeline(words)
            case _:
                return self._of_run(words, self._by_route()[route])

    def _by_route(self) -> dict[str, Callable[[FoundRun, str, Words], object]]:
        return {
            "/overview": self._overview,
            "/overlap": self._overlap,
            "/collectives": self._collectives,
            "/collective": self._collective,
        }

    def _of_run(self, words: Words, make: Callable[[FoundRun, str, Words], object]) -> Answer:
        """Answer what depends on the files of one run, or say that they are as the page knows them."""
        run = self.directory.open_run(read_word(words, "run"))
        state = self.directory.describe_state(run)
        return Answer(state, None if words.get("known") == state else make(run, state, words))

    def _of_traces(self, route: str, words: Words) -> Answer:
        """Answer what depends on plain traces, or say that their files are as the page knows them."""
        state = self.directory.describe_traces()
        return Answer(state, None if words.get("known") == state else self.traces.answer(route, state, words))

    def _progress(self, words: Words) -> object:
        from dtbench.report.tb_plugin.progress import make_progress

        return make_progress(self.directory.open_run(read_word(words, "run")))

    def _overview(self, run: FoundRun, state: str, words: Words) -> object:
        from dtbench.report.tb_plugin.overview import make_overview

        return make_overview(self.loader.summarize(run, state), words.get("cell"))

    def _overlap(self, run: FoundRun, state: str, words: Words) -> object:
        from dtbench.report.tb_plugin.overlap import CellTables, make_overlap

        name = read_word(words, "cell")
        cell = find_cell(self.loader.summarize(run, state), name)
        launches = choose_launches(cell, words.get("launch", "all"))
        choice = read_choice(words)
        tables = [
            self.loader.stack(run, state, name, launches, table) for table in ("overlap", "purposes", "collectives")
        ]
        return make_overlap(cell, CellTables(launches, *tables), choice)

    def _collectives(self, run: FoundRun, state: str, words: Words) -> object:
        from dtbench.report.tb_plugin.collectives import group_collectives, list_collectives

        _, table = self._launch_table(run, state, words)
        cell = find_cell(self.loader.summarize(run, state), read_word(words, "cell"))
        launch = f"launch{read_number(words, 'launch')}: "
        doubts = [doubt for doubt in cell.rank_doubts if doubt.startswith(launch)]
        query = read_query(words, doubt=next(iter(doubts), ""))
        return group_collectives(table, query) if words.get("grouped") == "owner" else list_collectives(table, query)

    def _collective(self, run: FoundRun, state: str, words: Words) -> object:
        from dtbench.report.tb_plugin.collective_details import describe_collective

        ran, table = self._launch_table(run, state, words)
        return describe_collective(table, read_number(words, "row"), ran)

    def _launch_table(self, run: FoundRun, state: str, words: Words) -> "tuple[Ran | None, pd.DataFrame]":
        """Return what a cell ran, None where its causes are no findings, and a launch's table of collectives."""
        from dtbench.report.words.cell_knobs import describe_cell
        from dtbench.report.words.sentences import has_findings

        name, launch = read_word(words, "cell"), read_number(words, "launch")
        cell = find_cell(self.loader.summarize(run, state), name)
        data = self.loader.read_launch(run, state, name, launch)
        return describe_cell(cell) if has_findings(cell) else None, data.tables.collectives

    def _timeline(self, words: Words) -> Answer:
        """Answer what depends on one launch alone: a drawing that a person moves in stays while others end."""
        run = self.directory.open_run(read_word(words, "run"))
        state = self.directory.describe_state(run)
        name, launch = read_word(words, "cell"), read_number(words, "launch")
        check_launch(find_cell(self.loader.summarize(run, state), name), launch)
        own = self.directory.describe_state(run, run.folder.launch(name, launch).path)
        if words.get("known") == own:
            return Answer(own, None)
        return Answer(own, Raw(self.loader.draw_timeline(run, own, name, launch, read_number_or_none(words, "step"))))

    def _compare(self, words: Words) -> Answer:
        """Answer what depends on the files of two runs."""
        sides = [self._side(read_word(words, name)) for name in ("baseline", "candidate")]
        state = " ".join(state for _, state in sides)
        if words.get("known") == state:
            return Answer(state, None)
        force = words.get("force") == "yes"
        return Answer(state, self.loader.compare(sides[0][0], sides[1][0], state, force=force))

    def _side(self, word: str) -> tuple[Side, str]:
        """Return the cell of a run that a request names as a JSON list of both, and the state of its run's files."""
        try:
            name, cell = decode(word, type=tuple[str, str])
        except MsgspecError as error:
            raise Refusal(NOT_ASKED_WELL, f"`{word}` does not name a run and a cell.") from error
        run = self.directory.open_run(name)
        state = self.directory.describe_state(run)
        return Side(run, find_cell(self.loader.summarize(run, state), cell).name), state
