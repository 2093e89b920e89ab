"""Which nodes a command runs on, and which of them this is, as Slurm, a Kubeflow TrainJob or options say it.

=========  ==============================================  ===================================================
told by    how many, and which this is                     where they meet
=========  ==============================================  ===================================================
options    ``--nnodes``, ``--node-rank``                   ``--rdzv-endpoint HOST[:PORT]``
TrainJob   ``PET_NNODES``, ``PET_NODE_RANK``               ``PET_MASTER_ADDR``, ``PET_MASTER_PORT``
Slurm      ``SLURM_STEP_NUM_NODES``, ``SLURM_NODEID``      the first of ``SLURM_STEP_NODELIST``, a port by the job
nothing    one                                             loopback
=========  ==============================================  ===================================================

An option stands before what the environment says. A TrainJob's variables are torchrun's own (``PET_`` and an option's
name, ``torch/distributed/argparse_util.py``), so that ``PET_RDZV_ENDPOINT`` is heard, too.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dtbench.base.errors import PlanError
from dtbench.plan.rules.rule import count_nodes

DEFAULT_PORT: Final = 29400
"""Of torchrun's rendezvous."""
_SLURM_PORTS: Final = (20_000, 10_000)
"""First port, and how many: two jobs on one node do not meet, and Linux gives none of these away by itself."""
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class Nodes:
    """The nodes of one command.

    Attributes:
        count: how many; 1: this machine alone.
        index: which this is, from 0.
        head: name or address of node 0, where all meet.
        port: at which they meet there.
        told_by: what said so, for sentences: ``Slurm``, ``TrainJob``, ``options``; None: nothing did.
        job: of the cluster's scheduler; None: there is none.
        hosts: names of all, in order; empty where they are not told.
    """

    count: int
    index: int
    head: str
    port: int
    told_by: str | None = None
    job: str | None = None
    hosts: tuple[str, ...] = ()

    @property
    def endpoint(self) -> str:
        """Where they meet, as ``HOST:PORT``."""
        return f"[{self.head}]:{self.port}" if ":" in self.head else f"{self.head}:{self.port}"


@dataclass(frozen=True)
class NodeOptions:
    """What a person said of nodes on the command line; None: nothing."""

    count: int | None = None
    index: int | None = None
    endpoint: str | None = None


def find_nodes(variables: Mapping[str, str], options: NodeOptions | None = None) -> Nodes:
    """Return the nodes on each of which this same command was started, as ``dtbench execute`` is.

    Raises:
        PlanError: what was told contradicts itself, or lacks something, or this is no task of its own on each node.
    """
    options = options or NodeOptions()
    says_all = None not in (options.count, options.index, options.endpoint)
    told = _find_told({} if says_all else variables)
    count = options.count if options.count is not None else told.count
    index = options.index if options.index is not None else told.index
    head, port = (told.head, told.port) if options.endpoint is None else read_endpoint(options.endpoint, told.port)
    if count < 1:
        raise PlanError(f"--nnodes {count}: there is at least one node")
    if not 0 <= index < count:
        raise PlanError(f"--node-rank {index}: nodes are counted from 0 to {count - 1}, since there are {count}")
    if count > 1 and not head:
        raise PlanError(
            f"{count} nodes, and nothing says where they meet: give --rdzv-endpoint HOST:PORT, HOST being node 0"
        )
    has_said = options != NodeOptions()
    hosts = told.hosts if len(told.hosts) == count else ()
    return Nodes(count, index, head or _LOOPBACK, port, "options" if has_said else told.told_by, told.job, hosts)


def find_allocation(variables: Mapping[str, str]) -> Nodes | None:
    """Return the nodes of a Slurm job that this process may start tasks on with ``srun``; None: it is in no such job.

    A batch script, and a shell of ``salloc``, are in the job; a task that ``srun`` started has its own node alone, and
    what an interactive step is (``LaunchParameters=use_interactive_step``) Slurm says by its number.
    """
    job = variables.get("SLURM_JOB_ID")
    if job is None or not _may_start_steps(variables):
        return None
    count = _read_count(variables, "SLURM_JOB_NUM_NODES", _read_count(variables, "SLURM_NNODES", 1))
    hosts = tuple(expand_hosts(variables.get("SLURM_JOB_NODELIST", "")))
    head = variables.get("SLURMD_NODENAME") or (hosts[0] if hosts else "")
    return Nodes(count, 0, head, _port_of_job(job), "Slurm", job, hosts if len(hosts) == count else ())


def spread_ranks(ranks: int, count: int) -> tuple[range, ...]:
    """Return which ranks each node has, in equal blocks; fewer ranks than nodes lie one each on the first.

    Nodes that do not divide the ranks have no plan (``dtbench.plan.rules.machine``).
    """
    each, rest = divmod(ranks, count_nodes(ranks, count))
    assert not rest, f"{ranks} ranks were planned for {count} nodes"
    return tuple(range(min(ranks, node * each), min(ranks, (node + 1) * each)) for node in range(count))


def read_endpoint(endpoint: str, port: int = DEFAULT_PORT) -> tuple[str, int]:
    """Return host and port of ``HOST``, ``HOST:PORT`` or ``[ADDRESS]:PORT``.

    Raises:
        PlanError: it is none of these.
    """
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]]+))(?::(\d{1,5}))?", endpoint)
    if found is None or not 0 < int(found[3] or port) < 2**16:
        raise PlanError(f"{endpoint!r} is no place to meet: HOST:PORT is, such as node0:{DEFAULT_PORT}")
    return found[1] or found[2], int(found[3] or port)


def expand_hosts(names: str) -> Iterator[str]:
    """Return the hosts of a list as Slurm writes it, in order: ``gpu[01-02,7]-a,login`` are four.

    >>> list(expand_hosts("gpu[01-02,7]-a,login"))
    ['gpu01-a', 'gpu02-a', 'gpu7-a', 'login']
    """
    for name in re.findall(r"(?:\[[^\]]*\]|[^,\[])+", names):
        yield from _expand(name)


def _expand(name: str) -> Iterator[str]:
    found = re.match(r"([^\[]*)\[([^\]]*)\](.*)", name)
    if found is None:
        yield name
        return
    before, spans, after = found.groups()
    for span in spans.split(","):
        first, _, last = span.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield from (f"{before}{number:0{len(first)}}{rest}" for rest in _expand(after))


def _find_told(variables: Mapping[str, str]) -> Nodes:
    """Return what the environment says of nodes; ``head`` is empty where it does not say it."""
    if "PET_NNODES" in variables:
        return _find_train_job(variables)
    if "SLURM_JOB_ID" in variables:
        return _find_step(variables)
    return Nodes(1, 0, "", DEFAULT_PORT)


def _find_train_job(variables: Mapping[str, str]) -> Nodes:
    fewest, _, most = variables["PET_NNODES"].partition(":")
    if most not in ("", fewest):
        raise PlanError(
            f"PET_NNODES={variables['PET_NNODES']}: the number of nodes may not change while ranks are measured; "
            "give the job a fixed one"
        )
    count = _read_number("PET_NNODES", fewest)
    if count > 1 and "PET_NODE_RANK" not in variables:
        raise PlanError("PET_NNODES is set and PET_NODE_RANK is not: which node this is, nobody says (--node-rank)")
    index = _read_number("PET_NODE_RANK", variables.get("PET_NODE_RANK", "0"))
    port = _read_count(variables, "PET_MASTER_PORT", DEFAULT_PORT)
    head = variables.get("PET_MASTER_ADDR", "")
    if variables.get("PET_RDZV_ENDPOINT"):
        head, port = read_endpoint(variables["PET_RDZV_ENDPOINT"], port)
    return Nodes(count, index, head, port, "TrainJob")


def _find_step(variables: Mapping[str, str]) -> Nodes:
    job = variables["SLURM_JOB_ID"]
    port = _port_of_job(job)
    if _may_start_steps(variables):
        count = _read_count(variables, "SLURM_JOB_NUM_NODES", _read_count(variables, "SLURM_NNODES", 1))
        if count > 1:
            raise PlanError(
                f"this is the script of a Slurm job of {count} nodes, not a task on each of them: put "
                "`srun --ntasks-per-node=1` before the command"
            )
        return Nodes(1, 0, "", port, "Slurm", job)
    count = _read_count(variables, "SLURM_STEP_NUM_NODES", _read_count(variables, "SLURM_NNODES", 1))
    tasks = [int(found) for found in re.findall(r"(?:^|,)(\d+)", variables.get("SLURM_STEP_TASKS_PER_NODE", "1"))]
    if max(tasks, default=1) > 1:
        raise PlanError(
            f"srun started {max(tasks)} tasks on a node, and one is to start all ranks of it: "
            "give srun --ntasks-per-node=1"
        )
    hosts = tuple(expand_hosts(variables.get("SLURM_STEP_NODELIST", variables.get("SLURM_JOB_NODELIST", ""))))
    index = _read_number("SLURM_NODEID", variables.get("SLURM_NODEID", "0"))
    return Nodes(count, index, hosts[0] if hosts else "", port, "Slurm", job, hosts)


_FIRST_SPECIAL_STEP: Final = 0xFFFFFFF0
"""Numbers from here on are no steps that ``srun`` was asked for: a batch script, an interactive shell (``slurm.h``)."""


def _may_start_steps(variables: Mapping[str, str]) -> bool:
    """Tell whether this is a job's script or shell, not a task of ``srun``."""
    step = variables.get("SLURM_STEP_ID", variables.get("SLURM_STEPID"))
    return step is None or not step.isdecimal() or int(step) >= _FIRST_SPECIAL_STEP


def _port_of_job(job: str) -> int:
    first, count = _SLURM_PORTS
    return first + (int(job) if job.isdecimal() else 0) % count


def _read_count(variables: Mapping[str, str], name: str, default: int) -> int:
    return _read_number(name, variables[name]) if name in variables else default


def _read_number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal()):
        raise PlanError(f"{name}={value}: is no number")
    return int(value)
