"""The one place where a file name of a run is spelled.

::

    results/<scenario>/<utc>-<short id>/
      run.json  scenario.yaml  env.json  tb/  step_breakdown.png  exposed_owners.png  sweep.png  .lock
      .pinned                             `dtbench clean` leaves the run alone
      nodes.json                          only of a run on several nodes: where the results of each lie
      selftest.json                       only of a run of `dtbench selftest`: what its rows found
      checks.json                         derived: what became of the scenario's checks, and the answer
      cells/<cell>/measurements.json      derived: the numbers of its launches that are compared
      cells/<cell>/reference/reference.pt     losses and gradients of the single process, and a launch folder's other
      files cells/<cell>/launch<k>/
        order.json                       what the worker was told: written by launch, read by the worker
        launch.json  steps.parquet       raw, written last
        overlap.parquet  purposes.parquet  collectives.parquet  ...  derived: can be deleted and remade
        ranks/rank<r>.json               what rank r found out: receipts, losses, memory
        ranks/stage<r>.json              the same, as it will be if rank r is killed in the stage that it is in
        ranks/lines<r>.json              lines of the files under study that it ran (measure.line_coverage)
        traces/rank<r>.<ns>.pt.trace.json.gz
        traces/.cleaned.json             in their place where `dtbench clean` removed them
        logs/rank<r>.log
        events/rank<r>.jsonl  rank<r>.journal
        events/cores<r>.jsonl            who had the cores of the machine whose lowest rank is r
        link/                            while ranks run over an emulated link; killed ones leave it behind
        checkpoints/                     while `state_dict` saves and reads; killed ranks leave it behind
    results/.baselines/<name>.json      saved baselines: no folder of runs is called so
    results/.catalogue.json             how far the latest `dtbench catalogue` came
    scenarios/outcomes.json  scenarios/README.md    what each scenario came to when that was last recorded
"""

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

FOLDER_VARIABLE = "DTBENCH_LOG_DIRECTORY"
"""Environment variable that tells the tab *dtbench* where runs lie, where TensorBoard itself reads the newest alone."""

LAUNCHER_VARIABLE = "DTBENCH_LAUNCHER_PID"
"""Environment variable that tells a rank which process started it; absent under torchrun."""

FORKED_VARIABLE = "DTBENCH_FORKED"
"""Environment variable of a rank that is a copy of a process which had imported torch: its start says nothing."""

RUNNER_CLASS_VARIABLE = "DTBENCH_RUNNER_CLASS"
"""Environment variable in which a person names the machines that stand for each other, of which this is one."""

TRACE_SUFFIXES = (".pt.trace.json.gz", ".pt.trace.json")


_FOLDER_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)

_MOST_BYTES = 255
"""Of one name in a path, on all file systems in use."""


def can_name_runs(name: str) -> bool:
    """Tell whether a name can be that of a folder of runs."""
    return _FOLDER_NAME.fullmatch(name) is not None


def can_name_cell(name: str) -> bool:
    """Tell whether a name can be that of a cell's folder: none that leads out of it, or that no file system takes."""
    odd = {"/", "\\", "\0"} & set(name) or name in ("", ".", "..")
    return not odd and len(name.encode(errors="surrogateescape")) <= _MOST_BYTES


def baseline_file(results: Path, name: str) -> Path:
    """Return the file of a saved baseline."""
    return baselines_folder(results) / f"{name}.json"


def baselines_folder(results: Path) -> Path:
    """Return the folder of all saved baselines."""
    return results / ".baselines"


def catalogue_file(results: Path) -> Path:
    """Return the file that says how far the latest catalogue came."""
    return results / ".catalogue.json"


def outcomes_file(scenarios: Path) -> Path:
    """Return the file of the last outcomes of a folder of scenarios."""
    return scenarios / "outcomes.json"


def scenarios_page(scenarios: Path) -> Path:
    """Return the page that is made of a folder of scenarios and their last outcomes."""
    return scenarios / "README.md"


def trace_name(rank: int, unix_ns: int) -> str:
    """Return the file name of a new trace of one rank."""
    return f"rank{rank}.{unix_ns}{TRACE_SUFFIXES[0]}"


def new_run_folder(results: Path, name: str) -> "RunFolder":
    """Return the absolute path of a run that begins now; makes nothing.

    Runs are in order of their names: one that begins after the clock was set back is named after the latest that is
    there, as far as that is within a year.
    """
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    latest = max(filter(None, (_read_stamp(path.name) for path in results.glob("*/*"))), default=now)
    if now < latest < now + timedelta(days=365):
        now = latest + timedelta(seconds=1)
    return RunFolder((results / name / f"{now:{_STAMP}}-{secrets.token_hex(2)}").resolve())


_STAMP = "%Y%m%dT%H%M%S"


def _read_stamp(name: str) -> datetime | None:
    """Return when a run began, by its folder's name; None: it is no run's."""
    try:
        return datetime.strptime(name.partition("-")[0], _STAMP)  # noqa: DTZ007 - all are UTC
    except ValueError:
        return None


@dataclass(frozen=True)
class LaunchFolder:
    """Paths of one launch of one cell."""

    path: Path

    @property
    def cell_and_index(self) -> tuple[str, int] | None:
        """Whose launch this is, and which, as the folder is called; None: it lies in no run."""
        cell, index = self.path.parent, self.path.name.removeprefix("launch")
        if cell.parent.name != "cells" or not (index.isascii() and index.isdecimal()):
            return None
        return cell.name, int(index)

    @property
    def has_files(self) -> bool:
        """Anything of it is there."""
        return self.path.is_dir() and any(self.path.iterdir())

    @property
    def order(self) -> Path:
        """What the worker was told to do."""
        return self.path / "order.json"

    @property
    def launch(self) -> Path:
        """Status and summary of the launch."""
        return self.path / "launch.json"

    @property
    def steps(self) -> Path:
        """Timings of every step of every rank."""
        return self.path / "steps.parquet"

    def derived_table(self, name: str) -> Path:
        """A table that is made from the traces: overlap, purposes, collectives, gains, ..."""
        return self.path / f"{name}.parquet"

    @property
    def overlap(self) -> Path:
        """Derived: where each profiled step's time went; written last, so where it is, the other tables are."""
        return self.derived_table("overlap")

    @property
    def traces(self) -> Path:
        """Folder of the traces, in the layout that TensorBoard's profiler plugin also reads."""
        return self.path / "traces"

    @property
    def cleaned(self) -> Path:
        """When `dtbench clean` removed its traces; where they lay, under a name that no viewer takes for one."""
        return self.traces / ".cleaned.json"

    @property
    def logs(self) -> Path:
        """Folder of the ranks' standard output and error."""
        return self.path / "logs"

    @property
    def link(self) -> Path:
        """Folder in which ranks on an emulated link tell each other when they issued; it goes with them."""
        return self.path / "link"

    @property
    def checkpoints(self) -> Path:
        """Folder to which stages save the training state; it goes with the ranks."""
        return self.path / "checkpoints"

    @property
    def reference_data(self) -> Path:
        """Losses and gradients of the single process; only in a reference's folder."""
        return self.path / "reference.pt"

    @property
    def environment(self) -> Path:
        """Environment as rank 0 saw it; copied to the run's ``env.json`` after the first launch."""
        return self.path / "ranks" / "env.json"

    def rank_record(self, rank: int) -> Path:
        """What one rank found out."""
        return self.path / "ranks" / f"rank{rank}.json"

    def rank_in_stage(self, rank: int) -> Path:
        """What one rank found out before the stage of its training state that it is in; gone when it has left them."""
        return self.path / "ranks" / f"stage{rank}.json"

    def lines(self, rank: int) -> Path:
        """Lines of the files under study that one rank has run so far."""
        return self.path / "ranks" / f"lines{rank}.json"

    def trace(self, rank: int, unix_ns: int) -> Path:
        """A new trace of one rank."""
        return self.traces / trace_name(rank, unix_ns)

    def list_trace_files(self) -> list[Path]:
        """All files of its traces, older ones of a rank too."""
        return sorted(self.traces.glob("rank*.pt.trace.json*"))

    def find_traces(self) -> dict[int, Path]:
        """Trace of each rank that has one; the newest where there are several. A link to nowhere is none."""
        found: dict[int, Path] = {}
        for path in self.list_trace_files():
            rank = path.name.split(".")[0].removeprefix("rank")
            if rank.isascii() and rank.isdecimal() and path.exists():
                found[int(rank)] = path
        return dict(sorted(found.items()))

    def log(self, rank: int) -> Path:
        """Standard output and error of one rank."""
        return self.logs / f"rank{rank}.log"

    def events(self, rank: int) -> Path:
        """Sparse milestones of one rank, one JSON object a line."""
        return self._events / f"rank{rank}.jsonl"

    def find_journals(self) -> list[int]:
        """Ranks that have a journal, in order."""
        named = (path.name.removeprefix("rank").removesuffix(".journal") for path in self._events.glob("rank*.journal"))
        return sorted(int(rank) for rank in named if rank.isascii() and rank.isdecimal())

    def core_use(self, rank: int) -> Path:
        """Who had the cores of the machine whose lowest rank this is, one line for each look."""
        return self._events / f"cores{rank}.jsonl"

    def find_core_uses(self) -> list[Path]:
        """Files of all machines that were looked at."""
        return sorted(self._events.glob("cores*.jsonl"))

    @property
    def _events(self) -> Path:
        return self.path / "events"

    def journal(self, rank: int) -> Path:
        """Memory-mapped step timings of one rank; outlives the rank."""
        return self._events / f"rank{rank}.journal"


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run."""

    path: Path

    @property
    def run(self) -> Path:
        """Status, scenario, plan and the list of cells and launches."""
        return self.path / "run.json"

    @property
    def scenario(self) -> Path:
        """The scenario file's words as written."""
        return self.path / "scenario.yaml"

    @property
    def environment(self) -> Path:
        """Versions, devices, variables."""
        return self.path / "env.json"

    @property
    def lock(self) -> Path:
        """Held by the process that starts this run's ranks."""
        return self.path / ".lock"

    @property
    def pin(self) -> Path:
        """Where it is there, `dtbench clean` leaves the run alone."""
        return self.path / ".pinned"

    @property
    def nodes(self) -> Path:
        """Only of a run on several nodes: where the results of each lie."""
        return self.path / "nodes.json"

    @property
    def sweep_plot(self) -> Path:
        """The cells of a sweep against each other."""
        return self.path / "sweep.png"

    @property
    def stages_plot(self) -> Path:
        """How long each stage of the training state took."""
        return self.path / "stages.png"

    @property
    def stage_memory_plot(self) -> Path:
        """Host memory over time while stages ran."""
        return self.path / "stage_memory.png"

    @property
    def selftest(self) -> Path:
        """What the rows of a selftest found, as far as they were judged."""
        return self.path / "selftest.json"

    @property
    def checks(self) -> Path:
        """Derived: what became of the scenario's checks."""
        return self.path / "checks.json"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard event files."""
        return self.path / "tb"

    @property
    def breakdown_plot(self) -> Path:
        """Step breakdown per rank."""
        return self.path / "step_breakdown.png"

    @property
    def owners_plot(self) -> Path:
        """Whose communication was exposed, and why."""
        return self.path / "exposed_owners.png"

    def measurements(self, cell: str) -> Path:
        """Derived: the numbers of a cell that are compared, and of which files they were made."""
        return self.path / "cells" / cell / "measurements.json"

    def reference(self, cell: str) -> LaunchFolder:
        """Launch of the single process that a cell is checked against."""
        return LaunchFolder(self.path / "cells" / cell / "reference")

    def launch(self, cell: str, index: int) -> LaunchFolder:
        """Launch ``index`` of a cell."""
        return LaunchFolder(self.path / "cells" / cell / f"launch{index}")
