"""Progress of a run: one line per rank, redrawn on a terminal, plain and sparse elsewhere.

Both shapes are fed by the same observer; the launcher's watch calls it four times a second from its own thread.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dtbench.cli.console import print_aside

if TYPE_CHECKING:
    from rich.console import Console

    from dtbench.launch.run import Observer
    from dtbench.launch.time_left import TimeLeft
    from dtbench.launch.watch import Progress
    from dtbench.plan.plan import Plan
    from dtbench.store.journal import JournalView

PLAIN_INTERVAL_S = 10.0
_BAR = 30


class Screen(Protocol):
    """What an observer draws on."""

    def say(self, text: str) -> None:
        """Show a lasting line."""

    def update(self, progress: "Progress") -> None:
        """Show where the ranks are."""


@contextmanager
def observe(
    on_folder: "Callable[[Path], None]", *, most_launches: int | None = None, time_left: "TimeLeft | None" = None
) -> "Iterator[Observer]":
    """Yield an observer that shows progress on standard error for as long as the context lasts.

    Args:
        on_folder: told the run's folder, too, when it exists.
        most_launches: of a cell, where their number is found while it runs.
        time_left: what is planned and how long it may take; None: nobody counts.
    """
    from rich.console import Console

    from dtbench.base.units import count_things
    from dtbench.launch.run import Observer

    console = Console(stderr=True, highlight=False)
    most = "" if most_launches is None else f" (at most {most_launches})"
    with _open_screen(console, time_left) as screen:

        def on_launch(cell: str, index: int | None, plan: "Plan") -> None:
            if index is None:
                what, whole = "single process for the check", ""
            else:
                what, whole = f"launch {index}{most}", ""
                if time_left is not None:
                    time_left.begin((cell, index))
                    whole = say_whole(time_left)
            screen.say(f"{cell}: {what}, {count_things(plan.ranks, 'rank')} over {plan.backend}{whole}")

        def on_path(path: Path) -> None:
            on_folder(path)
            screen.say(f"run folder {_short(path)}")

        yield Observer(
            on_folder=on_path,
            on_stop=screen.say,
            on_launch=on_launch,
            on_progress=screen.update,
            on_neighbours=lambda sentence: screen.say(f"note: {sentence}"),
            on_failure=lambda cell, reason: screen.say(f"{cell} FAILED: {reason}"),
        )


@contextmanager
def _open_screen(console: "Console", time_left: "TimeLeft | None") -> Iterator[Screen]:
    if not console.is_terminal:
        yield PlainScreen()
        return
    from rich.live import Live

    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield LiveScreen(live.console, live.update, time_left)


class PlainScreen:
    """A line when a rank changes phase, and one per rank every ten seconds."""

    def __init__(self) -> None:
        self._phases: dict[tuple[str, int, int], str] = {}
        self._last_s = time.monotonic()

    def say(self, text: str) -> None:
        """Print to standard error."""
        print_aside(text)

    def update(self, progress: "Progress") -> None:
        """Print the ranks whose phase is new, or all of them when the last lines are old."""
        is_due = time.monotonic() - self._last_s > PLAIN_INTERVAL_S
        for rank, view in enumerate(progress.ranks):
            key = (progress.cell, progress.index, rank)
            phase = str(view.phase or view.state.name) if view else "starting"
            if view is not None and (is_due or self._phases.get(key, phase) != phase):
                self.say(f"  {progress.cell} {rank_line(rank, view, progress.plan)}")
            self._phases[key] = phase
        if is_due:
            self._last_s = time.monotonic()


class LiveScreen:
    """A bar of launches, and one line per rank, redrawn."""

    def __init__(self, console: "Console", redraw: object, time_left: "TimeLeft | None" = None) -> None:
        self._console, self._redraw, self._time_left = console, redraw, time_left

    def say(self, text: str) -> None:
        """Print above the redrawn lines."""
        from dtbench.report.render.plain_text import Plain

        self._console.print(Plain(text))

    def update(self, progress: "Progress") -> None:
        """Redraw all ranks."""
        from dtbench.report.render.plain_text import Plain

        lines = [rank_line(rank, view, progress.plan) for rank, view in enumerate(progress.ranks)]
        if self._time_left is not None and self._time_left.begun:
            lines.insert(0, bar_line(self._time_left))
        if callable(self._redraw):
            self._redraw(Plain("\n".join(lines), style="dim"))


def say_whole(time_left: "TimeLeft") -> str:
    """Say which launch of how many this is, and how long the run may still take: ``; 2 of 8, about 3 min left``."""
    from dtbench.launch.time_left import spell_about

    left_ns, guessed = time_left.left_ns(), time_left.find_guessed()
    which = f"`{guessed[0]}` takes" if len(guessed) == 1 else f"{len(guessed)} cells that have not run yet take"
    given = f" if {which} as long as the others" if guessed else ""
    left = "" if left_ns is None else f", {spell_about(left_ns)} left{given}"
    count = f"{len(time_left.begun)} of {max(len(time_left.planned), len(time_left.begun))}"
    return f"; {count}{left}"


def bar_line(time_left: "TimeLeft") -> str:
    """Draw how many launches have ended: ``[###-------] 4 of 10, about 3 min left``."""
    ended, planned = len(time_left.begun) - 1, max(len(time_left.planned), len(time_left.begun))
    drawn = round(_BAR * ended / planned)
    return f"[{'#' * drawn}{'-' * (_BAR - drawn)}] launch {say_whole(time_left).removeprefix('; ')}"


def rank_line(rank: int, view: "JournalView | None", plan: "Plan") -> str:
    """Say where a rank is: phase, how many of its steps are done, and the last step time."""
    from dtbench.base.units import count_things, format_ns
    from dtbench.store.journal import name_unphased

    if view is None or view.step is None:
        return f"rank {rank}  starting"
    if view.state.name in ("FINISHING", "DONE"):
        return f"rank {rank}  {view.state.name.lower()}, {count_things(len(view.timings), 'step')}"
    if view.phase is None:
        return f"rank {rank}  {name_unphased(view.region)}, step {view.step}"
    done = sum(timing.phase is view.phase for timing in view.timings)
    last = f"  last {format_ns(view.timings[-1].duration_ns)}" if done else ""  # else it is of the phase before
    steps = {"MEASURED": f"{plan.measured_steps}", "PROFILED": f"{plan.profiled_steps}"}
    of = steps.get(str(view.phase), f"at most {plan.max_warmup_steps}")
    return f"rank {rank}  {view.phase}  {done} of {of} steps{last}"


def _short(path: Path) -> str:
    """Return a path below the current folder without what everybody knows."""
    current = Path.cwd()
    return str(path.relative_to(current)) if path.is_relative_to(current) else str(path)
