"""How well replays of unchanged steps give the steps that they were read from, over runs and trace sets.

``python -m tests.benchmarks.replay_fits RUN|TRACES... [--record FILE]`` prints for every launch by how much its steps
are off, in the middle and at most, or why it is refused; then the same over all launches, and for each class of edges
the worst step of any launch without it. The aim: 1 % in the middle, 3 % at most, a tenth of the launches refused.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dtbench.base.errors import DtbenchError
from dtbench.replay.fit import measure_fit
from dtbench.replay.graph import ALL_EDGES, Edge
from dtbench.replay.read import read_graph
from dtbench.store.find_run import is_run
from dtbench.store.layout import LaunchFolder
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.rows.launch_tables import read_launch_traces


class Fitted(msgspec.Struct, omit_defaults=True):
    """One launch, or one set of traces.

    Attributes:
        name: of the folder, from its run on.
        misfits: by which share of itself each step is off.
        refused: why there are none.
        without: by class of edges, the worst misfit of any step without it.
    """

    name: str
    misfits: list[float] = []
    refused: str = ""
    without: dict[str, float] = {}

    @property
    def worst(self) -> float:
        """Of its steps."""
        return max(map(abs, self.misfits), default=0.0)


def find_launches(paths: Sequence[Path]) -> Iterator[tuple[str, Path, bool]]:
    """Yield name, place and whether it is a launch, of every launch of runs below folders, and every set of traces."""
    for path in paths:
        runs = [path] if is_run(path) else sorted(one.parent for one in path.rglob("run.json"))
        if not runs:
            yield path.name, path, False
        for run in runs:
            for launch in sorted(run.glob("cells/*/launch*")):
                yield f"{run.parent.name}/{launch.parent.name}/{launch.name}", launch, True


def fit(name: str, path: Path, *, is_launch: bool) -> Fitted:
    """Replay one launch as it was, and without each class of edges."""
    try:
        traces: TraceSet = read_launch_traces(LaunchFolder(path)) if is_launch else analyze_traces([path], workers=1)
        recorded = read_graph(traces)
        found = measure_fit(recorded)
        without = {str(edge.value): measure_fit(recorded, ALL_EDGES - {edge}).worst for edge in Edge}
    except DtbenchError as error:
        return Fitted(name, refused=str(error))
    return Fitted(name, list(found.misfits), "" if found.holds else f"off by {found.worst:.1%}", without)


def _record(fits: Sequence[Fitted], path: Path) -> None:
    """Write launches beside others that are there."""
    there = msgspec.json.decode(path.read_bytes(), type=list[Fitted]) if path.exists() else []
    names = {one.name for one in fits}
    every = sorted([*(one for one in there if one.name not in names), *fits], key=lambda one: one.name)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(every), indent=1))
    print("all that are recorded:", *_describe(every), sep="\n  ")


def _describe(fits: Sequence[Fitted]) -> Iterator[str]:
    kept = [one for one in fits if not one.refused]
    worst = [one.worst for one in kept]
    if not worst:
        return
    yield (
        f"{len(fits)} launches, {len(fits) - len(kept)} refused; of the others the worst steps are off by "
        f"{statistics.median(worst):.2%} in the middle, {max(worst):.2%} at most"
    )
    for edge in Edge:
        yield f"without {edge.value}: up to {max(one.without[str(edge.value)] for one in kept):.1%}"


def main() -> None:
    """Print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    fits = []
    for name, path, is_launch in find_launches(arguments.paths):
        one = fit(name, path, is_launch=is_launch)
        fits.append(one)
        said = one.refused if not one.misfits else f"{statistics.median(map(abs, one.misfits)):.2%}  {one.worst:.2%}"
        print(f"{name:70} {said}", flush=True)
    print(*_describe(fits), sep="\n")
    if arguments.record is not None:
        _record(fits, arguments.record)


if __name__ == "__main__":
    main()
