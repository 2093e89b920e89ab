"""What a machine does not have: enough GPUs, enough memory; and what no machine is asked for."""

from collections.abc import Iterator
from typing import Final

from dtbench.base.units import count_things, format_bytes
from dtbench.base.vocabulary import DeviceKind
from dtbench.plan.memory import estimate_least_bytes, estimate_reference_bytes
from dtbench.plan.rules.problems import RANK_PROBLEMS
from dtbench.plan.rules.refusals import REFUSALS
from dtbench.plan.rules.rule import ON_CPU, ON_CUDA, Case, Rule, count_nodes, find_reasons
from dtbench.scenario.mistakes import join_words
from dtbench.scenario.schema.model import Custom
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Ddp

MOST_LAYERS: Final = 10_000
MOST_RANKS: Final = 100_000
NO_COMMON_CLOCK: Final = (
    "each rank reckons when the link serves what from when the others were ready, on the clock of its machine, and "
    "those of several machines do not agree; all ranks on one node, or network.kind=real, work"
)
"""Why an emulated link on CPU is that of one machine (``dtbench.worker.network.issue_times``)."""


def _check_layers(case: Case) -> Iterator[str]:
    model = case.scenario.model
    if not isinstance(model, Custom) and model.layers > MOST_LAYERS:
        yield f"model.layers={model.layers} is more than {MOST_LAYERS}; no plan is made for that"


def _check_ranks(case: Case) -> Iterator[str]:
    if case.ranks > MOST_RANKS:
        yield f"parallel asks for {case.ranks} ranks, more than {MOST_RANKS}; no plan is made for that"


def _check_nodes(case: Case) -> Iterator[str]:
    ranks, nodes = case.ranks, count_nodes(case.ranks, case.nodes)
    if ranks % nodes:
        fitting = [str(count) for count in range(1, min(ranks, 2 * nodes) + 1) if not ranks % count]
        yield (
            f"{count_things(ranks, 'rank')} cannot be shared equally by {count_things(nodes, 'node')}; "
            f"--nodes {join_words(fitting, last='or')} can"
        )


def _check_link(case: Case) -> Iterator[str]:
    nodes = count_nodes(case.ranks, case.nodes)
    if nodes > 1 and isinstance(case.scenario.network, EmulatedNetwork):
        yield f"network.kind=emulated does not work over {nodes} nodes: {NO_COMMON_CLOCK}"


def _check_memory(case: Case) -> Iterator[str]:
    scenario, ranks, memory_bytes = case.scenario, case.ranks_per_node, case.memory_bytes
    assert memory_bytes is not None
    needed, where = ranks * estimate_least_bytes(scenario), _spell_where(case)
    if needed > memory_bytes:
        yield (
            f"{ranks} ranks need at least {format_bytes(needed)} for weights, gradients and optimizer state or to draw "
            f"the weights, and {where} has {format_bytes(memory_bytes)}; make the model smaller, for "
            "example with --set model.layers=..."
        )
    reference = estimate_reference_bytes(scenario)
    if scenario.correctness.enabled and needed <= memory_bytes < reference:
        yield (
            f"the single process that checks the ranks needs at least {format_bytes(reference)}, and {where} has "
            f"{format_bytes(memory_bytes)}; --set correctness.enabled=false runs without the check"
        )


def _spell_where(case: Case) -> str:
    return "this machine" if case.nodes is None else "each node"


def _check_gpus(case: Case) -> Iterator[str]:
    ranks, cuda_devices = case.ranks_per_node, case.cuda_devices
    assert cuda_devices is not None
    if ranks <= cuda_devices:
        return
    found = "no CUDA device" if not cuda_devices else f"{count_things(cuda_devices, 'CUDA device')}"
    if case.nodes is not None:
        yield (
            f"this scenario needs {count_things(ranks, 'CUDA device')} on each node, one for each rank, and each has "
            f"{found}; more --nodes, or nodes with more --gpus-per-node, run it"
        )
        return
    instead = "`--set device=cpu` runs the same ranks over gloo on this machine's cores"
    on_cpu = Case(case.scenario, DeviceKind.CPU, torch=case.torch, memory_bytes=case.memory_bytes)
    if any(find_reasons([_MEMORY], on_cpu)):
        instead = "its ranks do not fit into this machine's memory either; `dtbench list` names smaller ones"
    elif refused := list(find_reasons([*REFUSALS, *RANK_PROBLEMS], on_cpu)):
        instead = f"over gloo on this machine's cores it would not run either: {'; '.join(refused)}"
    if cuda_devices:
        field = "parallel.replicas" if isinstance(case.scenario.parallel, Ddp) else "parallel.shards"
        instead += f"; or let it fit with a smaller `--set {field}=...` ({found} here)"
    needed = f"{count_things(ranks, 'CUDA device')}"
    yield f"this scenario needs {needed}, one for each rank, and this machine has {found}; {instead}"


LIMIT_RULES = (
    Rule("limit: layers", f"a model has at most {MOST_LAYERS} blocks", _check_layers),
    Rule("limit: ranks", f"a scenario has at most {MOST_RANKS} ranks", _check_ranks),
)
_MEMORY = Rule(
    "machine: memory",
    "weights, gradients and optimizer state of all ranks fit into the host's memory",
    _check_memory,
    ON_CPU,
    frozenset({"memory_bytes"}),
)
MACHINE_RULES = (
    Rule("machine: nodes", "nodes divide the ranks", _check_nodes, needs=frozenset({"nodes"})),
    Rule(
        "machine: link",
        "ranks on CPU over an emulated link are on one machine, whose clock they share",
        _check_link,
        ON_CPU,
        frozenset({"nodes"}),
    ),
    Rule("machine: gpus", "there is a GPU for each rank", _check_gpus, ON_CUDA, frozenset({"cuda_devices"})),
    _MEMORY,
)
