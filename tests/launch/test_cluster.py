"""Nodes that run launches together: threads of this process stand for nodes, and ranks that train nothing for ranks."""

import json
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import HashStore, PrefixStore, TCPStore

from dtbench import __version__
from dtbench.base.errors import DtbenchError, LaunchError, NodesError, PlanError, StoreError
from dtbench.base.vocabulary import Phase, Region
from dtbench.launch import resume as resume_module
from dtbench.launch.cells import plan_cells
from dtbench.launch.cluster import agent as agent_module
from dtbench.launch.cluster import head as head_module
from dtbench.launch.cluster.agent import Agent
from dtbench.launch.cluster.head import Head, Patience
from dtbench.launch.cluster.line import Line, measure_offset, tell_clock
from dtbench.launch.cluster.messages import Farewell, Hello, Looks, Place, RankLook
from dtbench.launch.cluster.network import find_bind_address, find_interface, is_loopback
from dtbench.launch.execute import execute_run, read_prepared
from dtbench.launch.machine import read_torch_version
from dtbench.launch.nodes import Nodes
from dtbench.launch.prepare import write_orders
from dtbench.launch.run import Observer, ThisMachine, run_scenario
from dtbench.plan.plan import Machine
from dtbench.scenario.load import load_scenario
from dtbench.store.journal import JournalView, JournalWriter, RankState
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_launch, read_order, read_run, read_steps
from dtbench.store.records.nodes import NodesRecord
from dtbench.store.records.run import RunStatus

MACHINE = Machine(cpu_cores=1, cuda_devices=0, nodes=2)
SWEEP = """\
# Does each node do its part?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 1, dim: 8, heads: 2, ffn_dim: 8, vocab_size: 16}
data: {global_batch: 2, sequence_length: 4}
parallel: {kind: ddp, replicas: 2}
correctness: {enabled: false}
matrix:
  parallel.bucket_cap_mb: [1, 2]
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def prepare(results: Path, text: str = SWEEP, *overrides: str) -> RunFolder:
    file = load_scenario(text, "sweep.yaml", overrides)
    folder, _ = write_orders(file, plan_cells(file, MACHINE), results, observer=Observer())
    return folder


@dataclass
class Cluster:
    """Nodes of one command; ``ended``: what each agent ended with."""

    port: int = field(default_factory=free_port)
    count: int = 2
    patience: Patience = field(default_factory=lambda: Patience(20.0, 20.0))
    said: list[str] = field(default_factory=list)
    ended: dict[int, Farewell | BaseException] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    def nodes(self, index: int) -> Nodes:
        return Nodes(self.count, index, "127.0.0.1", self.port)

    def start(self, index: int, folder: Path | None, *, after_s: float = 0.0) -> None:
        def be() -> None:
            time.sleep(after_s)
            try:
                self.ended[index] = Agent(self.nodes(index), folder, host=f"host{index}").follow(10)
            except DtbenchError as error:
                self.ended[index] = error

        self.threads.append(threading.Thread(target=be, daemon=True))
        self.threads[-1].start()

    def head(self, folder: Path | None) -> Head:
        def spawn(endpoint: str) -> tuple[()]:
            assert endpoint == f"127.0.0.1:{self.port}"
            self.start(0, folder)
            return ()

        return Head(self.nodes(0), spawn, self.patience, say=self.said.append)

    def execute(self, folder: RunFolder, observer: Observer | None = None) -> RunFolder:
        with self.head(folder.path) as head:
            run = execute_run(folder.path, head, nodes=self.count, observer=observer or Observer())
        self.join()
        return run

    def join(self) -> None:
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = str(Path(__file__).with_name("made_rank.py"))
    monkeypatch.setattr(agent_module, "WORKER", (sys.executable, made))
    monkeypatch.setattr("dtbench.launch.local.WORKER", (sys.executable, made))
    monkeypatch.setattr(agent_module, "launch_ranks", _launch_made_ranks(made))
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")
    monkeypatch.setattr(head_module, "POLL_S", 0.05)
    monkeypatch.setattr(agent_module, "_SEE_S", 0.1)
    one = Cluster()
    yield one
    one.join()


def _launch_made_ranks(made: str) -> Callable[..., None]:
    from dtbench.launch.local import launch_ranks

    def launch(*arguments: object, **named: object) -> None:
        launch_ranks(*arguments, **named, worker=(sys.executable, made))  # type: ignore[arg-type]

    return launch


def told(run: RunFolder, cell: str, rank: int, index: int = 0) -> dict[str, str]:
    found: dict[str, str] = json.loads(run.launch(cell, index).log(rank).read_text(encoding="utf-8"))
    return found


CELLS = ("bucket_cap_mb-1", "bucket_cap_mb-2")


def test_the_ranks_of_a_prepared_run_start_on_all_its_nodes(tmp_path: Path, cluster: Cluster) -> None:
    folder = prepare(tmp_path)
    cluster.start(1, folder.path)
    launched: list[tuple[str, int | None]] = []
    cluster.execute(folder, Observer(on_launch=lambda cell, index, _plan: launched.append((cell, index))))
    run = read_run(folder.path)
    assert run.status is RunStatus.COMPLETE
    assert launched == [(cell, 0) for cell in CELLS]
    expected = {
        "RANK": "1",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": find_interface("127.0.0.1"),
    }
    said = [told(folder, cell, 1) for cell in CELLS]
    assert [{name: one[name] for name in expected} for one in said] == [expected, expected]
    meetings = {told(folder, cell, rank)["TORCHELASTIC_RUN_ID"] for cell in CELLS for rank in range(2)}
    assert len(meetings) == len(CELLS), "launches never share a rendezvous, ranks of a launch do"
    assert sorted(read_steps(folder.launch(CELLS[0], 0))["rank"]) == [0, 1]
    assert [one.exit_code for one in cluster.ended.values() if isinstance(one, Farewell)] == [0, 0]
    places = NodesRecord.model_validate_json(folder.nodes.read_bytes())
    assert [(one.host, one.is_apart) for one in places.nodes] == [("host0", False), ("host1", False)]


def test_a_killed_rank_is_blamed_with_its_host_and_the_same_command_runs_the_rest(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare(tmp_path, SWEEP, "repeat=1")
    monkeypatch.setenv("MADE_RANK", json.dumps({"1": "kill", "0": "wait"}))
    cluster.start(1, folder.path)
    failed: list[str] = []

    def on_failure(cell: str, _reason: str) -> None:
        failed.append(cell)
        monkeypatch.delenv("MADE_RANK")

    with pytest.raises(LaunchError, match="rank 1 on host1 killed by SIGKILL, last seen in step 0") as caught:
        cluster.execute(folder, Observer(on_failure=on_failure))
    assert caught.value.exit_code == 4
    assert "rank 0 ended with it" in str(caught.value)
    assert failed == [CELLS[0]]
    failure = read_launch(folder.launch(CELLS[0], 0)).failures[0]
    assert (failure.rank, failure.host) == (1, "host1")
    cluster.join()
    assert all(isinstance(one, Farewell) and one.exit_code == 4 for one in cluster.ended.values())

    again = Cluster()
    again.start(1, folder.path)
    begun: list[str] = []
    again.execute(folder, Observer(on_launch=lambda cell, _index, _plan: begun.append(cell)))
    assert begun == [CELLS[0]], "the other cell's launch has stayed"
    assert read_run(folder.path).status is RunStatus.COMPLETE


def test_nodes_without_a_shared_folder_each_keep_what_their_ranks_left(tmp_path: Path, cluster: Cluster) -> None:
    folder = prepare(tmp_path / "here", SWEEP.replace("enabled: false", "enabled: true"))
    there = RunFolder(tmp_path / "there" / "copy")
    shutil.copytree(folder.path, there.path)
    cluster.start(1, there.path)
    cluster.execute(folder)
    launch, other = folder.launch(CELLS[1], 0), there.launch(CELLS[1], 0)
    assert [launch.log(rank).exists() for rank in range(2)] == [True, False]
    assert [other.log(rank).exists() for rank in range(2)] == [False, True]
    assert read_order(other).folder == str(other.path)
    assert read_order(other).reference == str(there.reference(CELLS[0]).reference_data)
    assert [read_launch(one).status for one in (launch, other)] == [RunStatus.COMPLETE] * 2
    assert list(read_steps(other)["rank"]) == [1]
    assert read_run(there.path) == read_run(folder.path), "the same run, in two parts"
    mine, others = (NodesRecord.model_validate_json(one.nodes.read_bytes()) for one in (folder, there))
    assert (mine.node, others.node) == (0, 1)
    assert [(one.host, one.folder) for one in mine.apart] == [("host1", str(there.path))]
    assert f"its results lie in {there.path} there" in " ".join(cluster.said)


def test_a_launch_of_which_a_node_has_lost_its_part_runs_anew(tmp_path: Path, cluster: Cluster) -> None:
    folder, there = prepare(tmp_path / "here"), RunFolder(tmp_path / "there" / "copy")
    shutil.copytree(folder.path, there.path)
    cluster.start(1, there.path)
    cluster.execute(folder)
    shutil.rmtree(there.launch(CELLS[1], 0).path)
    again = Cluster()
    again.start(1, there.path)
    begun: list[str] = []
    again.execute(folder, Observer(on_launch=lambda cell, _index, _plan: begun.append(cell)))
    assert begun == [CELLS[1]]
    assert there.launch(CELLS[1], 0).log(1).exists()


def test_nodes_that_were_started_for_two_runs_do_not_run_together(tmp_path: Path, cluster: Cluster) -> None:
    folder, other = prepare(tmp_path / "a"), prepare(tmp_path / "b")
    cluster.start(1, other.path)
    with pytest.raises(StoreError, match=rf"node 1 \(host1\) was started for run {other.path.name}") as caught:
        cluster.execute(folder)
    cluster.join()
    assert caught.value.exit_code == 6
    assert [(type(one), str(one)) for one in cluster.ended.values()] == [(StoreError, str(caught.value))] * 2
    assert not any(folder.launch(cell, 0).log(0).exists() for cell in CELLS)


def test_a_copy_that_plans_something_else_is_refused(tmp_path: Path, cluster: Cluster) -> None:
    folder, there = prepare(tmp_path / "here"), RunFolder(tmp_path / "there" / "copy")
    shutil.copytree(folder.path, there.path)
    text = there.run.read_text(encoding="utf-8")
    there.run.write_text(text.replace('"measured_steps": ', '"measured_steps": 1'), encoding="utf-8")
    cluster.start(1, there.path)
    with pytest.raises(StoreError, match=r"host1\) has another plan in .*copy than node 0 has: copy the prepared run"):
        cluster.execute(folder)


def test_a_node_whose_copy_changes_between_launches_is_refused_before_ranks_start(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Agent, "find_digest", lambda self, order: order.digest if self.nodes.index == 0 else "0123456789abcdef"
    )
    folder = prepare(tmp_path)
    cluster.start(1, folder.path)
    with pytest.raises(NodesError, match=r"launch 0 of cell bucket_cap_mb-1 is another on node 1 \(host1\)"):
        cluster.execute(folder)
    assert not any(folder.launch(cell, 0).log(0).exists() for cell in CELLS)
    assert read_run(folder.path).status is RunStatus.FAILED


def test_a_node_that_comes_late_is_waited_for(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_module, "_SAY_AFTER_S", 0.1)
    folder = prepare(tmp_path)
    cluster.start(1, folder.path, after_s=0.5)
    cluster.execute(folder)
    assert "waiting for node 1 of 2, 20 s at most" in cluster.said
    assert read_run(folder.path).status is RunStatus.COMPLETE


def test_a_node_that_does_not_come_is_named(tmp_path: Path, cluster: Cluster) -> None:
    folder = prepare(tmp_path)
    cluster.patience = Patience(0.3, 1.0)
    where = f"127.0.0.1:{cluster.port}"
    said = rf"node 1 did not come to {where} within 0.3 s \(came: 0 \(host0\)\): start the same command on every node"
    with pytest.raises(NodesError, match=said):
        cluster.execute(folder)
    cluster.join()
    assert isinstance(cluster.ended[0], StoreError), "who came hears why nothing follows"


def test_without_node_0_the_others_say_where_they_looked(tmp_path: Path, cluster: Cluster) -> None:
    with pytest.raises(NodesError, match=rf"node 0 was not there at 127.0.0.1:{cluster.port} within 0.2 s"):
        Agent(cluster.nodes(1), prepare(tmp_path).path).follow(0.2)


def test_a_node_that_comes_as_node_0_ends_says_so_at_once(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "await_head", lambda *_: ("127.0.0.1", "127.0.0.1"))
    monkeypatch.setattr(agent_module, "_CONNECT_S", 3.0)
    with pytest.raises(NodesError, match=rf"node 0 was there at 127.0.0.1:{cluster.port} and is gone: it has ended"):
        Agent(cluster.nodes(1), prepare(tmp_path).path).follow(10)


def test_a_node_that_is_started_twice_is_refused(tmp_path: Path, cluster: Cluster) -> None:
    folder = prepare(tmp_path)
    cluster.start(1, folder.path)
    cluster.start(0, folder.path)
    with pytest.raises(NodesError, match="node 0 was started twice: host0 is the second that says so"):
        cluster.execute(folder)


def test_a_port_that_is_taken_is_named(tmp_path: Path, cluster: Cluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", cluster.port))
        taken.listen()
        with pytest.raises(NodesError, match=rf"127.0.0.1:{cluster.port}: this node cannot listen there"):
            cluster.execute(prepare(tmp_path))


def be_silent_after(cluster: Cluster, folder: Path, *, has_begun: bool) -> None:
    """Be node 1 until it is to start its rank, then say nothing more, as a machine without power."""
    store = None
    while store is None:
        try:
            socket.create_connection(("127.0.0.1", cluster.port), timeout=1).close()
            store = TCPStore("127.0.0.1", cluster.port, is_master=False, timeout=timedelta(seconds=5))
        except OSError:
            time.sleep(0.02)
    line = Line(PrefixStore(agent_module.PREFIX, store))
    line.put(
        "hello/1",
        Hello(
            host="host1",
            pid=1,
            dtbench=__version__,
            torch=read_torch_version(),
            address="127.0.0.1",
            head_address="127.0.0.1",
            run=None,
            run_id=None,
            digest=None,
        ),
    )
    assert line.wait("welcome", 10)
    line.put("place/1", Place(folder=str(folder), is_apart=False))
    assert line.wait("next/1", 10)
    if has_begun:
        line.put("ready/1/1")
        measure_offset(line, "clock/1/1")
        seen = JournalView(1, 1, RankState.STEPPING, Phase.MEASURED, 7, Region.BACKWARD, 1, 0, ())
        line.put("look/1/1", Looks(ranks=(RankLook.of(seen, is_stopped=False),)))


@pytest.mark.parametrize(
    ("has_begun", "sentence"),
    [
        (
            True,
            r"rank 1 on host1 was lost with its node, which gave no sign of life for 1 s, last seen in step 7 ",
        ),
        (False, r"node 1 \(host1\) gave no sign of life for 1 s, before launch 0 of cell bucket_cap_mb-1 began"),
    ],
)
def test_a_node_that_is_gone_is_blamed_and_ends_the_run(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, has_begun: bool, sentence: str
) -> None:
    cluster.patience = Patience(10, 1)
    monkeypatch.setenv("MADE_RANK", json.dumps({"0": "wait"}))
    folder = prepare(tmp_path)
    silent = threading.Thread(
        target=be_silent_after, args=(cluster, folder.path), kwargs={"has_begun": has_begun}, daemon=True
    )
    silent.start()
    begun: list[str] = []
    with pytest.raises(NodesError, match=sentence) as caught:
        cluster.execute(folder, Observer(on_launch=lambda cell, _index, _plan: begun.append(cell)))
    silent.join(10)
    assert caught.value.exit_code == 4
    assert caught.value.folder == folder.path
    assert begun == [CELLS[0]], "no other launch can follow"
    run = read_run(folder.path)
    assert run.status is RunStatus.FAILED
    assert run.reason == str(caught.value)


def test_agents_end_their_ranks_when_node_0_is_gone(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store goes with node 0's process, here with its context."""
    cluster.patience = Patience(10, 1)
    monkeypatch.setenv("MADE_RANK", json.dumps({"0": "wait", "1": "wait"}))
    monkeypatch.setattr(Head, "_await_leaving", lambda _self: None)
    folder = prepare(tmp_path)
    cluster.start(1, folder.path)

    def look(_views: object) -> None:
        if all(folder.launch(CELLS[0], 0).log(rank).exists() for rank in range(2)):
            raise RuntimeError("node 0 ends")

    with pytest.raises(RuntimeError, match="node 0 ends"):
        cluster.execute(folder, Observer(on_progress=look))
    cluster.join()
    assert all(isinstance(one, NodesError) and "node 0 is gone" in str(one) for one in cluster.ended.values())


def test_a_run_that_was_not_prepared_is_gone_on_with_by_run(tmp_path: Path) -> None:
    folder = prepare(tmp_path)
    text = folder.run.read_text(encoding="utf-8")
    folder.run.write_text(text.replace('"prepared": true', '"prepared": false'), encoding="utf-8")
    with pytest.raises(StoreError, match=r"was not prepared .*`dtbench run sweep --resume .*` goes on with it"):
        execute_run(folder.path, ThisMachine(), nodes=1, observer=Observer())


def test_nodes_that_a_run_was_not_planned_for_are_refused_before_anything_starts(tmp_path: Path) -> None:
    folder = prepare(tmp_path)
    said = "was planned for 2 nodes, and 1 is there; `dtbench run SCENARIO --prepare --nodes 1` plans for as many"
    with pytest.raises(PlanError, match=f"cell bucket_cap_mb-1 {said}"):
        execute_run(folder.path, ThisMachine(), nodes=1, observer=Observer())
    assert read_prepared(folder.path, read_run(folder.path), 4), "of more nodes than ranks the first have one each"


def test_a_run_whose_ranks_somebody_else_has_started_is_left_alone(tmp_path: Path) -> None:
    folder, said = prepare(tmp_path), list[str]()
    with JournalWriter(folder.launch(CELLS[0], 0).journal(1), rank=1, pid=1, capacity=1) as journal:
        journal.begin(time.time_ns())

        def say(sentence: str) -> None:
            said.append(sentence)
            journal.touch(time.time_ns() + 10**9)

        with pytest.raises(StoreError, match=r"rank 1 gave a sign of life .* and goes on; wait until its ranks have"):
            execute_run(folder.path, ThisMachine(), nodes=2, observer=Observer(on_neighbours=say))
        assert folder.launch(CELLS[0], 0).journal(1).exists()
    assert len(said) == 1


def test_ranks_that_were_killed_a_moment_ago_are_waited_for(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume_module, "_QUIET_NS", 2 * 10**9)
    folder, said = prepare(tmp_path), list[str]()
    with JournalWriter(folder.launch(CELLS[0], 0).journal(1), rank=1, pid=1, capacity=1) as journal:
        journal.begin(time.time_ns())
    cluster.start(1, folder.path)
    cluster.execute(folder, Observer(on_neighbours=said.append))
    assert read_run(folder.path).status is RunStatus.COMPLETE
    assert "rank 1 gave a sign of life" in said[0]
    assert "waiting until it has been silent for 2" in said[0]


def test_orders_that_are_left_are_there_again_with_where_code_and_references_lie(tmp_path: Path) -> None:
    folder = prepare(tmp_path, SWEEP, "correctness.enabled=true")
    before = {path: path.read_bytes() for path in folder.path.rglob("order.json")}

    class NoNodes(ThisMachine):
        def begin(self, *_: object) -> frozenset[tuple[str, int]]:
            raise NodesError("nobody came")

    with pytest.raises(NodesError):
        execute_run(folder.path, NoNodes(), nodes=2, observer=Observer())
    assert before == {path: path.read_bytes() for path in folder.path.rglob("order.json")}


def test_a_new_run_starts_its_ranks_on_nodes_that_were_told_of_none(tmp_path: Path, cluster: Cluster) -> None:
    """As `dtbench run` does in a Slurm job: `srun` has started the agents."""
    file = load_scenario(SWEEP, "sweep.yaml")
    cells = plan_cells(file, MACHINE)
    with cluster.head(None) as head:
        cluster.start(1, None)
        folder = run_scenario(file, cells, tmp_path, observer=Observer(), engine=head)
    cluster.join()
    assert read_run(folder.path).status is RunStatus.COMPLETE
    assert told(folder, CELLS[1], 1)["GROUP_RANK"] == "1"


def test_a_clock_of_another_node_is_read_to_within_half_of_the_fastest_answer() -> None:
    line, apart_ns, slow_ns = Line(HashStore()), 10**15, 2_000_000
    there = lambda: time.monotonic_ns() + apart_ns  # noqa: E731
    teller = threading.Thread(target=tell_clock, args=(line, {1: "clock"}, there))
    teller.start()
    began_ns = time.monotonic_ns()
    offset_ns = measure_offset(line, "clock")
    took_ns = time.monotonic_ns() - began_ns
    teller.join()
    assert abs(offset_ns - apart_ns) <= max(took_ns, slow_ns)


@pytest.mark.parametrize("apart_ns", [1000, -1000])
@pytest.mark.parametrize("fastest", [0, 1, 2])
def test_of_three_answers_the_fastest_one_counts(fastest: int, apart_ns: int) -> None:
    took_ns = [10 if one == fastest else 400 for one in range(3)]
    clock, line = iter([one for took in took_ns for one in (0, took)]), Line(HashStore())
    for one, took in enumerate(took_ns):
        late_ns = 0 if one == fastest else 150
        line.put(f"clock/answer{one}", str(took // 2 + apart_ns + late_ns))
    assert measure_offset(line, "clock", lambda: next(clock)) == apart_ns


def test_who_was_first_is_asked_on_one_clock(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 1's clock shows 1,000 s less: as its ranks see it, rank 1 was killed long before rank 0."""
    monkeypatch.setattr(agent_module, "measure_offset", lambda _line, key: 10**12 if key.endswith("/1") else 0)
    monkeypatch.setattr(head_module, "tell_clock", lambda _line, _keys: None)
    monkeypatch.setenv("MADE_RANK", json.dumps({"0": "kill", "1": "kill"}))
    folder = prepare(tmp_path)
    cluster.start(1, folder.path)
    with pytest.raises(LaunchError):
        cluster.execute(folder)
    blamed = read_launch(folder.launch(CELLS[0], 0))
    assert [(one.rank, one.host) for one in blamed.failures] == [(0, "host0"), (1, "host1")]
    assert blamed.reason is not None
    assert blamed.reason.startswith("rank 0 on host0 killed by SIGKILL, last seen in step 0 (MEASURED); rank 1 ended")


def test_names_that_never_leave_their_machine_are_known() -> None:
    assert is_loopback("127.0.1.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("10.0.0.1")
    assert not is_loopback("node0")
    assert find_bind_address("127.0.0.1") == "127.0.0.1"
    assert find_bind_address("no-such-host.invalid") == "", "on every interface"
