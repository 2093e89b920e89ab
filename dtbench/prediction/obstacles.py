"""Why a scenario has no closed form, each as a sentence that says what would have one."""

from collections.abc import Iterator

from dtbench.base.vocabulary import DeviceKind
from dtbench.plan.plan import Plan
from dtbench.scenario.schema.ddp import CommHook, CustomHook, Ddp, DdpMixedPrecision, Noop, PowerSgd
from dtbench.scenario.schema.model import Custom, Mlp, Model, Timed, Transformer
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.presets import written_model
from dtbench.scenario.schema.scenario import Fsdp2, Scenario


def find_obstacles(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Name every reason why nobody can say how long a step takes."""
    if not isinstance(scenario.network, EmulatedNetwork):
        yield "network.kind=real has no known cost; network.kind=emulated has one"
    if plan.device is not DeviceKind.CPU:
        yield "on CUDA streams decide what overlaps, and nobody has written these down; device=cpu has a closed form"
    yield from _check_model(scenario)
    if isinstance(scenario.parallel, Ddp):
        yield from _check_ddp(scenario.parallel)
    if isinstance(scenario.parallel, Fsdp2):
        for name in ("all_gather", "reduce_scatter", "all_reduce_hook"):
            if getattr(scenario.parallel, name) is not None:
                yield f"parallel.{name} is your own: nobody knows what it sends; leave it out"
        if scenario.parallel.blocks_per_unit > 1:
            yield "parallel.blocks_per_unit: nobody has written down what hides behind several blocks; 1 has a form"


def _check_model(scenario: Scenario) -> Iterator[str]:
    model = scenario.model
    if isinstance(model, Custom):
        yield "model.kind=custom: only building it shows its parameters; model.kind=timed has known ones"
    if model.activation_checkpointing is not None:
        yield "model.activation_checkpointing computes parts of forward again in backward; leave it out"
    if model.compile is not None:
        yield "model.compile: a graph computes in an order of its own; leave it out"
    yield from _check_kind(model)
    if scenario.data.iterations is not None:
        yield "data.iterations puts several updates into a step; leave it out"
    if scenario.parallel.gather_weights is not None:
        yield "parallel.gather_weights waits inside hooks, in an order of autograd's own; leave it out"
    if scenario.parallel.tensor > 1 and not isinstance(model, Timed | Mlp):
        kind = written_model(model).kind
        yield f"parallel.tensor over model.kind={kind} exchanges inside its blocks; model.kind=timed has a closed form"


def _check_kind(model: Model) -> Iterator[str]:
    if isinstance(model, Mlp) and (model.running_statistics or model.unused_layers):
        yield "model.running_statistics and model.unused_layers change what DDP sends beside gradients; leave them out"
    if isinstance(model, Transformer) and model.sparse_embedding:
        yield "model.sparse_embedding: what gloo sends of it hangs on the rows of each rank; leave it out"
    if isinstance(model, Timed) and model.backward_at == "entry":
        yield "model.backward_at=entry: what hides behind it nobody has written down; exit has a closed form"


def _check_ddp(parallel: Ddp) -> Iterator[str]:
    if parallel.find_unused_parameters:
        yield "parallel.find_unused_parameters adds an all-reduce that nobody may wait for; leave it out"
    if parallel.delay_all_reduce:
        yield "parallel.delay_all_reduce moves gradients to an all-reduce that a hook starts; leave it out"
    if parallel.optimizer_in_backward:
        yield "parallel.optimizer_in_backward updates on the thread that ends an all-reduce; leave it out"
    yield from _check_hook(parallel.comm_hook)
    if parallel.mixed_precision != DdpMixedPrecision():
        yield "parallel.mixed_precision of DDP copies parameters on streams of its own; leave it out"
    for name in ("ignore", "python_reducer"):
        if getattr(parallel, name):
            yield f"parallel.{name} reduces gradients outside DDP's buckets; leave it out"
    if not parallel.wrap:
        yield "parallel.wrap=false reduces nothing; with the wrapper there is a closed form"


def _check_hook(hook: CommHook | None) -> Iterator[str]:
    match hook:
        case PowerSgd():
            yield "parallel.comm_hook.kind=powersgd issues all-reduces when others end; fp16_compress has a closed form"
        case CustomHook():
            yield "parallel.comm_hook.kind=custom: nobody knows what it sends; allreduce has a closed form"
        case Noop():
            yield "parallel.comm_hook.kind=noop sends nothing; allreduce has a closed form"
        case _:
            return
