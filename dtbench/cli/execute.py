"""``dtbench execute``: run a prepared run, by the same command on every node of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import print_aside
from dtbench.cli.page_file import InFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtbench.launch.nodes import Nodes
    from dtbench.launch.run import Engine
    from dtbench.store.records.nodes import NodesRecord


def execute(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or id of a run of `dtbench run --prepare`.")],
    nnodes: Annotated[int | None, typer.Option(help="How many nodes. Left out: as Slurm or a TrainJob says.")] = None,
    node_rank: Annotated[int | None, typer.Option(help="Which of them this is, from 0. Left out: likewise.")] = None,
    rdzv_endpoint: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="Where they meet, on node 0. Left out: likewise.")
    ] = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Wait so long for nodes to come.")] = 300.0,
    silence: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Without a sign of life for so long, a node is gone.")
    ] = 30.0,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
    full: InFull = False,
) -> None:
    """Run a prepared run on one node or several: start this same command on each of them.

    Which nodes there are, Slurm (`srun --ntasks-per-node=1 dtbench execute RUN`) and a Kubeflow TrainJob say; elsewhere
    the options do. Launches that are finished stay, so the same command goes on with a run that was stopped. Node 0
    shows the answer, with the exit codes of `dtbench run`.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch's store says on standard error that it tries again
    from dtbench.launch.nodes import NodeOptions, find_nodes
    from dtbench.store.find_run import find_run

    nodes = find_nodes(os.environ, NodeOptions(nnodes, node_rank, rdzv_endpoint))
    path = find_run(run, results)
    if nodes.index > 0:
        _follow(nodes, path, wait)
        return
    request = _Request(nodes, path, wait, silence)
    from dtbench.base.errors import LaunchError

    try:
        places = _lead(request)
    except LaunchError as error:
        if error.folder is None:
            raise
        from dtbench.cli.run import show_what_there_is

        show_what_there_is(error.folder)
        raise LaunchError(f"{error}; the same command runs the rest", folder=error.folder) from error
    if places is not None and places.apart:
        _say_apart(path, places)
        return
    from dtbench.cli.run import report_run

    report_run(path, as_json=as_json, full=full)


@dataclass(frozen=True)
class _Request:
    """What node 0 was asked for."""

    nodes: "Nodes"
    path: Path
    wait_s: float
    silence_s: float


def _follow(nodes: "Nodes", path: Path, wait_s: float) -> None:
    """Be a node that does what node 0 says, to the end."""
    from dtbench.launch.cluster.agent import Agent

    print_aside(f"node {nodes.index} of {nodes.count}: follows node 0 at {nodes.endpoint}")
    farewell = Agent(nodes, path).follow(wait_s)
    if farewell.exit_code:
        print_aside(f"node 0 has ended: {farewell.said}")
        raise typer.Exit(farewell.exit_code)
    print_aside(f"node {nodes.index} of {nodes.count}: all launches have ended")


def _lead(request: _Request) -> "NodesRecord | None":
    """Run what is left, as node 0; gives where results lie, None: on this machine, the only one."""
    from dtbench.cli.progress import observe
    from dtbench.launch.execute import execute_run, read_prepared
    from dtbench.launch.time_left import TimeLeft
    from dtbench.store.layout import RunFolder
    from dtbench.store.read import read_run

    cells = read_prepared(request.path, read_run(request.path), request.nodes.count)
    is_fresh = not any(RunFolder(request.path).launch(cell.name, 0).launch.exists() for cell in cells)
    time_left = TimeLeft.of(cells, None) if is_fresh else None
    with observe(lambda _path: None, time_left=time_left) as screen, _open_engine(request, screen.on_stop) as engine:
        try:
            execute_run(request.path, engine, nodes=request.nodes.count, observer=screen)
        except KeyboardInterrupt:
            screen.on_stop(f"what was measured before is in {request.path}; the same command runs the rest")
            raise
        from dtbench.launch.cluster.head import Head

        return engine.places if isinstance(engine, Head) else None


@contextmanager
def _open_engine(request: _Request, say: "Callable[[str], None]") -> "Iterator[Engine]":
    if request.nodes.count == 1:
        from dtbench.launch.run import ThisMachine

        yield ThisMachine()
        return
    from dtbench.launch.cluster.head import Head, Patience
    from dtbench.launch.cluster.spawn import spawn_here

    patience = Patience(request.wait_s, request.silence_s)
    with Head(request.nodes, partial(spawn_here, request.nodes, request.path), patience, say=say) as head:
        yield head


def _say_apart(path: Path, places: "NodesRecord") -> None:
    """Say where the rest of the results lies, and what makes the answer of them."""
    from dtbench.base.commands import spell_command
    from dtbench.base.units import count_things

    folders = [f"{one.host}:{one.folder}" for one in places.apart]
    print_aside(
        f"all launches have ended; what ranks of {count_things(len(folders), 'other node')} left lies apart: "
        f"{', '.join(folders)}. Copy it here, then `{spell_command('dtbench', 'merge', str(path))} COPY...` "
        "makes the answer"
    )
