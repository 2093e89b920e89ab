"""What node 0 and the agents of all nodes tell each other, as JSON in the store that they share."""

from dtbench.base.record import Record
from dtbench.base.vocabulary import Phase, Region
from dtbench.launch.blame import RankEnd
from dtbench.store.journal import JournalView, RankState, StepTiming
from dtbench.store.records.nodes import NodesRecord
from dtbench.store.records.run import LaunchRecord, WorkerOrder


class Hello(Record):
    """An agent has come.

    Attributes:
        host: its name.
        pid: its process there.
        dtbench, torch: versions.
        address: of this node on the network that leads to node 0.
        head_address: of node 0, as this node has it.
        run: folder of the run, where the agent was told of one.
        run_id: of that run.
        digest: of what each of its launches was prepared with.
    """

    host: str
    pid: int
    dtbench: str
    torch: str
    address: str
    head_address: str
    run: str | None
    run_id: str | None
    digest: str | None


class Welcome(Record):
    """Node 0 has heard of all agents.

    Attributes:
        refusal: why they cannot run together; None: they can.
        head_address: of node 0, as the other nodes have it.
        run: its folder on node 0.
        token: a file that node 0 has made there: who sees it shares the folder.
        finished: launches that node 0 has.
        silence_s: without a sign of life for so long, a node is gone.
        hosts: names of all nodes.
    """

    refusal: str | None
    head_address: str
    run: str
    token: str
    finished: tuple[tuple[str, int], ...]
    silence_s: float
    hosts: tuple[str, ...]


class Place(Record):
    """Where an agent's results will lie.

    Attributes:
        folder: of the run, on this node.
        is_apart: node 0 does not see it.
        lacks: of the launches that node 0 has finished, those of which this node has nothing.
        refusal: why it cannot write there.
    """

    folder: str
    is_apart: bool
    lacks: tuple[tuple[str, int], ...] = ()
    refusal: str | None = None


class Task(Record):
    """A launch, or the single process that ranks are checked against.

    Attributes:
        order: as node 0 has it, paths and all.
        digest: of the order.
        folder: of the launch, below the run's.
        reference: likewise, the single process's results; None: nothing to compare with.
        ranks: first rank of each node, and the one after its last.
        alone: nodes that start it each by itself; empty: together.
        port: of the store in which its ranks meet.
        rendezvous: its id, no other launch's.
    """

    order: WorkerOrder
    digest: str
    folder: str
    reference: str | None
    ranks: tuple[tuple[int, int], ...]
    alone: tuple[int, ...]
    port: int
    rendezvous: str

    @property
    def nodes(self) -> int:
        """How many nodes have ranks of it."""
        return sum(end > first for first, end in self.ranks)


class RankLook(Record):
    """What an agent saw of one of its ranks."""

    rank: int
    pid: int
    state: RankState
    phase: Phase | None
    step: int | None
    region: Region | None
    beat_unix_ns: int
    issued: int
    timings: tuple[tuple[int, Phase, int], ...]
    is_stopped: bool

    @classmethod
    def of(cls, view: JournalView, *, is_stopped: bool) -> "RankLook":
        """Return what is told of a journal: of each step its number, phase and duration."""
        return cls(
            rank=view.rank,
            pid=view.pid,
            state=view.state,
            phase=view.phase,
            step=view.step,
            region=view.region,
            beat_unix_ns=view.beat_unix_ns,
            issued=view.issued,
            timings=tuple((one.step, one.phase, one.duration_ns) for one in view.timings),
            is_stopped=is_stopped,
        )

    @property
    def view(self) -> JournalView:
        """The journal, but for when steps began and what they had of the CPU, which stays where it is."""
        timings = tuple(StepTiming(step, phase, 0, duration_ns, 0) for step, phase, duration_ns in self.timings)
        return JournalView(
            rank=self.rank,
            pid=self.pid,
            state=self.state,
            phase=self.phase,
            step=self.step,
            region=self.region,
            beat_unix_ns=self.beat_unix_ns,
            issued=self.issued,
            timings=timings,
        )


class Looks(Record):
    """What an agent saw of its ranks at one moment; none of those that have not begun."""

    ranks: tuple[RankLook, ...]


class HeldUp(Record):
    """Ranks that hold up all others, with what was seen of them."""

    ranks: dict[int, str]


class NodeEnd(Record):
    """How a launch ended on one node.

    Attributes:
        ends: of its ranks that did not end well, ``began_ns`` on node 0's monotonic clock.
        has_results: every rank of it has left its record.
        failure: why its ranks could not be started, or its single process failed.
    """

    ends: tuple[RankEnd, ...]
    has_results: bool
    failure: str | None = None


class Verdict(Record):
    """How a launch ended on all nodes; None: its single process, which leaves no record."""

    launch: LaunchRecord | None


class Farewell(Record):
    """Nothing is left to run.

    Attributes:
        exit_code: of the agents.
        said: why, if not all is well.
        run: the run's record, for those whose folder lies apart.
    """

    exit_code: int
    said: str | None
    run: str | None


class Next(Record):
    """What comes next: one of these."""

    places: NodesRecord | None = None
    task: Task | None = None
    farewell: Farewell | None = None
