"""Which cells are asked for: those of scenarios and of runs, of which those of one work at several worlds are one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dtbench.base.errors import PredictionError
from dtbench.runs.reading.cell_data import RunData
from dtbench.runs.run import summarize_data
from dtbench.runs.scaling.curve import Subject
from dtbench.runs.scaling.measured import measure_host
from dtbench.runs.scaling.world import name_work
from dtbench.scenario.load import ScenarioFile


@dataclass(frozen=True)
class Subjects:
    """What was found.

    Attributes:
        found: cells by their names, each of another work.
        refused: by name, why nothing is said of others.
    """

    found: tuple[Subject, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def subjects_of_file(file: ScenarioFile) -> Subjects:
    """Return the cells of a scenario, of which nothing was measured."""
    return Subjects(tuple(Subject(cell.name, cell.scenario) for cell in file.cells))


def subjects_of_run(data: RunData, cell: str | None = None) -> Subjects:
    """Return the cells of a run with what their launches tell of their hosts.

    Args:
        data: of the run.
        cell: this cell alone; None: all.

    Raises:
        StoreError: no launch of it can be read.
    """
    found, refused = list[Subject](), dict[str, str]()
    cores = None if data.environment is None else data.environment.cores
    for one, read in zip(summarize_data(data).cells, data.cells, strict=True):
        if cell in (None, one.name):
            try:
                scenario, plan, measured = measure_host(one, read, cores)
            except PredictionError as error:
                refused[one.name] = str(error)
            else:
                found.append(Subject(one.name, scenario, plan.torch, (measured,)))
    return Subjects(tuple(found), refused)


def join_subjects(sources: Mapping[str, Subjects]) -> Subjects:
    """Put together what several sources have: cells of one work that ran with different numbers of ranks become one.

    On machines with as many cores, that is; of a scenario that is given twice, once.

    Args:
        sources: by the name of a run or scenario, which tells cells of one name apart.
    """
    joined: dict[tuple[str, tuple[int | None, ...]], Subject] = {}
    for source, one in sources.items():
        for subject in one.found:
            key = (name_work(subject.scenario), tuple(one.cores for one in subject.measured))
            known = joined.get(key)
            if known is None:
                name = _name_apart(subject.name, source, (other.name for other in joined.values()))
                joined[key] = replace(subject, name=name)
            elif subject.measured:
                joined[key] = replace(known, measured=(*known.measured, *subject.measured))
    refused = {
        name if len(sources) == 1 else f"{Path(source).name}: {name}": why
        for source, one in sources.items()
        for name, why in one.refused.items()
    }
    return Subjects(tuple(joined.values()), refused)


def _name_apart(name: str, source: str, taken: Iterable[str]) -> str:
    names = set(taken)
    if name not in names:
        return name
    name = f"{Path(source).name}:{name}"
    while name in names:
        name += "'"
    return name
