"""What callbacks have in common, whoever calls them back: a step that begins and ends, from a start to a stop."""

from os import PathLike
from typing import TYPE_CHECKING, Any

import dtbench

if TYPE_CHECKING:
    from dtbench.worker.user_loop.loop import StepContext


class Measured:
    """Training that is measured; its methods take whatever a framework passes on.

    Args:
        results: folder of all runs, which every rank must see.
        options: as those of ``dtbench.capture``.
    """

    def __init__(self, results: str | PathLike[str] = "results", **options: Any) -> None:
        self._results, self._options = results, options
        self.step: StepContext | None = None

    def start(self, *_: Any, **__: Any) -> None:
        """Begin to measure: every rank has its model."""
        self.step = dtbench.start(self._results, **self._options)

    def begin(self, *_: Any, **__: Any) -> None:
        """Begin a step: what it trains on was fetched."""
        if self.step is not None:
            self.step.begin()

    def end(self, *_: Any, **__: Any) -> None:
        """End it, before logging, evaluation and saving."""
        if self.step is not None:
            self.step.end()

    def stop(self, *_: Any, **__: Any) -> None:
        """Say how the run ended."""
        if self.step is not None:
            self.step.stop()
