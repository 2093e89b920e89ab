"""From a scenario and a machine to a plan: ranks, mesh, phases, and what must cross the wire in every step.

Pure arithmetic: no torch, nothing optional left. ``make_plan`` refuses what cannot run, with a sentence that says what
would. The expected traffic (``dtbench.plan.traffic``) is the formula that a run's receipts are held against.
"""

import json
from collections.abc import Iterator
from math import prod
from typing import Annotated, Final, TypeAlias, assert_never

from pydantic import Field

from dtbench.base.errors import PlanError
from dtbench.base.record import Positive, Record
from dtbench.base.units import NS_PER_S, count_things, format_bytes
from dtbench.base.vocabulary import Axis, DeviceKind, Purpose
from dtbench.plan.memory import estimate_reference_bytes, estimate_state_bytes
from dtbench.plan.rules.machine import MOST_RANKS
from dtbench.plan.rules.newer_knobs import spell_defaults
from dtbench.plan.rules.rule import Case, count_nodes, find_reasons
from dtbench.plan.rules.table import LIMITS, RULES
from dtbench.plan.traffic.formula import find_own_purposes, plan_traffic
from dtbench.plan.traffic.parameters import known_parameters, list_parameters
from dtbench.plan.traffic.planned import PlannedTraffic, wire_bytes
from dtbench.plan.traffic.tensor import count_data_ranks
from dtbench.scenario.schema.ddp import Join
from dtbench.scenario.schema.model import Custom, Mlp, Model, Timed, Transformer
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Fsdp2, Parallel, Scenario


class Machine(Record):
    """What a plan needs to know about where it will run.

    Attributes:
        cpu_cores: that may be used; None: not known before ranks are there.
        cuda_devices: how many.
        memory_bytes: of the host; None: not asked.
        torch: version that cells have which name no interpreter of their own; None: not asked, or another machine's.
        nodes: how many alike are to share the ranks, and all else is said of each; None: this machine, alone.
    """

    cpu_cores: int | None
    cuda_devices: int
    memory_bytes: int | None = None
    torch: str | None = None
    nodes: Positive | None = None


class MeshAxis(Record):
    """One axis of the device mesh.

    Attributes:
        name: what is spread along it.
        size: ranks along it.
    """

    name: Axis
    size: int


RankCount: TypeAlias = Annotated[int, Field(ge=1, le=MOST_RANKS)]
"""Of a plan that is made or read: what looks at each rank has an end."""


class Plan(Record):
    """What will run, with nothing left to decide.

    Attributes:
        device: that ranks run on.
        backend: that carries collectives.
        mesh: outermost axis first; axes of size 1 included where the strategy builds them.
        ranks: how many.
        data_ranks: groups of ranks that see different rows.
        rows_per_rank: rows of the global batch that one rank computes.
        min_warmup_steps: fewest steps of warm-up.
        max_warmup_steps: most steps of warm-up.
        measured_steps: steps that are timed.
        profiled_steps: steps under the profiler.
        stall_timeout_ns: without a step for so long, a launch has failed.
        threads_per_rank: of CPU that a rank computes with; None: each node shares its cores among its ranks.
        parameters: of the whole model, tied weights once; None for a person's own model: building it will show.
        flops_per_step: floating-point operations of forward and backward over the global batch, see ``count_flops``;
            None where they are not known, or say nothing about its time.
        tokens_per_step: over the global batch.
        traffic: expected per rank in a step after warm-up; None where the parameters are not known: ranks compute what
            can be said (``RankRecord.planned``).
        state_bytes: weights, gradients and optimizer state of one rank; None: a person's own model.
        notes: what a reader of the numbers must know about this machine.
        torch: version of the ranks', whose defaults are planned with; None: not known.
        nodes: that share the ranks equally.
    """

    device: DeviceKind
    backend: str
    mesh: tuple[MeshAxis, ...]
    ranks: RankCount
    data_ranks: int
    rows_per_rank: int
    min_warmup_steps: int
    max_warmup_steps: int
    measured_steps: int
    profiled_steps: int
    stall_timeout_ns: int
    threads_per_rank: int | None
    parameters: int | None
    flops_per_step: int | None
    tokens_per_step: int
    traffic: tuple[PlannedTraffic, ...] | None
    notes: tuple[str, ...]
    state_bytes: int | None = None
    torch: str | None = None
    nodes: Positive = 1

    @property
    def ranks_per_node(self) -> int:
        """How many ranks share one machine."""
        return self.ranks // self.nodes

    def share_cores(self, cores: int) -> int:
        """Return the threads that a rank computes with on a machine with so many usable cores."""
        return self.threads_per_rank or max(1, cores // self.ranks_per_node)


DDP_SYNCHRONISES = 10
"""First iterations in which DDP's logger waits for its CUDA events at the start of forward (``reducer_cuda.cpp``)."""
SHORT_UNIT_MS = 20
"""Blocks of a timed model that take less are mostly jitter on a CPU (seen on two cores)."""
LARGE_REFERENCE_BYTES = 24 * 2**30
"""More than this for weights, gradients and optimizer state is worth a note: many devices cannot hold it."""


def make_plan(scenario: Scenario, machine: Machine) -> Plan:
    """Resolve a scenario on a machine.

    Raises:
        PlanError: sizes do not divide, options exclude each other, this torch lacks a knob, or there are too few GPUs;
        names all reasons at once.
    """
    case = Case(
        scenario,
        _choose_device(scenario, machine),
        torch=_find_torch(scenario, machine),
        cuda_devices=machine.cuda_devices,
        memory_bytes=machine.memory_bytes,
        nodes=machine.nodes,
    )
    for rules in (LIMITS, RULES):
        reasons = list(find_reasons(rules, case))
        if reasons:
            raise PlanError("\n".join(reasons))
    return _resolve(scenario, machine)


def _find_torch(scenario: Scenario, machine: Machine) -> str | None:
    return machine.torch if scenario.python is None else None


def _resolve(scenario: Scenario, machine: Machine) -> Plan:
    """Plan what can run."""
    device, mesh = _choose_device(scenario, machine), plan_mesh(scenario)
    ranks = prod(axis.size for axis in mesh)
    nodes = count_nodes(ranks, machine.nodes)
    data_ranks = count_data_ranks(scenario.parallel)
    measure, data, torch = scenario.measure, scenario.data, _find_torch(scenario, machine)
    parameters = known_parameters(scenario.model)
    first = DDP_SYNCHRONISES if device is DeviceKind.CUDA and isinstance(scenario.parallel, Ddp) else 0
    return Plan(
        device=device,
        backend="nccl" if device is DeviceKind.CUDA else "gloo",
        mesh=mesh,
        ranks=ranks,
        data_ranks=data_ranks,
        rows_per_rank=data.global_batch // data_ranks,
        min_warmup_steps=max(measure.warmup.min_steps, first),
        max_warmup_steps=max(measure.warmup.max_steps, first),
        measured_steps=measure.measured_steps,
        profiled_steps=measure.profiled_steps,
        stall_timeout_ns=round(measure.stall_timeout_s * NS_PER_S),
        threads_per_rank=None if machine.cpu_cores is None else max(1, machine.cpu_cores // (ranks // nodes)),
        parameters=None if parameters is None else sum(parameter.numel for parameter in parameters),
        flops_per_step=count_flops(scenario),
        tokens_per_step=count_rows(scenario) * data.sequence_length,
        traffic=None
        if parameters is None
        else plan_traffic(spell_defaults(scenario, torch), parameters, find_silent_axes(device, mesh)),
        notes=(
            *_find_notes(scenario, device, ranks, machine),
            *_note_nodes(nodes),
            *_note_compiled_ddp(scenario),
            *_note_own(scenario),
            *_note_timed(scenario, device),
        ),
        state_bytes=None if parameters is None else estimate_state_bytes(scenario),
        torch=torch,
        nodes=nodes,
    )


def plan_for_check(scenario: Scenario) -> Plan:
    """Plan for the machine that the scenario asks for, whatever this one is: enough GPUs if it says ``cuda``, else CPU.

    Raises:
        PlanError: the scenario could not run anywhere.
    """
    ranks = prod(axis.size for axis in plan_mesh(scenario))
    return make_plan(scenario, Machine(cpu_cores=ranks, cuda_devices=ranks if scenario.device == "cuda" else 0))


def plan_reference(scenario: Scenario, plan: Plan) -> tuple[Scenario, Plan]:
    """Return scenario and plan of the single process that sees the whole batch, in float32 without autocast."""
    asked = scenario.model_dump(mode="json")
    fields = {
        **asked,
        "parallel": _plan_alone(scenario.parallel),
        "precision": {"dtype": "float32"},
        "accumulation": {"micro_batches": 1},
        "network": {"kind": "real"},
        "model": {**asked["model"], **_plain_options(scenario.model)},
        "state_dict": None,
    }
    single = Scenario.model_validate_json(json.dumps(fields))
    # memory is not asked again: the ranks themselves need more
    cores = None if plan.threads_per_rank is None else plan.threads_per_rank * plan.ranks_per_node
    machine = Machine(cpu_cores=cores, cuda_devices=1 if plan.device is DeviceKind.CUDA else 0)
    return single, _resolve(single, machine).model_copy(update={"traffic": ()})  # it wraps nothing


def _plan_alone(parallel: Parallel) -> dict[str, object]:
    """Return the strategy of the single process: what ranks with rows weigh, and what gradients are scaled by.

    It wraps nothing: the fields are for ``dtbench.worker.reference`` to read.
    """
    match parallel:
        case Ddp(join=Join() as join):
            return {"kind": "ddp", "replicas": 1, "join": join.model_dump(mode="json")}
        case Fsdp2(gradient_divide_factor=float(factor), shards=shards, replicas=replicas):
            return {"kind": "fsdp2", "shards": 1, "gradient_divide_factor": factor / (shards * replicas)}
    return {"kind": "ddp", "replicas": 1}


def count_rows(scenario: Scenario) -> int:
    """Count the rows that one step trains on: not all, where ranks have unequally many iterations."""
    rows, iterations = scenario.data.global_batch, scenario.data.iterations
    return rows if iterations is None else rows * sum(iterations) // (max(iterations) * len(iterations))


def _plain_options(model: Model) -> dict[str, object]:
    """Return the fields of a model that change how long it takes or what it keeps, set to what changes nothing."""
    plain: dict[str, object] = {"activation_checkpointing": None, "compile": None}
    if isinstance(model, Timed):
        plain |= {"forward_ms": 0.0, "backward_ms": 0.0, "slow_rank": None}
    return plain


def plan_mesh(scenario: Scenario) -> tuple[MeshAxis, ...]:
    """Return the mesh that a strategy builds, outermost axis first."""
    parallel = scenario.parallel
    match parallel:
        case Ddp(replicas=replicas):
            sizes = [(Axis.REPLICATE, replicas)]
        case Fsdp1(replicas=replicas, shards=shards) | Fsdp2(replicas=replicas, shards=shards):
            sizes = [(Axis.REPLICATE, replicas), (Axis.SHARD, shards)] if replicas > 1 else [(Axis.SHARD, shards)]
    if parallel.tensor > 1:
        sizes.append((Axis.TENSOR, parallel.tensor))
    return tuple(MeshAxis(name=name, size=size) for name, size in sizes)


def find_silent_axes(device: DeviceKind, mesh: tuple[MeshAxis, ...]) -> frozenset[Axis]:
    """Return the axes whose collectives come to nothing: of one rank, on devices.

    For a group of one rank NCCL launches none of its kernels: what is to be done in place is done, anything else it
    copies (``src/device/onerank.cu``). gloo carries such a collective as any other.
    """
    return frozenset(axis.name for axis in mesh if axis.size == 1 and device is DeviceKind.CUDA)


def count_flops(scenario: Scenario) -> int | None:
    """Count forward and backward of one step, without what is computed twice.

    None for a person's own model, and for a timed one: its time is given, whatever its products take.
    """
    model, data = scenario.model, scenario.data
    match model:
        case Transformer():
            per_token = _transformer_flops(model, data.sequence_length)
        case Mlp():
            # forward, gradients of weights and of inputs: 2 each; nobody asks for those of the first block's input
            products = 1 if model.hidden_dim is None else 2
            per_token = (6 * products * model.layers - 2) * model.dim * (model.hidden_dim or model.dim)
        case Timed() | Custom():
            return None
        case _:
            assert_never(model)
    return per_token * count_rows(scenario) * data.sequence_length


def _transformer_flops(model: Transformer, sequence_length: int) -> int:
    """Count per token: 6 for each parameter of a matrix product, plus attention.

    ``6 N + 12 L H Q T`` per token (PaLM, arXiv:2204.02311, appendix B), with N without the embedding's lookup and with
    the head's product, L layers, H heads of size Q, T the sequence length; causality is not credited, as is usual.
    """
    parameters = list_parameters(model)
    matrices = sum(p.numel for p in parameters if not p.is_norm and not p.name.startswith("embedding"))
    if model.tied_head:
        matrices += model.vocab_size * model.dim
    return 6 * matrices + 12 * model.layers * model.dim * sequence_length


def _choose_device(scenario: Scenario, machine: Machine) -> DeviceKind:
    match scenario.device:
        case "cpu":
            return DeviceKind.CPU
        case "cuda":
            return DeviceKind.CUDA
        case "auto":
            return DeviceKind.CUDA if machine.cuda_devices else DeviceKind.CPU


def is_compiled_ddp(scenario: Scenario) -> bool:
    """Whether DDP fills its buckets in an order that the compiler decides: all gradients of a graph come at once."""
    return isinstance(scenario.parallel, Ddp) and scenario.parallel.replicas > 1 and scenario.model.compile is not None


def _note_compiled_ddp(scenario: Scenario) -> Iterator[str]:
    if is_compiled_ddp(scenario):
        yield "model.compile under DDP: a graph gives its gradients in an order of its own; only bytes are compared"


def _note_own(scenario: Scenario) -> Iterator[str]:
    own = [purpose.value for purpose in Purpose if purpose in find_own_purposes(scenario)]
    if own:
        yield f"a function of your own does what {' and '.join(own)} is for: nothing is planned of it, nor compared"


def _note_timed(scenario: Scenario, device: DeviceKind) -> Iterator[str]:
    model = scenario.model
    if not isinstance(model, Timed):
        return
    yield "compute costs what the timed model says: its times are the scenario's, not the machine's"
    if model.slow_rank is not None:
        yield f"blocks of rank {model.slow_rank.rank} take {model.slow_rank.factor:g} times as long, as asked"
    units_ms = {"forward_ms": model.forward_ms, "backward_ms": model.backward_ms}
    short = [f"model.{name}={unit_ms:g}" for name, unit_ms in units_ms.items() if 0 < unit_ms < SHORT_UNIT_MS]
    if short and device is DeviceKind.CPU:
        yield f"{' and '.join(short)}: a CPU can rarely sleep so briefly and so exactly; a launch tries first"


LOOPBACK_NOTE: Final = "loopback communication takes cores from compute: trust step times more than what seems hidden"
LINKED_NOTE: Final = "communication costs what the emulated link says: its times are this link's, not the machine's"
"""What a plan says of communication; whether it held is in the receipts of a run."""


def _find_notes(scenario: Scenario, device: DeviceKind, ranks: int, machine: Machine) -> Iterator[str]:
    reference = estimate_reference_bytes(scenario)
    if scenario.correctness.enabled and reference > LARGE_REFERENCE_BYTES:
        yield (
            f"one process checks the ranks first and needs at least {format_bytes(reference)} on one device; "
            "correctness.enabled=false leaves it out"
        )
    if scenario.measure.line_coverage:
        yield "measure.line_coverage traces the interpreter: the times of its launches are not to be used"
    is_linked = isinstance(scenario.network, EmulatedNetwork)
    nodes, cores = count_nodes(ranks, machine.nodes), machine.cpu_cores
    if is_linked and ranks > 1:
        yield LINKED_NOTE
    elif device is DeviceKind.CPU and ranks > 1 and nodes == 1:
        yield LOOPBACK_NOTE
    if device is DeviceKind.CPU and cores is not None and ranks // nodes > cores:
        shared = f"{ranks // nodes} ranks{' of each node' if nodes > 1 else ''} share {count_things(cores, 'core')}"
        shows = "host time" if is_linked else "communication"  # the link begins when the last rank has come
        yield f"{shared}: ranks wait for each other's turns, and that shows as {shows}"


def _note_nodes(nodes: int) -> Iterator[str]:
    if nodes > 1:
        yield f"planned for {nodes} nodes that are alike: threads of a rank, memory and GPUs are those of each"


def count_wire_bytes(scenario: Scenario, plan: Plan) -> int | None:
    """Return what each device sends in a step; None: known only once the model is built, or by a person's function."""
    if plan.traffic is None or find_own_purposes(scenario):
        return None
    sizes = {axis.name: axis.size for axis in plan.mesh}
    return sum(wire_bytes(part, sizes[part.axis]) for part in plan.traffic)
