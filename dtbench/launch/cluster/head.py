"""What node 0 does: hold the store in which all nodes meet, say which launch is next, and judge how it ended.

It starts no rank itself: its own node has an agent, too (``dtbench.launch.cluster.agent`` draws who says what).
"""

import secrets
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from dtbench import __version__
from dtbench.base.errors import LaunchError, NodesError, StoreError
from dtbench.base.signals import describe_stop, is_urgent
from dtbench.base.units import NS_PER_S, count_things, name_ranks
from dtbench.launch.blame import Blame, EndKind, RankEnd, blame_ends, tell_failure
from dtbench.launch.cluster.agent import PREFIX
from dtbench.launch.cluster.line import NAP_S, Line, tell_clock
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
from dtbench.launch.cluster.network import find_bind_address, is_loopback
from dtbench.launch.local import close_failed, close_stopped, host_store, write_end
from dtbench.launch.nodes import Nodes, spread_ranks
from dtbench.launch.orders import digest_run
from dtbench.launch.rank_processes import GRACE_S, SETTLE_S
from dtbench.launch.watch import POLL_S, HangJudge, Views
from dtbench.store.finish import finish_launch
from dtbench.store.journal import JournalView
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_launch, read_run
from dtbench.store.records.nodes import NodePlace, NodesRecord
from dtbench.store.records.run import RunStatus, WorkerOrder
from dtbench.store.write import find_no_room, write_record, write_text

_SAY_AFTER_S: Final = 2.0
_PLACE_S: Final = 60.0
_READY_S: Final = 60.0
_LEAVING_S: Final = 120.0
"""At most; a node whose folder lies apart writes the tables of its last launch meanwhile."""
_LOST: Final = "was lost with its node, which {}"


@dataclass(frozen=True)
class Patience:
    """How long node 0 waits.

    Attributes:
        wait_s: for all nodes to come.
        silence_s: for a sign of life of a node that runs ranks.
    """

    wait_s: float = 300.0
    silence_s: float = 30.0


@dataclass
class _Node:
    """What is known of one node; ``gone``: why it is not there any more."""

    index: int
    hello: Hello
    place: Place | None = None
    beats: int = -1
    beaten_s: float = 0.0
    looks: tuple[RankLook, ...] = ()
    gone: str | None = None

    @property
    def name(self) -> str:
        return f"node {self.index} ({self.hello.host})"


@dataclass
class Head:
    """Leads the agents of all nodes; as a context it holds their store, and leaving it bids them farewell.

    Attributes:
        nodes: this is the first of them.
        spawn: starts the agents that this process is to start, at an address of node 0; gives their processes.
        patience: how long it waits.
        say: told what a person may want to know.
    """

    nodes: Nodes
    spawn: Callable[[str], Sequence["subprocess.Popen[bytes]"]]
    patience: Patience = field(default_factory=Patience)
    say: Callable[[str], None] = lambda _sentence: None
    _stack: ExitStack = field(default_factory=ExitStack)
    _processes: Sequence["subprocess.Popen[bytes]"] = ()
    _came: set[int] = field(default_factory=set)
    _met: list[_Node] = field(default_factory=list)
    _line: Line | None = None
    _address: str = ""
    _next: int = 0
    _run: RunFolder | None = None
    _failed: str | None = None

    def __enter__(self) -> Self:
        self._address = find_bind_address(self.nodes.head)
        try:
            store, _ = self._stack.enter_context(host_store(self._address, 4 * self.nodes.count, self.nodes.port))
        except OSError as error:
            raise NodesError(
                f"{self.nodes.endpoint}: this node cannot listen there ({error.strerror}): another process does, or "
                "this is not node 0; say where nodes meet with --rdzv-endpoint HOST:PORT"
            ) from error
        from torch.distributed import PrefixStore

        self._line = Line(PrefixStore(PREFIX, store))
        self._processes = self.spawn(f"{self._address or self.nodes.head}:{self.nodes.port}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        stopped = describe_stop(error) if isinstance(error, KeyboardInterrupt) else None
        said = self._failed or stopped or (None if error is None else str(error))
        run = None
        if self._run is not None:
            with suppress(OSError):
                run = self._run.run.read_text(encoding="utf-8")
        with suppress(NodesError):
            if not self._met:
                self.line.put("welcome", self._welcome((), said or "node 0 has ended", (), ""))
            code = 0 if said is None else getattr(error, "exit_code", 4)
            self.line.put(f"next/{self._next}", Next(farewell=Farewell(exit_code=code, said=said, run=run)))
        self._await_leaving()
        self._stack.close()

    def _await_leaving(self) -> None:
        """Let every node that is alive hear the farewell, and write what it has to: the store is gone after."""
        with suppress(NodesError):
            end_s = time.monotonic() + _LEAVING_S
            while not is_urgent() and time.monotonic() < end_s and any(map(self._is_leaving, self._came)):
                time.sleep(NAP_S)
        end_s = time.monotonic() + 2 * GRACE_S
        while time.monotonic() < end_s and not is_urgent() and any(one.poll() is None for one in self._processes):
            time.sleep(NAP_S)
        for process in self._processes:
            if process.poll() is None:
                process.terminate()

    def _is_leaving(self, index: int) -> bool:
        """Tell whether a node has still to part, and lives."""
        node = next((one for one in self._met if one.index == index), None)
        if node is not None and node.gone is None:
            _look_alive(self.line, node, self.patience.silence_s)
        return not self._has_parted(index) and (node is None or node.gone is None)

    def _has_parted(self, node: int) -> bool:
        return self.line.find(f"parted/{node}") is not None or self.line.find(f"left/{node}") is not None

    @property
    def line(self) -> Line:
        """The line to all agents."""
        assert self._line is not None
        return self._line

    def begin(self, folder: RunFolder, finished: frozenset[tuple[str, int]]) -> frozenset[tuple[str, int]]:
        """Meet all nodes for a run; gives the finished launches of which each node has its part.

        Raises:
            NodesError: one has not come in time.
            StoreError: one was started for another run, or with other versions.
        """
        hellos = self._await_hellos()
        token = f".meets-{secrets.token_hex(8)}"
        write_text(folder.path / token, "")
        try:
            refusal = self._find_refusal(folder, hellos)
            self.line.put("welcome", self._welcome(hellos, refusal, tuple(sorted(finished)), str(folder.path), token))
            if refusal is not None:
                raise StoreError(refusal)
            self._met = [_Node(index, hello, beaten_s=time.monotonic()) for index, hello in enumerate(hellos)]
            for node in self._met:
                node.place = self._await_place(node)
        finally:
            (folder.path / token).unlink(missing_ok=True)
        refused = next((node.place.refusal for node in self._met if node.place and node.place.refusal), None)
        if self._met[0].place is not None and self._met[0].place.is_apart:
            refused = f"{self._met[0].name} does not see {folder.path}: choose --results in a folder that it shares"
        if refused is not None:
            raise StoreError(refused)
        self._run = folder
        self._tell_places(folder)
        return finished - {one for node in self._met if node.place for one in node.place.lacks}

    @property
    def places(self) -> NodesRecord:
        """Where the results of each node lie."""
        return NodesRecord(
            node=0,
            nodes=tuple(
                NodePlace(node=one.index, host=one.hello.host, folder=one.place.folder, is_apart=one.place.is_apart)
                for one in self._met
                if one.place is not None
            ),
        )

    def _tell_places(self, folder: RunFolder) -> None:
        places = self.places
        write_record(folder.nodes, places)
        self.line.put(f"next/{self._take_number()}", Next(places=places))
        hosts = ", ".join(one.host for one in places.nodes)
        self.say(f"{count_things(len(places.nodes), 'node')}: {hosts}")
        for one in places.apart:
            self.say(f"node {one.node} ({one.host}) does not share this folder: its results lie in {one.folder} there")

    def _welcome(
        self,
        hellos: Sequence[Hello],
        refusal: str | None,
        finished: tuple[tuple[str, int], ...],
        run: str,
        token: str = "",
    ) -> Welcome:
        seen = [one.head_address for one in hellos[1:] if not is_loopback(one.head_address)]
        own = hellos[0].head_address if hellos else ""
        return Welcome(
            refusal=refusal,
            head_address=seen[0] if seen else own,
            run=run,
            token=token,
            finished=finished,
            silence_s=self.patience.silence_s,
            hosts=tuple(one.host for one in hellos),
        )

    def _await_hellos(self) -> list[Hello]:
        began_s, has_said = time.monotonic(), False
        found: dict[int, Hello] = {}
        while len(found) < self.nodes.count:
            for node in range(self.nodes.count):
                if node not in found and (hello := self.line.find_record(f"hello/{node}", Hello)) is not None:
                    found[node] = hello
                    self._came.add(node)
            waited_s, lacking = time.monotonic() - began_s, [one for one in range(self.nodes.count) if one not in found]
            self._refuse_ended_agents(lacking)
            if waited_s > _SAY_AFTER_S and lacking and not has_said:
                has_said = True
                self.say(
                    f"waiting for {_name_nodes(lacking)} of {self.nodes.count}, {self.patience.wait_s:g} s at most"
                )
            if waited_s > self.patience.wait_s:
                came = ", ".join(f"{node} ({found[node].host})" for node in sorted(found)) or "none"
                raise NodesError(
                    f"{_name_nodes(lacking)} did not come to {self.nodes.endpoint} within {self.patience.wait_s:g} s "
                    f"(came: {came}): start the same command on every node"
                )
            time.sleep(NAP_S)
        return [found[node] for node in range(self.nodes.count)]

    def _refuse_ended_agents(self, lacking: Sequence[int]) -> None:
        ended = next((one for one in self._processes if one.poll() not in (None, 0)), None)
        if ended is not None and lacking:
            raise NodesError(
                f"{_name_nodes(lacking)} cannot come: what was to start there ended with exit code "
                f"{ended.returncode}, see above"
            )

    def _find_refusal(self, folder: RunFolder, hellos: Sequence[Hello]) -> str | None:
        """Say why nodes cannot run together."""
        record = read_run(folder.path)
        for node, one in enumerate(hellos):
            name = f"node {node} ({one.host})"
            if one.dtbench != __version__:
                return f"{name} has dtbench {one.dtbench}, and node 0 has {__version__}: install one version on all"
            if one.torch != hellos[0].torch:
                return f"{name} has torch {one.torch}, and node 0 has {hellos[0].torch}: install one version on all"
            if one.run_id not in (None, record.run_id):
                return (
                    f"{name} was started for run {one.run_id}, and node 0 for {record.run_id}: start the same command "
                    "on every node"
                )
            if one.digest not in (None, digest_run(record)):
                return (
                    f"{name} has another plan in {one.run} than node 0 has: copy the prepared run to every node again"
                )
        return None

    def _await_place(self, node: _Node) -> Place:
        place, end_s = None, time.monotonic() + _PLACE_S
        while place is None:
            place = self.line.find_record(f"place/{node.index}", Place)
            left = self.line.find(f"left/{node.index}")
            if place is None and (left is not None or time.monotonic() > end_s):
                raise NodesError(f"{node.name} does not say where its results will lie: {left or 'it is silent'}")
            time.sleep(NAP_S)
        return place

    def launch(
        self,
        order: WorkerOrder,
        folder: LaunchFolder,
        *,
        on_look: Callable[[Views], None],
    ) -> None:
        """Run one launch on all nodes to its end, as ``launch_ranks`` does on one machine.

        Raises:
            LaunchError: a rank raised, was killed or hung; names it and its host.
            NodesError: a node is gone, or was started for something else; no other launch can follow.
            KeyboardInterrupt: the user stopped it.
        """
        number = self._take_number()
        write_record(folder.order, order)
        began_ns = time.monotonic_ns()
        alone = tuple(one.index for one in self._met if one.index == 0 or (one.place and one.place.is_apart))
        task = self._make_task(order, folder, alone if order.is_reference else ())
        launch = _Launch(self.line, self._met, task, folder, number, on_look, self.patience.silence_s)
        try:
            with host_store(self._address, order.plan.ranks) as (_store, port):
                launch.run(port, f"{self._run.path.name if self._run else ''}-{task.folder}-{number}")
            _close(launch, order, folder, began_ns)
        except KeyboardInterrupt as stop:
            with suppress(StoreError):  # a full disk must not hide who stopped it
                close_stopped(order, folder, describe_stop(stop), began_ns)
            raise
        except NodesError as error:
            self._failed = str(error)
            raise
        finally:
            with suppress(StoreError, NodesError):
                record = read_launch(folder) if folder.launch.exists() else None
                self.line.put(f"verdict/{number}", Verdict(launch=record))

    def _take_number(self) -> int:
        self._next += 1
        return self._next - 1

    def _make_task(self, order: WorkerOrder, folder: LaunchFolder, alone: tuple[int, ...]) -> Task:
        assert self._run is not None
        spread = spread_ranks(order.plan.ranks, self.nodes.count)
        below = self._run.path
        return Task(
            order=order,
            digest=order.digest,
            folder=str(folder.path.relative_to(below)),
            reference=None if order.reference is None else str(Path(order.reference).relative_to(below)),
            ranks=tuple((one.start, one.stop) for one in spread),
            alone=alone,
            port=0,
            rendezvous="",
        )


@dataclass
class _Launch:
    """One launch as it runs on all nodes; ``ends``: of the nodes on which it has ended."""

    line: Line
    nodes: list[_Node]
    task: Task
    folder: LaunchFolder
    number: int
    on_look: Callable[[Views], None]
    silence_s: float
    ends: dict[int, NodeEnd] = field(default_factory=dict)
    _held_up: bool = False

    def run(self, port: int, rendezvous: str) -> None:
        """Have all nodes agree on what they start, then wait until it has ended on each.

        Raises:
            NodesError: they do not agree, or one is gone before.
        """
        task = self.task.model_copy(update={"port": port, "rendezvous": rendezvous})
        self.line.put(f"next/{self.number}", Next(task=task))
        try:
            refusal = self._await_ready()
        except NodesError as error:
            self.line.put(f"go/{self.number}", str(error))
            raise
        self.line.put(f"go/{self.number}", refusal or "")
        if refusal is not None:
            raise NodesError(refusal)
        tell_clock(self.line, {one.index: f"clock/{self.number}/{one.index}" for one in self.nodes})
        judge = HangJudge(
            task.order.plan.ranks,
            stall_timeout_ns=task.order.plan.stall_timeout_ns,
            find_stopped=lambda _views: tuple(one.rank for one in self._looks() if one.is_stopped),
        )
        try:
            while self._lacks_any():
                self._look(judge)
                time.sleep(POLL_S if self._lacks_any() else 0)
        except KeyboardInterrupt:
            self.line.put(f"over/{self.number}")
            end_s = time.monotonic() + SETTLE_S + 2 * GRACE_S
            while self._lacks_any() and time.monotonic() < end_s and not is_urgent():
                time.sleep(NAP_S)
            raise

    def _await_ready(self) -> str | None:
        """Return why a node refuses; None: all are ready."""
        refusal, end_s = None, time.monotonic() + _READY_S
        for node in self.nodes:
            while (said := self.line.find(f"ready/{self.number}/{node.index}")) is None:
                _look_alive(self.line, node, self.silence_s)
                if node.gone is not None:
                    raise NodesError(f"{node.name} {node.gone}, before {self.task.order.words} began")
                if time.monotonic() > end_s:
                    raise NodesError(f"{node.name} is not ready for {self.task.order.words} after {_READY_S:g} s")
                time.sleep(NAP_S)
            refusal = refusal or said or None
        return refusal

    def _lacks_any(self) -> bool:
        """Ask who has ended; tells whether somebody has not, and is there."""
        lacking = [one for one in self.nodes if one.index not in self.ends and one.gone is None]
        for node in lacking:
            end = self.line.find_record(f"ended/{self.number}/{node.index}", NodeEnd)
            if end is not None:
                self.ends[node.index] = end
                if end.failure is not None:
                    self.line.put(f"over/{self.number}")
        return any(one.index not in self.ends for one in lacking)

    def _look(self, judge: HangJudge) -> None:
        for node in self.nodes:
            looks = self.line.find_record(f"look/{self.number}/{node.index}", Looks)
            node.looks = () if looks is None else looks.ranks
            if node.index not in self.ends and node.gone is None:
                _look_alive(self.line, node, self.silence_s)
                if node.gone is not None:
                    self.line.put(f"over/{self.number}")
        views = self.views
        with suppress(OSError, ValueError):  # a screen that is gone
            self.on_look(views)
        held_up = {} if self._held_up or self.task.alone else judge.judge(views)
        if held_up:
            self._held_up = True
            self.line.put(f"held/{self.number}", HeldUp(ranks=dict(held_up)))

    def _looks(self) -> list[RankLook]:
        return [look for node in self.nodes for look in node.looks]

    @property
    def views(self) -> Views:
        """What was last seen of all ranks."""
        found: dict[int, JournalView] = {look.rank: look.view for look in self._looks()}
        return tuple(found.get(rank) for rank in range(self.task.order.plan.ranks))

    @property
    def gone(self) -> list[_Node]:
        """Nodes that are not there any more, and did not say how the launch ended there."""
        return [one for one in self.nodes if one.gone is not None and one.index not in self.ends]

    def find_ends(self) -> list[RankEnd]:
        """Return how each rank ended that did not end well."""
        ends = [one for end in self.ends.values() for one in end.ends]
        for node in self.gone:
            seen = {look.rank: look.view for look in node.looks}
            for rank in range(*self.task.ranks[node.index]):
                what = _LOST.format(node.gone)
                failure = tell_failure(rank, what, seen.get(rank), host=node.hello.host)
                ends.append(
                    RankEnd(failure=failure, kind=EndKind.FROM_OUTSIDE, began_ns=round(node.beaten_s * NS_PER_S))
                )
        return ends


def _look_alive(line: Line, node: _Node, silence_s: float) -> None:
    """Note a sign of life, or that there is none any more."""
    left = line.find(f"left/{node.index}")
    if left is not None:
        node.gone = f"ended ({left})"
        return
    beats, now_s = line.count(f"beat/{node.index}"), time.monotonic()
    if beats != node.beats:
        node.beats, node.beaten_s = beats, now_s
    elif now_s - node.beaten_s > silence_s:
        node.gone = f"gave no sign of life for {silence_s:g} s"


def _close(launch: _Launch, order: WorkerOrder, folder: LaunchFolder, began_ns: int) -> None:
    """Write how a launch ended.

    Raises:
        LaunchError: not well; all nodes are there.
        NodesError: a node is gone.
    """
    try:
        _close_on_all(launch, order, folder, began_ns)
    except LaunchError as error:
        if launch.gone:
            raise NodesError(str(error)) from error
        raise


def _close_on_all(launch: _Launch, order: WorkerOrder, folder: LaunchFolder, began_ns: int) -> None:
    failed = {one.index: launch.ends[one.index].failure for one in launch.nodes if one.index in launch.ends}
    said = [f"on {launch.nodes[node].name}: {why}" for node, why in failed.items() if why is not None]
    if order.is_reference:
        said += [f"{node.name} {node.gone}" for node in launch.gone if node.index in launch.task.alone]
        if said:
            raise LaunchError("; ".join(said))
        return
    ends = launch.find_ends()
    if not ends and said:
        write_end(order, folder, RunStatus.FAILED, said[0], (), began_ns)
        raise LaunchError(said[0])
    if ends:
        _blame(launch, order, folder, began_ns, blame_ends(ends, no_room=find_no_room(folder.path)))
    elif folder.launch.exists():
        finish_launch(folder, read_launch(folder), ranks=order.plan.ranks)  # now that every node's files are there
    else:
        write_end(order, folder, RunStatus.COMPLETE, None, (), began_ns)


def _blame(launch: _Launch, order: WorkerOrder, folder: LaunchFolder, began_ns: int, blame: Blame) -> None:
    is_shared = not any(one.place is not None and one.place.is_apart for one in launch.nodes)
    if is_shared:
        close_failed(order, folder, blame, began_ns)
        return
    has_all = not launch.gone and all(end.has_results for end in launch.ends.values())
    status = RunStatus.COMPLETE if has_all else RunStatus.FAILED
    with suppress(StoreError):  # a full disk must not hide why the rank failed
        write_end(order, folder, status, blame.sentence, blame.failures, began_ns)
    if not has_all:
        raise LaunchError(blame.sentence)


def _name_nodes(nodes: Iterable[int]) -> str:
    return name_ranks(nodes).replace("rank", "node")
