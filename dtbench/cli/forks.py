"""Which scenarios' ranks may be copies of one process, and the processes that they are copies of."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

from dtbench.cli.console import print_aside

if TYPE_CHECKING:
    from dtbench.scenario.load import ScenarioFile
    from dtbench.scenario.schema.scenario import Scenario


class Forks(ExitStack):
    """What ranks are forked from, started when the first scenario wants it."""

    _prefix: tuple[str, ...] | None = None

    def find_prefix(self, file: "ScenarioFile") -> tuple[str, ...]:
        """Return what goes before a rank's command for it to be forked; empty where ranks must be started afresh."""
        if not _may_fork(file):
            return ()
        if self._prefix is None:
            from dtbench.base.errors import LaunchError
            from dtbench.launch.forked.servers import serve_forks

            try:
                self._prefix = self.enter_context(serve_forks())
            except LaunchError as error:
                print_aside(f"{error}: each rank imports torch by itself, which takes longer")
                self._prefix = ()
        return self._prefix


def _may_fork(file: "ScenarioFile") -> bool:
    """Say whether copies of one process will do: on CPU, one launch, and nothing that is read at a rank's start."""
    from dtbench.launch.forked.servers import can_fork, make_environment

    imported_with = make_environment().items()

    def is_plain(scenario: "Scenario") -> bool:
        is_alone = scenario.repeat == 1  # launches are samples only where each is a process of its own
        is_imported_alike = scenario.python is None and scenario.env.items() <= imported_with
        return scenario.device == "cpu" and is_alone and is_imported_alike

    reads_start = "time_to_first_step_ns" in file.checklist.model_dump_json()
    return can_fork() and not reads_start and all(is_plain(cell.scenario) for cell in file.cells)
