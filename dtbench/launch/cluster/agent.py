"""What one node does: start its ranks of one launch after another, as node 0 says, and tell how they ended.

::

    agent                         node 0
    hello                  ->     all have come: the same run, the same versions?
                           <-     welcome, or a refusal
    where its results lie  ->
                           <-     task: a launch, and the digest of its order
    ready, or a refusal    ->     all are ready
                           <-     go
    asks for the time      <->
    looks, ..., its end    ->     (an end that is none of the good ones ends the launch on all nodes)
                           <-     verdict; the next task, or a farewell

``python -m dtbench.launch.cluster.agent`` is one, for ``srun`` and for node 0 itself.
"""

import argparse
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from dtbench import __version__
from dtbench.base.errors import DtbenchError, LaunchError, NodesError, StoreError
from dtbench.base.signals import describe_stop, heed_signals, is_urgent
from dtbench.launch.blame import describe_ends, is_early
from dtbench.launch.cluster.line import Line, Pulse, measure_offset
from dtbench.launch.cluster.messages import (
    Farewell,
    HeldUp,
    Hello,
    Looks,
    Next,
    NodeEnd,
    Place,
    RankLook,
    Task,
    Verdict,
    Welcome,
)
from dtbench.launch.cluster.network import await_head, find_interface
from dtbench.launch.local import ONE_NODE, WORKER, launch_ranks, make_environment, variables_of
from dtbench.launch.machine import read_torch_version
from dtbench.launch.memory import count_oom_kills, read_oom_kills
from dtbench.launch.nodes import NodeOptions, Nodes, find_nodes
from dtbench.launch.orders import digest_run, make_order, make_reference_order
from dtbench.launch.rank_processes import RankProcess, RankProcesses
from dtbench.launch.watch import Views, Watch, find_stopped
from dtbench.machine.processes import die_with_parent
from dtbench.store.finish import finish_launch
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.lock import hold_run
from dtbench.store.read import read_run
from dtbench.store.records.run import CellRecord, RunRecord, WorkerOrder
from dtbench.store.write import write_record, write_text

PREFIX: Final = "dtbench"
"""Of all keys in the store."""
_PUBLISH_S: Final = 0.5
_SEE_S: Final = 5.0
"""A shared folder may show late what another node has written."""
_CONNECT_S: Final = 30.0
_WELCOME_S: Final = 600.0


@dataclass
class Agent:
    """One node's side.

    Attributes:
        nodes: which of how many it is.
        prepared: folder of the prepared run as this node has it; None: node 0 says where the run is.
        host: its name.
    """

    nodes: Nodes
    prepared: Path | None = None
    host: str = field(default_factory=socket.gethostname)
    _record: RunRecord | None = None

    def follow(self, wait_s: float) -> Farewell:
        """Do as node 0 says until nothing is left to do; waits so long for node 0 to come.

        Raises:
            NodesError: node 0 does not come, or is gone; or what this node was started for is something else.
            StoreError: its folder cannot be read or written.
            KeyboardInterrupt: somebody stopped this node; node 0 hears of it.
        """
        head_address, address = await_head(self.nodes.head, self.nodes.port, wait_s)
        # both now: node 0 does not end while its nodes have come and not parted, but it may before they come
        line, beats = (Line(_connect(head_address, self.nodes.port)) for _ in range(2))
        me = self.nodes.index
        try:
            welcome = self._meet(line, head_address, address)
            place = self._find_place(welcome)
            own = hold_run(RunFolder(Path(place.folder))) if place.is_apart else nullcontext()
            with own, Pulse(beats, me, welcome.silence_s) as pulse:
                line.put(f"place/{me}", place)
                reached = welcome.head_address if me == 0 else address
                farewell = _Following(self, place, line, pulse, head_address, find_interface(reached)).follow()
                line.put(f"parted/{me}")
                return farewell
        except KeyboardInterrupt as stop:
            _leave(line, me, describe_stop(stop))
            raise
        except DtbenchError as error:
            _leave(line, me, str(error))
            raise

    def _meet(self, line: Line, head_address: str, address: str) -> Welcome:
        me = self.nodes.index
        record = self._record = None if self.prepared is None else read_run(self.prepared)
        hello = Hello(
            host=self.host,
            pid=os.getpid(),
            dtbench=__version__,
            torch=read_torch_version(),
            address=address,
            head_address=head_address,
            run=None if self.prepared is None else str(self.prepared.resolve()),
            run_id=None if record is None else record.run_id,
            digest=None if record is None else digest_run(record),
        )
        if line.count(f"came/{me}", 1) > 1:
            raise NodesError(f"node {me} was started twice: {self.host} is the second that says so")
        line.put(f"hello/{me}", hello)
        said = line.wait("welcome", _WELCOME_S)
        if said is None:
            raise NodesError(f"node 0 said nothing for {_WELCOME_S:g} s")
        welcome = Welcome.model_validate_json(said)
        if welcome.refusal is not None:
            raise StoreError(welcome.refusal)
        return welcome

    def find_digest(self, order: WorkerOrder) -> str | None:
        """Return the digest that this node's copy of the run has of an order; None: it has none, or not this launch."""
        cells = () if self._record is None else self._record.cells
        for cell in cells:
            if isinstance(cell, CellRecord) and cell.name == order.cell:
                nowhere = LaunchFolder(Path())
                own = make_order(cell, order.index, nowhere, None)
                return (make_reference_order(cell, nowhere) if order.is_reference else own).digest
        return None

    def _find_place(self, welcome: Welcome) -> Place:
        here = Path(welcome.run) if self.prepared is None else self.prepared.resolve()
        is_apart = not _sees(here / welcome.token)
        refusal: str | None = None
        lacks: tuple[tuple[str, int], ...] = ()
        if is_apart:
            lacks = tuple(one for one in welcome.finished if not RunFolder(here).launch(*one).launch.exists())
        elif str(here) != welcome.run:
            refusal = f"a shared folder has one path: it is {welcome.run} on node 0 and {here} on {self.host}"
        return Place(folder=str(here), is_apart=is_apart, lacks=lacks, refusal=refusal)


@dataclass
class _Following:
    """An agent that has been welcomed."""

    agent: Agent
    place: Place
    line: Line
    pulse: Pulse
    head_address: str
    interface: str | None
    published_s: float = 0.0

    @property
    def me(self) -> int:
        return self.agent.nodes.index

    def follow(self) -> Farewell:
        """Run task after task."""
        run, number = RunFolder(Path(self.place.folder)), -1
        while True:
            number += 1
            coming = Next.model_validate_json(self.pulse.wait(f"next/{number}"))
            if coming.places is not None and self.place.is_apart:
                write_record(run.nodes, coming.places.model_copy(update={"node": self.me}))
            if coming.farewell is not None:
                if self.place.is_apart and coming.farewell.run is not None:
                    write_text(run.run, coming.farewell.run)
                return coming.farewell
            if coming.task is not None:
                self._do(run, coming.task, number)

    def _do(self, run: RunFolder, task: Task, number: int) -> None:
        """Run this node's part of one launch.

        Raises:
            NodesError: nodes were started for different things, or node 0 is gone.
        """
        folder = LaunchFolder(run.path / task.folder)
        order = self._localise(task, folder)
        self.line.put(f"ready/{number}/{self.me}", self._find_refusal(task))
        refused = self.pulse.wait(f"go/{number}")
        if refused:
            raise NodesError(refused)
        offset_ns = measure_offset(self.line, f"clock/{number}/{self.me}")
        if self.place.is_apart:
            if not task.order.is_reference and folder.path.exists():
                shutil.rmtree(folder.path)  # of a launch that did not end well on all nodes
            write_record(folder.order, order)
        try:
            end = (
                self._run_alone(task, order, folder, number)
                if task.alone
                else self._run_ranks(task, order, folder, number)
            )
        except StoreError as error:
            end = NodeEnd(ends=(), has_results=False, failure=str(error))
        if self.pulse.is_lost:
            raise NodesError("node 0 is gone: it has ended, or does not answer any more; this node's ranks were ended")
        ends = tuple(one.model_copy(update={"began_ns": one.began_ns + offset_ns}) for one in end.ends)
        self.line.put(f"ended/{number}/{self.me}", end.model_copy(update={"ends": ends}))
        verdict = Verdict.model_validate_json(self.pulse.wait(f"verdict/{number}"))
        if self.place.is_apart and verdict.launch is not None:
            finish_launch(folder, verdict.launch, ranks=order.plan.ranks)

    def _localise(self, task: Task, folder: LaunchFolder) -> WorkerOrder:
        """Return the order with this node's paths."""
        reference = None if task.reference is None else str(Path(self.place.folder) / task.reference)
        return task.order.model_copy(update={"folder": str(folder.path), "reference": reference})

    def _find_refusal(self, task: Task) -> str:
        """Say why this node cannot take part; empty: it can."""
        own = self.agent.find_digest(task.order)
        if own is not None and own != task.digest:
            return (
                f"{task.order.words} is another on node {self.me} ({self.agent.host}) than on node 0: orders "
                f"{own} and {task.digest}; copy the prepared run to every node again"
            )
        return ""

    def _run_alone(self, task: Task, order: WorkerOrder, folder: LaunchFolder, number: int) -> NodeEnd:
        """Run a single process, where its results are not there yet."""
        if self.me not in task.alone or folder.reference_data.exists():
            return NodeEnd(ends=(), has_results=True)
        try:
            launch_ranks(order, folder, on_look=self._publisher(number))
        except LaunchError as error:
            return NodeEnd(ends=(), has_results=False, failure=str(error))
        return NodeEnd(ends=(), has_results=folder.reference_data.exists())

    def _run_ranks(self, task: Task, order: WorkerOrder, folder: LaunchFolder, number: int) -> NodeEnd:
        here = range(*task.ranks[self.me])
        if not here:
            return NodeEnd(ends=(), has_results=True)
        over, oom_kills = f"over/{number}", read_oom_kills()
        watch = Watch(
            folder,
            ranks=here,
            device=order.plan.device,
            judge=lambda _views: self._find_held_up(number),
            on_look=self._publisher(number),
        )
        with watch:
            processes = RankProcesses(
                [self._make_process(task, order, folder, rank) for rank in here],
                is_urgent=is_urgent,
                has_failed=lambda one: one.exit_code != 0 or is_early(folder, one.rank),
                on_failure=lambda: self._tell_failure(over, watch),
                is_over=lambda: self.pulse.is_lost or self.pulse.find(over) is not None,
                first=here.start,
            )
            try:
                with processes:
                    processes.wait()
            except LaunchError as error:
                self.line.put(over)
                return NodeEnd(ends=(), has_results=False, failure=str(error))
        self.pulse.forget(over)
        self.pulse.forget(f"held/{number}")
        ran_out, host = count_oom_kills(oom_kills), self.agent.host
        ends = describe_ends(folder, processes.ended, held_up=watch.held_up, oom_kills=ran_out, host=host)
        return NodeEnd(ends=tuple(ends), has_results=all(folder.rank_record(rank).exists() for rank in here))

    def _make_process(self, task: Task, order: WorkerOrder, folder: LaunchFolder, rank: int) -> RankProcess:
        here, ranks = range(*task.ranks[self.me]), order.plan.ranks
        python, *arguments = WORKER
        variables = {
            **make_environment(order, self.interface),
            **ONE_NODE,
            **variables_of(rank, ranks, here),
            "GROUP_RANK": str(self.me),
            "GROUP_WORLD_SIZE": str(task.nodes),
            "MASTER_ADDR": self.head_address,
            "MASTER_PORT": str(task.port),
            "TORCHELASTIC_RUN_ID": task.rendezvous,
        }
        command = (order.scenario.python or python, *arguments, "--order", str(folder.order))
        return RankProcess(command, variables, folder.log(rank))

    def _tell_failure(self, over: str, watch: Watch) -> None:
        watch.note_stopped()
        with suppress(NodesError):
            self.line.put(over)

    def _find_held_up(self, number: int) -> Mapping[int, str]:
        said = self.pulse.find(f"held/{number}")
        return {} if said is None else HeldUp.model_validate_json(said).ranks

    def _publisher(self, number: int) -> Callable[[Views], None]:
        """Return what tells node 0 of a look, not at each."""

        def publish(views: Views) -> None:
            if time.monotonic() - self.published_s < _PUBLISH_S:
                return
            self.published_s = time.monotonic()
            stopped = find_stopped(views)
            looks = [RankLook.of(view, is_stopped=view.rank in stopped) for view in views if view is not None]
            with suppress(NodesError):
                self.line.put(f"look/{number}/{self.me}", Looks(ranks=tuple(looks)))

        return publish


def _sees(token: Path) -> bool:
    """Tell whether a file of node 0's is there; a network's file system may take its time to show it."""
    end_s = time.monotonic() + _SEE_S
    while not token.exists() and token.parent.exists() and time.monotonic() < end_s:
        with suppress(OSError):
            list(token.parent.iterdir())  # has some of them look again
        time.sleep(0.1)
    return token.exists()


def _leave(line: Line, node: int, why: str) -> None:
    with suppress(NodesError):
        line.put(f"left/{node}", why)


def _connect(address: str, port: int) -> Any:
    """Return a connection to the store of node 0.

    Raises:
        NodesError: nothing listens there any more, or what does is no store.
    """
    from torch.distributed import PrefixStore, TCPStore

    _probe(address, port)  # torch would try for the whole time where node 0 has ended
    try:
        store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=_CONNECT_S))
    except RuntimeError as error:
        _probe(address, port)
        raise NodesError(f"{address}:{port}: something else than dtbench listens there; choose another port") from error
    return PrefixStore(PREFIX, store)


def _probe(address: str, port: int) -> None:
    try:
        socket.create_connection((address, port), timeout=_CONNECT_S).close()
    except OSError as error:
        raise NodesError(f"node 0 was there at {address}:{port} and is gone: it has ended; see what it says") from error


def main() -> None:
    """Be the agent of one node of `dtbench run`, or of node 0."""
    parser = argparse.ArgumentParser(prog="python -m dtbench.launch.cluster.agent", description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--node", type=int, default=None)
    parser.add_argument("--wait-s", type=float, required=True)
    parser.add_argument("--prepared", type=Path, default=None)
    given = parser.parse_args()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it says on standard error of each try that it tries
    if given.node is not None:
        die_with_parent()
    options = NodeOptions(given.nodes, given.node if given.node is not None else _find_node(), given.endpoint)
    with heed_signals(to_the_end=True):
        try:
            farewell = Agent(find_nodes(os.environ, options), given.prepared).follow(given.wait_s)
        except KeyboardInterrupt as stop:
            sys.exit(getattr(stop, "exit_code", 130))
        except DtbenchError as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(error.exit_code)
    sys.exit(farewell.exit_code)


def _find_node() -> int:
    return find_nodes(os.environ).index


if __name__ == "__main__":
    main()
