"""Whose each file of a run is, and which of several folders contradict each other over it.

==============  =======================================================  ==========================================
whose           which                                                    in several folders
==============  =======================================================  ==========================================
a rank's        records, traces, logs, journals, events                  must be alike
made anew       ``run.json``, ``launch.json``, orders, tables, pictures  not compared
single process  ``cells/<cell>/reference/``                              each node may have run it: one is taken
run's           ``scenario.yaml``; ``env.json``                          must be alike; one is taken
a node's        anything else, as the log of a scheduler                 kept under several names where they differ
nobody's        locks, temporary files, links, checkpoints, where        left out
                each node's results lay (``nodes.json``)
==============  =======================================================  ==========================================
"""

import filecmp
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path, PurePosixPath
from typing import Final

from dtbench.store.layout import RunFolder


class Whose(Enum):
    """Whose a file is, which decides what becomes of it; see the table above."""

    RANK = auto()
    MADE_ANEW = auto()
    REFERENCE = auto()
    RUN = auto()
    NODE = auto()
    NOBODY = auto()


_LAUNCH: Final = r"cells/[^/]+/launch\d+"
_WHOSE: Final = (
    (Whose.NOBODY, rf"(?:.*/)?\.[^/]*|nodes\.json|{_LAUNCH}/(?:link|checkpoints)/.*"),
    (Whose.MADE_ANEW, rf"run\.json|checks\.json|[^/]+\.png|tb/.*|{_LAUNCH}/(?:(?:launch|order)\.json|[^/]+\.parquet)"),
    (Whose.MADE_ANEW, r"cells/[^/]+/reference/order\.json"),
    (Whose.REFERENCE, r"cells/[^/]+/reference/.*"),
    (Whose.RANK, rf"{_LAUNCH}/(?:ranks/(?:rank|stage|lines)|traces/rank|logs/rank|events/(?:rank|cores))\d+\..*"),
    (Whose.RANK, rf"{_LAUNCH}/ranks/env\.json"),
    (Whose.RUN, r"scenario\.yaml|env\.json"),
    (Whose.NODE, r".*"),
)
"""The first that a path in a run fits decides; ``cores<r>``: of the machine whose lowest rank is r."""
_PATTERNS: Final = tuple((whose, re.compile(pattern, re.DOTALL)) for whose, pattern in _WHOSE)
_RANK: Final = re.compile(r"(?:rank|stage|lines|cores)(\d+)\.")


@dataclass(frozen=True)
class FoundFile:
    """A file that one or several folders of a run have.

    Attributes:
        name: its path in a run.
        places: in each of the folders that have it, in their order.
    """

    name: str
    places: Mapping[RunFolder, Path]

    @property
    def whose(self) -> Whose:
        """Whose it is."""
        return next(whose for whose, pattern in _PATTERNS if pattern.fullmatch(self.name))

    @property
    def rank(self) -> int:
        """Of a rank's file, whose; rank 0 tells the environment."""
        found = _RANK.match(PurePosixPath(self.name).name)
        return 0 if found is None else int(found[1])

    @property
    def spelled_launch(self) -> str:
        """Of which launch of which cell it is, in words."""
        _, cell, launch, *_ = PurePosixPath(self.name).parts
        return f"{launch} of cell {cell}"

    def find_unlike(self) -> tuple[Path, Path] | None:
        """Return two of its places with other contents; None: they are all alike."""
        first, *others = self.places.values()
        other = next((path for path in others if not are_alike(first, path)), None)
        return None if other is None else (first, other)


def find_files(folders: Sequence[RunFolder]) -> list[FoundFile]:
    """Return every file of several folders of one run, in order of their paths in it."""
    found: dict[str, dict[RunFolder, Path]] = defaultdict(dict)
    for folder in folders:
        for path in folder.path.rglob("*"):
            if path.is_file():
                found[path.relative_to(folder.path).as_posix()][folder] = path
    return [FoundFile(name, found[name]) for name in sorted(found)]


def are_alike(one: Path, other: Path) -> bool:
    """Tell whether two files have the same contents."""
    return filecmp.cmp(one, other, shallow=False)


def find_conflicts(files: Sequence[FoundFile]) -> Iterator[str]:
    """Say which ranks are there twice with other contents, and whether the scenario's words are other ones."""
    for file in files:
        must_agree = file.whose is Whose.RANK or file.name == "scenario.yaml"
        unlike = file.find_unlike() if must_agree else None
        if unlike is not None:
            one, other = unlike
            what = f"rank {file.rank} of {file.spelled_launch} is" if file.whose is Whose.RANK else "the scenario is"
            yield f"{what} there twice, with other contents: {one} and {other}"
    yield from _find_other_traces(files)


def _find_other_traces(files: Sequence[FoundFile]) -> Iterator[str]:
    """Say of which ranks two folders each have a trace that the other has not: they ran twice."""
    traces: dict[tuple[str, int], dict[RunFolder, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file in files:
        if file.whose is Whose.RANK and PurePosixPath(file.name).parent.name == "traces":
            for folder in file.places:
                traces[file.spelled_launch, file.rank][folder].add(file.name)
    for (launch, rank), names in traces.items():
        most = max(names, key=lambda folder: len(names[folder]))
        other = next((folder for folder in names if not names[folder] <= names[most]), None)
        if other is not None:
            yield f"rank {rank} of {launch} has other traces in {most.path} than in {other.path}: it ran twice"
